"""A target hears of a trouble once, again as the policy says, and of its end: whatever lay between."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

pytestmark = pytest.mark.pg16


async def take(troubles: Any, target: str = "chat") -> tuple[int, list[dict[str, Any]]]:
    """The lease, and what the target is to be told."""
    query = "select (t.target).lease, t.notices from ops.take_notices(%s, %s, '5 minutes', %s) t"
    rows = await troubles.sql(query, troubles.workspace, target, troubles.now)
    return (rows[0]["lease"], rows[0]["notices"]) if rows else (0, [])


async def settle(troubles: Any, lease: int, notices: Any, error: Any = None, target: str = "chat") -> int:
    arguments = (troubles.workspace, target, lease, Jsonb(notices), Jsonb(error) if error else None, troubles.now)
    return int(await troubles.value("select ops.settle_notices(%s, %s, %s, %s, %s, %s)", *arguments))


async def told(troubles: Any, target: str = "chat") -> list[tuple[str, str]]:
    """Tell it everything; what that was."""
    lease, notices = await take(troubles, target)
    if notices:
        await settle(troubles, lease, notices, target=target)
    return [(notice["alert"], notice["news"]) for notice in notices]


async def test_a_trouble_is_told_once(troubles: Any) -> None:
    await troubles.target()
    await troubles.put()
    assert await told(troubles) == [("disk", "raised")]
    troubles.wait(hours=3)
    await troubles.put()
    assert await told(troubles) == []


async def test_it_is_told_again_as_the_policy_says(troubles: Any) -> None:
    await troubles.target()
    for _ in range(2):
        await troubles.put()
        await told(troubles)
        troubles.wait(hours=4)
    await troubles.put()
    assert await told(troubles) == [("disk", "repeated")]
    assert await told(troubles) == []


async def test_its_end_is_told_after_the_quiet_time_and_once(troubles: Any) -> None:
    await troubles.target()
    await troubles.put()
    await told(troubles)
    await troubles.clear()
    troubles.wait(minutes=4)
    assert await told(troubles) == []
    troubles.wait(minutes=1)
    assert await told(troubles) == [("disk", "cleared")]
    assert await told(troubles) == []


async def test_what_flaps_is_told_once(troubles: Any) -> None:
    await troubles.target()
    heard = []
    for _ in range(10):
        await troubles.put()
        heard += await told(troubles)
        await troubles.clear()
        troubles.wait(minutes=2)
        heard += await told(troubles)
    assert heard == [("disk", "raised")]


async def test_what_came_and_went_while_a_target_was_away_is_not_told(troubles: Any) -> None:
    await troubles.target()
    for n in range(50):
        await troubles.put(subject=str(n))
    lease, notices = await take(troubles)
    assert len(notices) == 50
    assert await settle(troubles, lease, notices, {"code": "http_500"}) == 1
    for n in range(49):
        await troubles.clear(subject=str(n))
    troubles.wait(hours=1)
    _, notices = await take(troubles)
    assert [notice["subject"] for notice in notices] == ["49"]


async def test_a_failure_is_tried_again_later_and_later(troubles: Any) -> None:
    await troubles.target()
    await troubles.put()
    waits = []
    for failures in range(1, 10):
        lease, notices = await take(troubles)
        assert await settle(troubles, lease, notices, {"code": "http_500"}) == failures
        assert await take(troubles) == (0, [])
        query = "select next_try_at from ops.alert_targets where workspace_id = %s"
        next_try = await troubles.value(query, troubles.workspace)
        waits.append((next_try - troubles.now).total_seconds())
        troubles.now = next_try
    assert waits == [10, 20, 40, 80, 160, 320, 640, 900, 900]
    lease, notices = await take(troubles)
    assert await settle(troubles, lease, notices) == 0
    query = "select failing_since, next_try_at, last_error from ops.alert_targets where workspace_id = %s"
    assert set((await troubles.sql(query, troubles.workspace))[0].values()) == {None}


async def test_a_target_that_asks_for_more_time_gets_it(troubles: Any) -> None:
    await troubles.target()
    await troubles.put()
    lease, notices = await take(troubles)
    await settle(troubles, lease, notices, {"code": "429", "retry_after": 120})
    troubles.wait(seconds=119)
    assert await take(troubles) == (0, [])
    troubles.wait(seconds=1)
    assert (await take(troubles))[1] != []


async def test_only_one_notifier_has_a_target(troubles: Any, worker_database: str) -> None:
    await troubles.target()
    await troubles.put()

    async def one() -> int:
        async with await AsyncConnection.connect(worker_database, autocommit=True, row_factory=dict_row) as connection:
            query = "select * from ops.take_notices(%s, 'chat', '5 minutes', %s)"
            rows = await (await connection.execute(query, (troubles.workspace, troubles.now))).fetchall()
            return len(rows)

    assert sorted(await asyncio.gather(*(one() for _ in range(5)))) == [0, 0, 0, 0, 1]
    troubles.wait(minutes=5)
    assert await one() == 1


async def test_a_late_acknowledgement_counts_and_a_late_failure_does_not(troubles: Any) -> None:
    await troubles.target()
    await troubles.put()
    first, notices = await take(troubles)
    troubles.wait(minutes=5)
    second, _ = await take(troubles)
    assert second > first
    assert await settle(troubles, first, notices, {"code": "timeout"}) == 0
    await settle(troubles, first, notices)
    await settle(troubles, second, [], {"code": "timeout"})
    troubles.wait(minutes=1)
    assert await told(troubles) == []


async def test_targets_hear_of_what_they_asked_for(troubles: Any) -> None:
    await troubles.target("all")
    await troubles.target("grave", min_severity="critical")
    await troubles.target("some", alerts=["dead"])
    await troubles.target("off", enabled=False)
    await troubles.put("disk")
    await troubles.put("dead", severity="critical")
    assert await told(troubles, "all") == [("dead", "raised"), ("disk", "raised")]
    assert await told(troubles, "grave") == await told(troubles, "some") == [("dead", "raised")]
    assert await told(troubles, "off") == []


async def test_what_becomes_grave_is_told_again(troubles: Any) -> None:
    await troubles.target()
    await troubles.put()
    await told(troubles)
    await troubles.put(severity="critical")
    assert await told(troubles) == [("disk", "raised")]
    await troubles.put(severity="warning")
    assert await told(troubles) == []


async def test_a_target_is_not_told_that_it_cannot_be_told(troubles: Any) -> None:
    await troubles.target("chat")
    await troubles.target("mail")
    await troubles.put("alert_target", "chat")
    assert await told(troubles, "chat") == []
    assert await told(troubles, "mail") == [("alert_target", "raised")]


async def test_what_somebody_acknowledged_is_not_repeated_until_it_grows(troubles: Any) -> None:
    await troubles.target()
    await troubles.put(count=3)
    await told(troubles)
    query = "select ops.ack_alerts(%s, 'anna', 'disk', null, %s)"
    assert await troubles.value(query, troubles.workspace, troubles.now) == 1
    troubles.wait(hours=5)
    await troubles.put(count=3)
    assert await told(troubles) == []
    await troubles.put(count=4)
    assert await told(troubles) == [("disk", "repeated")]
    query = "select actor, action, subject from core.changes where workspace_id = %s"
    assert await troubles.sql(query, troubles.workspace) == [
        {"actor": "anna", "action": "alert_acked", "subject": "disk"}
    ]


async def test_a_silence_holds_until_its_end(troubles: Any) -> None:
    await troubles.target()
    query = "select ops.silence_alert(%s, 'anna', 'disk', %s, %s, 'a move', %s)"
    until = troubles.now.replace(hour=13)
    await troubles.sql(query, troubles.workspace, "a", until, troubles.now)
    await troubles.put(subject="a")
    await troubles.put(subject="b")
    _, notices = await take(troubles)
    assert [notice["subject"] for notice in notices] == ["b"]
    troubles.wait(hours=1)
    _, notices = await take(troubles)
    assert [notice["subject"] for notice in notices] == ["a", "b"]


async def test_what_is_over_for_long_is_forgotten(troubles: Any) -> None:
    await troubles.target()
    await troubles.put("dead")
    await troubles.put("disk")
    await told(troubles)
    await troubles.clear("dead")
    troubles.wait(days=91)
    query = "select ops.prune_alerts(%s, p_now => %s)"
    assert await troubles.value(query, troubles.workspace, troubles.now) == 1
    query = "select alert from ops.alert_told where workspace_id = %s"
    assert await troubles.sql(query, troubles.workspace) == [{"alert": "disk"}]
