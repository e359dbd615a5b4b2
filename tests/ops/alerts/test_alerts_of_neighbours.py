"""Two workspaces whose alerts, targets and webhooks have the same names: neither hears of the other, nor changes what it hears."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from psycopg.types.json import Jsonb
from test_notices import settle, take, told

pytestmark = pytest.mark.pg16


@pytest.fixture
async def neighbour(troubles: Any) -> Any:
    other = type(troubles)(troubles.connection, f"n-{uuid4().hex}")
    await other.sql("insert into core.workspaces (workspace_id, name) values (%s, 'beside it')", other.workspace)
    for each in (troubles, other):
        await each.target()
    return other


async def test_what_one_was_told_the_other_was_not(troubles: Any, neighbour: Any) -> None:
    await troubles.put()
    assert await told(neighbour) == []
    assert await told(troubles) == [("disk", "raised")]
    await neighbour.put()
    assert await told(neighbour) == [("disk", "raised")]
    await neighbour.clear()
    troubles.wait(minutes=10)
    assert await told(troubles) == []


async def test_a_silence_an_acknowledgement_and_a_policy_are_of_one(troubles: Any, neighbour: Any) -> None:
    until = troubles.now + timedelta(days=1)
    silence = "select ops.silence_alert(%s, 'me', 'disk', '', %s, 'quiet', %s)"
    await neighbour.value(silence, neighbour.workspace, until, neighbour.now)
    for each in (troubles, neighbour):
        await each.put()
    assert await told(neighbour) == []
    assert await told(troubles) == [("disk", "raised")]
    assert await neighbour.value("select ops.ack_alerts(%s, 'me', 'disk')", neighbour.workspace) == 1
    assert (await troubles.row())["acked_at"] is None
    await neighbour.value("select (ops.alert_policy_of(%s)).repeat_every", neighbour.workspace)
    await neighbour.sql(
        "update ops.alert_policies set repeat_every = '1 year' where workspace_id = %s", neighbour.workspace
    )
    troubles.wait(hours=5)
    assert await told(troubles) == [("disk", "repeated")]


async def test_a_target_that_fails_holds_up_its_own_only(troubles: Any, neighbour: Any) -> None:
    for each in (troubles, neighbour):
        await each.put()
    lease, notices = await take(neighbour)
    await settle(neighbour, lease, notices, {"code": "http_503", "message": "away"})
    assert await told(troubles) == [("disk", "raised")]


async def test_checks_of_one_find_nothing_of_the_other(troubles: Any, neighbour: Any) -> None:
    """Dead jobs, targets and webhooks that cannot be told."""
    await neighbour.sql(
        "insert into ops.webhooks (workspace_id, webhook_id, url, events, failures)"
        " values (%s, 'crm', 'https://e.org', '{delivery.dead}', 9)",
        neighbour.workspace,
    )
    await neighbour.sql("update ops.alert_targets set failures = 9 where workspace_id = %s", neighbour.workspace)
    await neighbour.sql("select ops.enqueue_job(%s, 'k', p_now => %s)", neighbour.workspace, neighbour.now)
    await neighbour.sql(
        "update ops.jobs set status = 'dead', finished_at = %s where workspace_id = %s",
        neighbour.now,
        neighbour.workspace,
    )
    check = "select alert from autopost.failing_checks(%s, %s) order by 1"
    found = [row["alert"] for row in await neighbour.sql(check, neighbour.workspace, neighbour.now)]
    assert found == ["alert_target", "jobs_dead", "webhook"]
    assert await troubles.sql(check, troubles.workspace, troubles.now) == []


async def test_a_target_that_is_switched_off_is_neither_told_nor_missed(troubles: Any) -> None:
    await troubles.target()
    await troubles.put()
    await troubles.sql(
        "update ops.alert_targets set enabled = false, failures = 9 where workspace_id = %s", troubles.workspace
    )
    assert await take(troubles) == (0, [])
    assert await troubles.sql("select * from ops.check_ways_out(%s, %s)", troubles.workspace, troubles.now) == []


async def test_a_failure_of_one_is_no_message_of_the_other(troubles: Any, neighbour: Any) -> None:
    await neighbour.sql(
        "insert into ops.webhooks (workspace_id, webhook_id, url, events) values (%s, 'crm', 'https://e.org', '{delivery.dead}')",
        neighbour.workspace,
    )
    note = (
        "insert into ops.failures (workspace_id, event_id, ts, type, data) values (%s, %s, now(), 'delivery.dead', %s)"
    )
    await troubles.sql(note, troubles.workspace, uuid4(), Jsonb({}))
    collect = "select * from ops.collect_failures(%s)"
    (counted,) = await troubles.sql(collect, troubles.workspace)
    assert counted == {"failures": 1, "jobs": 0}, "nobody asked for it"
    await neighbour.sql(note, neighbour.workspace, uuid4(), Jsonb({}))
    (counted,) = await neighbour.sql(collect, neighbour.workspace)
    assert counted == {"failures": 1, "jobs": 1}
