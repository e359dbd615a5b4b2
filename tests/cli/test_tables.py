"""Lists as people read them at a terminal, and as programs search them."""

from __future__ import annotations

import re

import psycopg
import pytest
from cli_rig import Cli
from psycopg.types.json import Jsonb

MESSAGE = "https://shop.example/pictures/autumn/a-coat-with-a-long-name.png answered 404 Not Found in the third try"


def dead_job(cli: Cli, workspace: str) -> str:
    """The id of one."""
    with psycopg.connect(cli.database, autocommit=True) as connection:
        connection.execute(
            "insert into core.workspaces (workspace_id, name) values (%s, 'W') on conflict do nothing", (workspace,)
        )
        jobs = Jsonb([{"kind": "media.fetch"}])
        connection.execute("select * from ops.enqueue_jobs(%s, %s)", (workspace, jobs))
        found = connection.execute(
            "select job_id::text, lease from ops.claim_jobs(%s, 'r', '{media.fetch}')", (workspace,)
        )
        ((job_id, lease),) = found.fetchall()
        error = {"type": "FetchFailed", "code": "404", "message": MESSAGE}
        result = {"job_id": job_id, "lease": lease, "outcome": "failed", "error": error}
        connection.execute("select * from ops.settle_jobs(%s, %s)", (workspace, Jsonb([result])))
    return str(job_id)


def at_a_terminal(cli: Cli, *arguments: str, columns: int = 80) -> list[str]:
    seen = cli.ok(*arguments, COLUMNS=str(columns), FORCE_COLOR="1")
    return re.sub(r"\x1b\[[0-9;]*m", "", seen).splitlines()


@pytest.mark.parametrize("columns", [80, 100, 120])
@pytest.mark.parametrize("command", ["list", "errors"])
def test_no_word_of_a_list_is_broken_by_a_narrow_terminal(cli: Cli, command: str, columns: int) -> None:
    ids = [dead_job(cli, "shop"), dead_job(cli, "other-shop")]
    seen = at_a_terminal(cli, "jobs", command, columns=columns)
    assert all(len(line) <= columns for line in seen)
    words = " ".join(seen).split()
    for word in (*ids, "media.fetch", "other-shop", *MESSAGE.split()):
        assert words.count(word) >= 1, word


def test_what_has_no_room_stands_below_its_row_by_name(cli: Cli) -> None:
    job_id = dead_job(cli, "shop")
    title, head, row, *below = at_a_terminal(cli, "jobs", "list")
    assert title == "workspace shop"
    assert head.split() == ["job", "id", "kind", "status", "attempt", "run", "at"]
    assert row.split()[:4] == [job_id, "media.fetch", "dead", "1"]
    assert " ".join(" ".join(below).split()) == f"last error 404: {MESSAGE}"
    assert all(line.startswith("    ") for line in below)


def test_who_searches_a_list_finds_all_of_a_row_in_its_line(cli: Cli) -> None:
    job_id = dead_job(cli, "shop")
    (line,) = [line for line in cli.ok("jobs", "list", COLUMNS="80").splitlines() if MESSAGE in line]
    assert line.startswith(job_id) and re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", line)


def test_the_workspace_is_a_column_where_there_are_several(cli: Cli) -> None:
    dead_job(cli, "shop")
    dead_job(cli, "other")
    head, *rows = at_a_terminal(cli, "jobs", "kinds")
    assert head.split()[0] == "workspace"
    assert [row.split()[0] for row in rows] == ["other", "shop"]


def test_nothing_wrong_is_not_nothing_at_all(cli: Cli) -> None:
    dead_job(cli, "shop")
    assert cli.ok("events", "shop") == "Nothing happened in the last 30 minutes.\n"
    assert cli.ok("events", "shop", "--errors") == "Nothing went wrong in the last 30 minutes.\n"


def test_what_was_turned_away_at_the_door_says_where_and_why(cli: Cli) -> None:
    cli.ok("apply", cli.write("shop.yml", "workspaces: [{id: shop, endpoints: [{id: main}]}]"))
    with psycopg.connect(cli.database, autocommit=True) as connection:
        for action, reason, count in (
            ("ingress_rate_limited", "rate", 3),
            ("ingress_payload_rejected", "too_large", 1),
        ):
            connection.execute(
                "select autopost.record_refusals('shop', 'main', %s, %s, %s)", (action, reason, count)
            )  # fmt: skip
    seen = [line.strip() for line in cli.ok("events", "shop", "--errors").splitlines()]
    assert "endpoint main: rate, 3 times" in seen and "endpoint main: too_large" in seen
