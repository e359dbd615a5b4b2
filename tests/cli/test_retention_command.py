"""``vestnik retention`` and the declaration of it, as an operator uses them."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from cli_rig import Cli
from psycopg.rows import dict_row

SHOP = """
workspaces:
  - id: shop
    retention: {declared}
"""


@pytest.fixture
def desk(cli: Cli, database: str) -> Any:
    with psycopg.connect(database, autocommit=True, row_factory=dict_row) as connection:
        connection.execute("insert into core.workspaces (workspace_id, name) values ('shop', 'Shop')")
        yield connection


def old_posts(desk: Any, count: int) -> None:
    desk.execute(
        "select autopost.enqueue_messages_and_deliveries('shop', null, 'webhook_push', jsonb_build_object('text', n::text),"
        " now() - interval '91 days') from generate_series(1, %s) n",
        (count,),
    )


def kept(desk: Any, rule: str) -> Any:
    row = desk.execute(
        "select keep::text, options from ops.retention where workspace_id = 'shop' and rule = %s", (rule,)
    )
    found = row.fetchone()
    return found and (found["keep"], found["options"])


def test_what_would_go_is_shown_asked_for_and_gone(cli: Cli, desk: Any) -> None:
    old_posts(desk, 3)
    shown = cli.ok("retention", "run", "--dry-run")
    assert [line.split()[:3] for line in shown.splitlines()[2:]] == [
        ["messages", "90d", "3"],
        ["ingest_runs", "90d", "3"],
    ]
    said = cli.refused("retention", "run")
    assert "this would remove this for good: 6 rows" in said
    assert "--yes" in said
    assert cli.ok("retention", "run", "--yes", "--operator", "ann") == "messages: 3 removed\ningest_runs: 3 removed\n"
    assert "Nothing is over." in cli.ok("retention", "run")
    row = desk.execute("select actor, action, details from core.changes").fetchone()
    assert row == {
        "actor": "ann", "action": "retention_run", "details": {"removed": {"messages": 3, "ingest_runs": 3}, "more": False},
    }  # fmt: skip


def test_status_says_how_long_and_how_far(cli: Cli, desk: Any) -> None:
    old_posts(desk, 2)
    cli.ok("retention", "run", "--yes", "--rule", "messages", "--workspace", "shop")
    rows = {(row["workspace_id"], row["rule"]): row for row in json.loads(cli.ok("retention", "status", "--json"))}
    assert (rows["shop", "messages"]["removed"], rows["shop", "messages"]["going"]) == (2, 0)
    assert (rows["shop", "ingest_runs"]["removed"], rows["shop", "ingest_runs"]["going"]) == (None, 2)
    assert rows["shop", "receipts"]["keep"] is None
    assert {key for key in rows if key[0] == "*"} == {("*", "events"), ("*", "jobs")}
    assert "no rule is called 'evnts'" in cli.refused("retention", "status", "--rule", "evnts")
    assert "no workspace nobody" in cli.refused("retention", "run", "--yes", "-w", "nobody")


def test_after_a_jump_of_the_clock_it_says_that_it_removes_nothing(cli: Cli, desk: Any) -> None:
    old_posts(desk, 1)
    desk.execute("insert into ops.clock_checks (workspace_id, believed_at) values ('*', now() - interval '3 days')")
    assert "nothing was removed: the clock of the database jumped" in cli.refused("retention", "run", "--yes")
    done = cli("retention", "run", "--yes", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (1, {"removed": {}, "more": False, "held": "clock"})
    assert "clock" in cli.ok("alerts", "list", "-w", "*")


def test_a_workspace_says_how_long_and_may_take_it_back(cli: Cli, desk: Any) -> None:
    declared = "{deliveries: 200d, events: 45d, archive_events: true, large_video_bytes: 1000000}"
    file = cli.write("shop.yaml", SHOP.format(declared=declared))
    assert "retention shop/events" in cli.ok("apply", file)
    assert kept(desk, "events") == ("45 days", {"archive": True})
    assert kept(desk, "large_videos") == (None, {"from_bytes": 1000000})
    assert "retention" not in cli.ok("apply", file), "nothing is new"
    shown = cli.ok("retention", "status", "-w", "shop")
    assert "200d (own)" in shown
    cli.ok("apply", cli.write("shop.yaml", SHOP.format(declared="{deliveries: null, archive_events: null}")))
    assert kept(desk, "deliveries") == (None, {})
    assert kept(desk, "events") == ("45 days", {})
    assert "200d" not in cli.ok("retention", "status", "-w", "shop")


@pytest.mark.parametrize(("declared", "complaint"), [
    ("{deliveries: 1h}", "workspaces.shop.retention.deliveries"),
    ("{deliveries: 200000d}", "workspaces.shop.retention.deliveries"),
    ("{deliverys: 90d}", "deliverys"),
    ("{large_video_bytes: 0}", "workspaces.shop.retention.large_video_bytes"),
    ("{archive_events: 90d}", "workspaces.shop.retention.archive_events"),
])  # fmt: skip
def test_slips_are_told_by_their_place(cli: Cli, desk: Any, declared: str, complaint: str) -> None:
    assert complaint in cli.refused("apply", cli.write("shop.yaml", SHOP.format(declared=declared)))
