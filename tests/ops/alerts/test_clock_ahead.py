"""A clock that was ahead for a moment keeps nobody from being told when it is right again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb
from test_notices import settle, take, told

pytestmark = pytest.mark.pg16
YEAR = timedelta(days=365)


async def test_a_trouble_told_then_is_told_again(troubles: Any) -> None:
    await troubles.target()
    troubles.now += YEAR
    await troubles.put()
    assert await told(troubles) == [("disk", "raised")]
    troubles.now -= YEAR
    await troubles.put()
    assert await told(troubles) == [("disk", "repeated")]
    assert await told(troubles) == []


async def test_a_trouble_that_ended_then_is_over_and_comes_back_as_another_one(troubles: Any) -> None:
    await troubles.target()
    for at_last in ("cleared", "raised"):
        await troubles.put()
        await told(troubles)
        troubles.now += YEAR
        await troubles.clear()
        troubles.now -= YEAR
        if at_last == "raised":
            assert await troubles.put(), "a new one"
        assert await told(troubles) == [("disk", at_last)]


@pytest.mark.parametrize("failed", [True, False], ids=["a pause", "a lease"])
async def test_what_a_target_waits_for_is_not_a_year_away(troubles: Any, failed: bool) -> None:
    await troubles.target()
    await troubles.put()
    troubles.now += YEAR
    lease, notices = await take(troubles)
    if failed:
        await settle(troubles, lease, notices, {"code": "http_503", "message": "away"})
    troubles.now -= YEAR
    due = "select ops.targets_to_tell(%s, %s)"
    assert len(await troubles.sql(due, troubles.workspace, troubles.now)) == 1
    assert await told(troubles) == [("disk", "raised")]


async def test_a_pause_that_is_near_is_kept(troubles: Any) -> None:
    await troubles.target()
    await troubles.put()
    lease, notices = await take(troubles)
    await settle(troubles, lease, notices, {"code": "http_429", "message": "later", "retry_after": 3600})
    troubles.wait(minutes=59)
    assert await told(troubles) == []
    troubles.wait(minutes=1)
    assert await told(troubles) == [("disk", "raised")]


async def test_a_webhook_is_called_again_and_its_pauses_begin_anew(troubles: Any) -> None:
    await troubles.sql(
        "insert into ops.webhooks (workspace_id, webhook_id, url, events) values (%s, 'crm', 'https://e.org', '{delivery.dead}')",
        troubles.workspace,
    )
    note = "select ops.note_webhook(%s, 'crm', %s, p_now => %s)"
    error = Jsonb({"code": "http_503", "message": "away"})
    await troubles.value(note, troubles.workspace, error, troubles.now + YEAR)
    soon = "select ops.is_soon(next_try_at, %s) from ops.webhooks where workspace_id = %s"
    assert not await troubles.value(soon, troubles.now, troubles.workspace)
    again = await troubles.value(note, troubles.workspace, error, troubles.now)
    assert again == troubles.now + timedelta(seconds=20), "the second failure"
    assert await troubles.value(soon, troubles.now, troubles.workspace)
