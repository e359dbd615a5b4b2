"""The runbook on the command line: requeue, pause, resume, groups, credentials, what is stuck; and many deliveries at once."""

from __future__ import annotations

import getpass
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from cli_rig import Cli
from psycopg.rows import dict_row

SHOP = """
workspaces:
  - id: shop
    credentials:
      - {platform: telegram, auth_ref: bot, token: "1:abc"}
      - {platform: telegram, auth_ref: new-bot, token: "2:def"}
    limits:
      - {platform: telegram, rate_group: bot, rate_rps: 0}
      - {platform: max, rate_group: max-bot, rate_rps: 0}
    channels:
      - {id: news, platform: telegram, target: "@news", auth_ref: bot, rate_rps: 0, max_parallel: 9}
      - {id: deals, platform: telegram, target: "@deals", auth_ref: bot, rate_rps: 0, max_parallel: 9}
      - {id: "a/b", platform: max, target: "-7", auth_ref: max-bot, rate_rps: 0, max_parallel: 9}
"""
NOBODY = "00000000-0000-0000-0000-000000000000"


class Desk:
    """A workspace with channels, and SQL on its database."""

    def __init__(self, cli: Cli, connection: Any) -> None:
        self.cli, self.connection = cli, connection

    def sql(self, query: str, *arguments: Any) -> list[dict[str, Any]]:
        cursor = self.connection.execute(query, arguments)
        return cursor.fetchall() if cursor.description else []

    def events(self, action: str) -> list[Any]:
        return self.sql("select * from autopost.events where action = %s order by ts, id", action)

    def statuses(self) -> dict[str, int]:
        return {row["status"]: row["count"] for row in self.sql("select * from autopost.queue_snapshot('shop')")}

    def begin(self, *texts: str) -> list[Any]:
        for text in texts:
            self.cli.ok("push", "shop", text)
        return self.sql("select * from autopost.claim_and_begin('shop', 'run', 100)")

    def fail(self, *rows: Any, category: str = "TRANSIENT", code: str = "500", scope: str = "delivery") -> None:
        """Until it is given up."""
        self.sql("select autopost.policy_of('shop')")
        self.sql("update autopost.policies set max_attempts = 1")
        for row in rows:
            error = {"category": category, "code": code, "scope": scope, "message": "no"}
            result = {"delivery_id": str(row["delivery_id"]), "lease": row["lease"], "error": error}
            self.sql("select autopost.settle_deliveries('shop', %s)", json.dumps([result]))


@pytest.fixture
def desk(cli: Cli, database: str) -> Iterator[Desk]:
    cli.ok("apply", cli.write("shop.yml", SHOP))
    with psycopg.connect(database, autocommit=True, row_factory=dict_row) as connection:
        yield Desk(cli, connection)


def test_named_deliveries_are_requeued_and_refusals_are_told(cli: Cli, desk: Desk) -> None:
    dead, shut, under_way = desk.begin("hello")
    desk.fail(dead)
    desk.fail(shut, category="PERMANENT", code="403", scope="channel")
    names = [str(row["delivery_id"]) for row in (dead, shut, under_way)]
    rows = json.loads(cli.ok("requeue", *names, NOBODY, "--reason", "the server is back", "--json"))
    assert {row["delivery_id"]: (row["outcome"], row["detail"]) for row in rows} == {
        names[0]: ("requeued", None),
        names[1]: ("refused", "its channel was refused (403), not the post: put that right and push it again"),
        names[2]: ("refused", "it is sending"),
        NOBODY: ("refused", "there is no such delivery"),
    }
    (event,) = desk.events("manual_requeue")
    assert event["meta"] == {"operator": getpass.getuser(), "reason": "the server is back", "from_status": "dead"}
    assert "refused" in cli.ok("requeue", names[0], "--reason", "again", "--operator", "ana")


def test_many_are_counted_first_then_moved_with_a_yes(cli: Cli, desk: Desk) -> None:
    desk.fail(*desk.begin("one", "two"))
    chosen = ("requeue", "-w", "shop", "--rate-group", "bot", "--since", "1h")
    assert [line.split()[:3] for line in cli.ok(*chosen, "--dry-run").splitlines()] == [
        ["status", "channel", "id"], ["dead", "deals", "2"], ["dead", "news", "2"],
    ]  # fmt: skip
    asked = cli.refused(*chosen, "--reason", "drill")
    assert "this would requeue 4 deliveries of 2 channels" in asked and "--yes" in asked
    assert desk.statuses() == {"dead": 6}
    assert cli.ok(*chosen, "--reason", "drill", "--operator", "ana", "--yes").splitlines()[-1] == "4 requeued"
    assert desk.statuses() == {"dead": 2, "retry": 4}
    assert {event["meta"]["operator"] for event in desk.events("manual_requeue")} == {"ana"}
    assert "There is nothing to requeue." in cli.ok(*chosen, "--reason", "drill", "--yes")
    rest = json.loads(cli.ok("requeue", "-w", "shop", "--reason", "drill", "--yes", "--json"))
    assert rest == {"moved": 2}


