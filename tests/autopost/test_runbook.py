"""The specification's runbook works as printed: every section, statement by statement, with its effect and its event.

Parameters are bound by the client, as psql and n8n do it: some stand where the server could not tell their type.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncClientCursor, AsyncConnection, DatabaseError
from psycopg.rows import DictRow
from runbook import as_psycopg, statements

pytestmark = pytest.mark.pg16
Run = Callable[..., Awaitable[list[list[DictRow]]]]


@pytest.fixture(autouse=True)
def server_clock(autopost: Any) -> None:
    """The runbook asks the server for the time."""
    autopost.now = datetime.now(UTC)


@pytest.fixture
def run(db: AsyncConnection[DictRow]) -> Run:
    """Runs a section; returns what each of its statements found."""

    async def run(section: int, **arguments: Any) -> list[list[DictRow]]:
        found = []
        known = {"workspace_id": "w", "operator": "olga", "reason": "drill"}
        async with AsyncClientCursor(db) as cursor:
            for statement in statements(section):
                await cursor.execute(as_psycopg(statement).encode(), known | arguments)
                found.append(await cursor.fetchall() if cursor.description else [])
        return found

    return run


async def one_dead(autopost: Any) -> Any:
    await autopost.policy(max_attempts=1)
    await autopost.channel("a")
    await autopost.push("hello")
    (row,) = await autopost.take()
    assert await autopost.retry(row["delivery_id"], lease=row["lease"]) == "dead"
    return row["delivery_id"]


def test_every_section_is_there() -> None:
    assert [len(statements(n)) for n in range(1, 11)] == [1, 1, 1, 1, 1, 1, 1, 1, 7, 1]


async def test_1_snapshot_of_the_queue(autopost: Any, run: Run) -> None:
    await autopost.channel("a")
    await autopost.channel("b", platform="max")
    await autopost.push("x" * 4050)
    assert await run(1) == [
        [
            {"workspace_id": "w", "status": "failed_permanent", "cnt": 1},
            {"workspace_id": "w", "status": "queued", "cnt": 1},
        ]
    ]


async def test_2_recent_errors(autopost: Any, run: Run) -> None:
    delivery_id = await one_dead(autopost)
    autopost.wait(minutes=-40)
    await autopost.channel("b", platform="max")
    await autopost.push("y" * 4050)
    ((error,),) = await run(2)
    assert (error["action"], error["delivery_id"], error["attempt"]) == ("dead_letter", delivery_id, 1)
    assert error["error"]["code"] == "500"


async def test_3_requeue_of_the_dead(autopost: Any, run: Run) -> None:
    delivery_id = await one_dead(autopost)
    await run(3, delivery_ids=[delivery_id])
    row = await autopost.delivery(delivery_id)
    assert (row["status"], row["attempt"]) == ("retry", 1)
    (event,) = await autopost.events("manual_requeue")
    assert (event["delivery_id"], event["attempt"], event["result"]) == (delivery_id, 1, "ok")
    assert event["meta"] == {"operator": "olga", "reason": "drill", "from_status": "dead"}

    autopost.wait(seconds=1)
    (begun,) = await autopost.take()
    assert begun["attempt"] == 2
    assert await autopost.sent(delivery_id, begun["lease"]) == "sent"


async def test_3_leaves_the_living_alone(autopost: Any, run: Run) -> None:
    await autopost.channel("a")
    await autopost.push("hello")
    (row,) = await autopost.deliveries()
    await run(3, delivery_ids=[row["delivery_id"]])
    assert await autopost.statuses() == {"queued": 1}
    assert await autopost.events("manual_requeue") == []


async def test_4_requeue_of_failures_of_the_delivery(autopost: Any, run: Run) -> None:
    await autopost.channel("a")
    await autopost.channel("b")
    await autopost.push("hello")
    content, banned = await autopost.take()
    await autopost.fail(content["delivery_id"], {"code": "400", "scope": "delivery"}, content["lease"])
    await autopost.fail(banned["delivery_id"], {"code": "403", "scope": "channel"}, banned["lease"])
    await run(4, delivery_ids=[content["delivery_id"], banned["delivery_id"]])
    assert (await autopost.delivery(content["delivery_id"]))["status"] == "retry"
    assert (await autopost.delivery(banned["delivery_id"]))["status"] == "failed_permanent"
    (event,) = await autopost.events("manual_requeue")
    assert event["delivery_id"] == content["delivery_id"]
    assert event["meta"]["from_status"] == "failed_permanent"


async def test_4_requeue_of_what_preflight_refused(autopost: Any, run: Run) -> None:
    await autopost.channel("a", platform="max")
    await autopost.push("x" * 4050)
    (row,) = await autopost.deliveries("failed_permanent")
    await run(4, delivery_ids=[row["delivery_id"]])
    autopost.wait(seconds=1)
    (begun,) = await autopost.take()
    assert (begun["delivery_id"], begun["attempt"]) == (row["delivery_id"], 1)


async def test_5_and_6_pause_and_resume_of_a_channel(autopost: Any, run: Run) -> None:
    await autopost.channel("a")
    await autopost.channel("b")
    await autopost.push("hello")
    await run(5, channel_id="a", pause_seconds=60)
    assert [row["channel_id"] for row in await autopost.take()] == ["b"]
    (event,) = await autopost.events("channel_paused")
    assert (event["channel_id"], event["delivery_id"], event["attempt"]) == ("a", None, 0)
    assert event["meta"] == {"operator": "olga", "reason": "drill", "manual": True}

    await run(6, channel_id="a")
    assert [row["channel_id"] for row in await autopost.take()] == ["a"]
    (event,) = await autopost.events("channel_enabled")
    assert (event["channel_id"], event["attempt"]) == ("a", 0)


async def test_6_resumes_what_the_policy_had_disabled(autopost: Any, run: Run) -> None:
    await autopost.policy(disable_after_permanent_streak=1)
    await autopost.channel("a")
    await autopost.push("hello")
    (row,) = await autopost.take()
    await autopost.fail(row["delivery_id"], {"code": "403", "scope": "channel"}, row["lease"])
    assert (await autopost.channel_row("a"))["enabled"] is False
    await run(6, channel_id="a")
    channel = await autopost.channel_row("a")
    assert (channel["enabled"], channel["paused_until"], channel["error_streak"]) == (True, None, 0)


async def test_7_and_8_disable_and_enable_a_group(autopost: Any, run: Run) -> None:
    for channel_id, group in (("a", "red"), ("b", "red"), ("c", "blue")):
        await autopost.channel(channel_id, rate_group=group)
    await autopost.push("hello")
    await run(7, rate_group="red")
    assert [row["channel_id"] for row in await autopost.take()] == ["c"]
    events = await autopost.events("channel_disabled")
    assert sorted(e["channel_id"] for e in events) == ["a", "b"]
    assert all(e["meta"]["rate_group"] == "red" for e in events)

    await run(8, rate_group="red")
    assert sorted(row["channel_id"] for row in await autopost.take()) == ["a", "b"]
    assert sorted(e["channel_id"] for e in await autopost.events("channel_enabled")) == ["a", "b"]


@pytest.mark.parametrize("new_group", [None, "new-bot"])
async def test_9_rotation_of_a_credential(autopost: Any, run: Run, new_group: str | None) -> None:
    await autopost.channel("a", auth_ref="old-bot", rate_group="old-bot")
    await autopost.push("hello")
    found = await run(9, channel_id="a", old_auth_ref="old-bot", new_auth_ref="new-bot", new_rate_group=new_group)
    assert [rows for rows in found if rows] == [[{"sending_now": 0}]]
    (event,) = await autopost.events("auth_rotated")
    assert event["meta"] == {"operator": "olga", "old_auth_ref": "old-bot", "new_auth_ref": "new-bot"}
    assert await autopost.take() == [], "it is paused to drain what is under way"

    await run(6, channel_id="a")
    (row,) = await autopost.take()
    assert (row["auth_ref"], row["rate_group"]) == ("new-bot", new_group or "old-bot")


async def test_9_counts_what_is_still_being_sent(autopost: Any, run: Run) -> None:
    await autopost.channel("a")
    await autopost.push("hello")
    await autopost.take()
    found = await run(9, channel_id="a", old_auth_ref="bot", new_auth_ref="bot-2", new_rate_group=None)
    assert [{"sending_now": 1}] in found


async def test_10_release_of_what_is_stuck(autopost: Any, run: Run) -> None:
    await autopost.channel("a", max_parallel=1)
    await autopost.push_batch({"text": "one"}, {"text": "two"}, {"text": "three"})
    autopost.wait(minutes=-11)
    await autopost.sql("update autopost.deliveries set not_before = %s", autopost.now)
    await autopost.claim(limit=2)
    (sending,) = await autopost.begin()
    autopost.wait(minutes=11)

    await run(10)

    assert await autopost.statuses() == {"retry": 2, "queued": 1}
    events = await autopost.events("manual_requeue")
    assert sorted(e["attempt"] for e in events) == [0, 1]
    assert all(e["meta"] == {"operator": "olga", "reason": "manual_stuck_release"} for e in events)
    row = await autopost.delivery(sending["delivery_id"])
    assert row["next_retry_at"] > autopost.now + timedelta(seconds=10)
    assert await autopost.sent(sending["delivery_id"], sending["lease"]) == "sent", "it was not lost after all"


async def test_10_leaves_healthy_rows_alone(autopost: Any, run: Run) -> None:
    await autopost.channel("a", max_parallel=1)
    await autopost.push_batch({"text": "one"}, {"text": "two"})
    await autopost.claim()
    await autopost.begin()
    await run(10)
    assert await autopost.statuses() == {"sending": 1, "claimed": 1}


async def test_a_move_that_is_not_in_the_runbook_is_refused(autopost: Any) -> None:
    await autopost.channel("a")
    await autopost.push("hello")
    with pytest.raises(DatabaseError, match=r"illegal move of delivery .*: queued -> sent") as refused:
        await autopost.sql("update deliveries set status = 'sent'")
    assert refused.value.sqlstate == "VM001"
    assert await autopost.statuses() == {"queued": 1}
