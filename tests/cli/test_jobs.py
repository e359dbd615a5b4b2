"""``vestnik jobs`` as an operator uses it."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from cli_rig import Cli
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb


@pytest.fixture
def desk(cli: Cli, database: str) -> Any:
    """SQL on the database of the command line, with a workspace called shop in it."""
    with psycopg.connect(database, autocommit=True, row_factory=dict_row) as connection:
        connection.execute("insert into core.workspaces (workspace_id, name) values ('shop', 'Shop')")
        yield connection


def enqueue(desk: Any, workspace: str = "shop", kind: str = "media.fetch", **job: Any) -> str:
    given = Jsonb([{"kind": kind} | job])
    return str(desk.execute("select job_id from ops.enqueue_jobs(%s, %s)", (workspace, given)).fetchone()["job_id"])


def fail(desk: Any, outcome: str = "failed", message: str = "it is gone") -> None:
    (row,) = desk.execute("select * from ops.claim_jobs('shop', 'runner-1', '{media.fetch}')").fetchall()
    error = {"type": "FetchFailed", "code": "404", "message": message}
    result = {"job_id": str(row["job_id"]), "lease": row["lease"], "outcome": outcome, "error": error}
    desk.execute("select * from ops.settle_jobs('shop', %s)", (Jsonb([result]),))


def status(cli: Cli, job_id: str) -> Any:
    return json.loads(cli.ok("jobs", "show", job_id, "--json"))["status"]


def test_on_the_first_day_there_is_nothing(cli: Cli) -> None:
    assert "There is no such job." in cli.ok("jobs", "list")
    assert "No job was ever enqueued." in cli.ok("jobs", "kinds")
    assert "There is no schedule." in cli.ok("jobs", "schedules")
    assert json.loads(cli.ok("jobs", "errors", "--json")) == []


def test_a_dead_job_is_found_explained_and_retried(cli: Cli, desk: Any) -> None:
    job_id = enqueue(desk, payload={"message_id": "[/m]"})
    fail(desk, message="https://user:hunter2@example.org/[/a].png answered 404")
    seen = cli.ok("jobs", "list", "--status", "dead")
    assert job_id in seen
    assert "404: https://***@example.org" in " ".join(seen.split())
    told = cli.ok("jobs", "show", job_id)
    assert '{"message_id": "[/m]"}' in told
    assert "runner-1" in told
    assert job_id in cli.ok("jobs", "errors")
    assert "hunter2" not in told + seen + cli.ok("jobs", "errors", "--json")
    assert "goes as soon as a runner is free" in cli.ok("jobs", "retry", job_id)
    assert status(cli, job_id) == "retry"
    assert "only a dead or cancelled one can be retried" in cli.refused("jobs", "retry", job_id)


def test_jobs_are_chosen_by_workspace_kind_and_status(cli: Cli, desk: Any) -> None:
    own, service = enqueue(desk), enqueue(desk, "*", "tidy.up")
    other = enqueue(desk, kind="source.pull")

    def listed(*options: str) -> set[str]:
        return {job["job_id"] for job in json.loads(cli.ok("jobs", "list", *options, "--json"))}

    assert listed() == {own, service, other}
    assert listed("-w", "shop") == {own, other}
    assert listed("-w", "*") == {service}
    assert listed("--kind", "source.pull") == {other}
    assert listed("--status", "done") == set()
    assert len(listed("--limit", "1")) == 1


def test_a_waiting_job_is_cancelled_and_a_running_one_is_told(cli: Cli, desk: Any) -> None:
    waiting, running = enqueue(desk, kind="source.pull"), enqueue(desk)
    desk.execute("select * from ops.claim_jobs('shop', 'runner-1', '{media.fetch}')")
    assert cli.ok("jobs", "cancel", waiting).strip() == "cancelled"
    assert cli.ok("jobs", "cancel", running).strip() == "it runs; its runner ends it"
    assert (status(cli, waiting), status(cli, running)) == ("cancelled", "running")


def test_a_job_is_run_before_its_time(cli: Cli, desk: Any) -> None:
    job_id = enqueue(desk, run_at="2099-01-01T00:00:00Z")
    cli.ok("jobs", "run", job_id)
    assert len(desk.execute("select * from ops.claim_jobs('shop', 'r', '{media.fetch}')").fetchall()) == 1
    assert "is running: only one that waits can be run now" in cli.refused("jobs", "run", job_id)


def test_a_kind_is_paused_and_resumed(cli: Cli, desk: Any) -> None:
    enqueue(desk)
    assert cli.ok("jobs", "pause", "shop", "media.fetch").strip() == "paused"
    assert cli.ok("jobs", "pause", "shop", "media.fetch").strip() == "it was paused already"
    (kind,) = json.loads(cli.ok("jobs", "kinds", "--json"))
    assert (kind["kind"], kind["waiting"], kind["paused_at"] is not None) == ("media.fetch", 1, True)
    assert desk.execute("select * from ops.claim_jobs('shop', 'r', '{media.fetch}')").fetchall() == []
    assert cli.ok("jobs", "resume", "shop", "media.fetch").strip() == "it goes on"
    assert cli.ok("jobs", "resume", "shop", "media.fetch").strip() == "it was not paused"


def test_schedules_show_when_they_come_next(cli: Cli, desk: Any) -> None:
    desk.execute(
        "select ops.put_schedule('shop', 'nightly', %s, '2099-01-01T03:00Z')",
        (Jsonb({"kind": "source.pull", "cron": "0 3 * * *"}),),
    )
    seen = cli.ok("jobs", "schedules")
    assert "nightly" in seen
    assert "2099-01-01 03:00:00" in seen


def test_what_the_service_has_done_is_told_to_who_asks(cli: Cli, desk: Any) -> None:
    job_id = enqueue(desk, "*", "media.arrivals")
    assert job_id in cli.ok("jobs", "list")
    desk.execute("update ops.jobs set status = 'done', finished_at = now()")
    assert "There is no such job." in cli.ok("jobs", "list")
    for asked in (["-w", "*"], ["--kind", "media.arrivals"], ["--status", "done"]):
        assert job_id in cli.ok("jobs", "list", *asked)


def test_what_comes_by_the_clock_can_be_had_now(cli: Cli, desk: Any) -> None:
    desk.execute(
        "select ops.put_schedule('shop', 'nightly', %s, '2099-01-01T03:00Z')",
        (Jsonb({"kind": "source.pull", "cron": "0 3 * * *"}),),
    )
    said = cli.ok("jobs", "fire", "shop", "nightly")
    job_id = said.split()[1]
    assert json.loads(cli.ok("jobs", "show", job_id, "--json"))["kind"] == "source.pull"
    assert f"job {job_id}, which has not finished yet" in cli.ok("jobs", "fire", "shop", "nightly")
    assert "no schedule weekly in workspace shop" in cli.refused("jobs", "fire", "shop", "weekly")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["show", "00000000-0000-0000-0000-000000000000"], "no job"),
        (["show", "abc"], "UUID"),
        (["list", "--status", "lost"], "no job can be 'lost'"),
        (["pause", "nowhere", "media.fetch"], "no workspace nowhere"),
        (["pause", "shop", "media.fecth"], "no job of the kind media.fecth was ever seen in workspace shop"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_clear_line(cli: Cli, desk: Any, arguments: list[str], says: str) -> None:
    assert says in cli.refused("jobs", *arguments)