def test_the_count_says_what_no_requeue_helps(cli: Cli, desk: Desk) -> None:
    desk.fail(desk.begin("hello")[0], category="PERMANENT", code="403", scope="channel")
    assert "its channel or bot was" in cli.ok("requeue", "-w", "shop", "--status", "failed_permanent", "--dry-run")
    assert "its channel or bot was" not in cli.ok("requeue", "-w", "shop", "--dry-run")


def test_what_waits_is_withdrawn_by_what_it_has_in_common(cli: Cli, desk: Desk) -> None:
    cli.ok("push", "shop", "sale", "--tag", "promo")
    cli.ok("push", "shop", "news")
    counted = json.loads(cli.ok("cancel", "-w", "shop", "--tag", "promo", "--channel", "news", "--dry-run", "--json"))
    assert [(row["status"], row["channel_id"], row["count"]) for row in counted] == [("queued", "news", 1)]
    assert "3 cancelled" in cli.ok("cancel", "-w", "shop", "--tag", "promo", "--yes", "--reason", "wrong price")
    assert desk.statuses() == {"failed_permanent": 3, "queued": 3}
    assert {event["meta"]["reason"] for event in desk.events("cancelled")} == {"wrong price"}


def test_an_interrupted_requeue_keeps_what_it_has_done_and_goes_on_when_called_again(
    cli: Cli, desk: Desk, database: str
) -> None:
    desk.fail(*desk.begin("one", "two"))
    command = [sys.executable, "-m", "vestnik", "requeue", "-w", "shop", "--reason", "drill", "--yes"]
    with psycopg.connect(database) as holder:
        holder.execute("select 1 from autopost.deliveries where status = 'dead' for update")
        with subprocess.Popen(
            command,
            env=cli.environment,
            cwd=cli.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Who runs the tests in the background of a shell has Ctrl-C ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as process:
            give_up = time.monotonic() + 60
            waits = "select 1 from pg_stat_activity where application_name = 'vestnik cli' and wait_event_type = 'Lock'"
            while not desk.sql(waits):
                assert process.poll() is None and time.monotonic() < give_up
                time.sleep(0.02)
            os.kill(process.pid, signal.SIGINT)
            _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, "0 requeued; the same command goes on with the rest\n")
    assert desk.statuses() == {"dead": 6}
    assert "6 requeued" in cli.ok("requeue", "-w", "shop", "--reason", "drill", "--yes")


def test_a_channel_is_paused_resumed_and_disabled(cli: Cli, desk: Desk) -> None:
    because = ("--reason", "quarantine", "--operator", "ana")
    assert cli.ok("pause", "shop", "news", "--for", "2h", *because).startswith("news is paused until 20")
    assert cli.ok("resume", "shop", "news", *because) == "news goes on\n"
    assert cli.ok("disable", "shop", "a/b", *because) == "a/b is disabled\n"
    assert json.loads(cli.ok("resume", "shop", "a/b", *because, "--json")) == [{"channel_id": "a/b"}]
    meta = {"operator": "ana", "reason": "quarantine", "manual": True}
    for action in ("channel_paused", "channel_enabled", "channel_disabled"):
        assert desk.events(action)[0]["meta"] == meta
    assert cli.ok("events", "shop").count("    by ana: quarantine\n") == 4


def test_a_group_is_disabled_and_enabled(cli: Cli, desk: Desk) -> None:
    because = ("--reason", "the bot is banned")
    assert cli.ok("disable-group", "shop", "bot", *because) == "deals is disabled\nnews is disabled\n"
    assert [row["channel_id"] for row in desk.begin("hello")] == ["a/b"]
    assert cli.ok("enable-group", "shop", "bot", "--platform", "telegram", *because) == "deals goes on\nnews goes on\n"
    assert "no channel of group red in workspace shop" in cli.refused("disable-group", "shop", "red", *because)


def test_credentials_are_rotated_by_channel_and_all_at_once(cli: Cli, desk: Desk) -> None:
    said = cli.ok("rotate-auth", "shop", "news", "--to", "new-bot", "--rate-group", "new-bot")
    assert [line.split() for line in said.splitlines()][1] == ["news", "rotated", "bot", "new-bot", "0"]
    everybody = ("rotate-auth", "shop", "--from", "bot", "--to", "new-bot")
    assert "this would rotate 1 channel from bot to new-bot" in cli.refused(*everybody)
    assert "deals" in cli.ok(*everybody, "--yes")
    assert "no channel of workspace shop sends with bot" in cli.refused(*everybody, "--yes")
    assert {row["auth_ref"] for row in desk.begin("hello")} == {"new-bot", "max-bot"}


def test_a_channel_that_goes_on_sending_keeps_its_credential(cli: Cli, desk: Desk) -> None:
    desk.begin("hello")
    said = cli.refused("rotate-auth", "shop", "news", "--to", "new-bot", "--wait", "0s")
    assert "still sending" in said and "vestnik release-stuck" in said
    (channel,) = desk.sql("select * from autopost.channels where channel_id = 'news'")
    assert (channel["auth_ref"], channel["paused_until"]) == ("bot", None)


def test_a_declaration_that_names_another_credential_counts_after_a_rotation(cli: Cli, desk: Desk) -> None:
    cli.ok("rotate-auth", "shop", "news", "--to", "new-bot")
    assert "auth_ref: new-bot → bot" in cli.ok("apply", "shop.yml")
    assert {row["channel_id"]: row["auth_ref"] for row in desk.begin("hello")}["news"] == "bot"


def test_what_is_stuck_is_released(cli: Cli, desk: Desk) -> None:
    desk.begin("hello")
    assert cli.ok("release-stuck", "shop") == "Nothing is stuck.\n"
    desk.sql("update autopost.deliveries set sending_started_at = now() - interval '11 minutes'")
    rows = json.loads(cli.ok("release-stuck", "shop", "--json"))
    assert [(row["from_status"], row["outcome"]) for row in rows] == [("sending", "retry")] * 3
    assert desk.statuses() == {"retry": 3}


def test_errors_are_shown_as_the_specification_asks_for_them(cli: Cli, desk: Desk) -> None:
    desk.fail(*desk.begin("hello"))
    desk.sql(
        "insert into autopost.events (workspace_id, id, ts, action, result)"
        " select 'shop', gen_random_uuid(), now() - n * interval '1 second', 'dead_letter', 'error' from generate_series(1, 300) n"
    )
    ours = json.loads(cli.ok("events", "shop", "--errors", "--json"))
    printed = desk.sql(
        "select ts, action, result, channel_id, delivery_id, attempt, error, meta from autopost.events where workspace_id = 'shop'"
        " and ts >= now() - interval '30 minutes' and result = 'error' order by ts desc limit 200"
    )
    assert [set(row) for row in ours] == [set(row) for row in printed]
    assert [row["ts"] for row in ours] == [str(row["ts"]) for row in printed]
    assert len(ours) == 200


_MISTAKES = [
    (("requeue",), "requeue what?"),
    (("requeue", NOBODY), "no delivery"),
    (("requeue", NOBODY, "--status", "dead"), "deliveries are named, so nothing is left to select"),
    (("cancel", NOBODY, "--since", "2h"), "a message is named, so nothing is left to select"),
    (("requeue", "-w", "nowhere", "--yes"), "no workspace nowhere"),
    (("requeue", "-w", "shop", "--since", "soon"), "'soon' is not a moment"),
    (("pause", "shop", "nobody"), "no channel nobody in workspace shop"),
    (("pause", "shop", "news", "--for", "long"), "'long' is no duration"),
    (("release-stuck", "shop", "--older-than", "1s"), "1s is too short"),
    (("rotate-auth", "shop", "--to", "new-bot"), "which channels?"),
    (("rotate-auth", "shop", "news", "--to", "nothing"), "no telegram credential nothing in workspace shop"),
]


def test_mistakes_are_one_clear_line(cli: Cli, desk: Desk) -> None:
    for arguments, said in _MISTAKES:
        reason = () if arguments[0] in ("rotate-auth", "release-stuck") else ("--reason", "drill")
        assert said in cli.refused(*arguments, *reason)
    assert desk.sql("select 1 from autopost.events") == []


def test_without_a_reason_nothing_is_done(cli: Cli, desk: Desk) -> None:
    for given in ((), ("--reason", "  ")):
        assert "the events want a reason" in cli.refused("disable-group", "shop", "bot", *given)
    assert desk.events("channel_disabled") == []
