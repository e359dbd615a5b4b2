"""The server's clock is set back: nothing is lost, nothing goes twice or faster, and what waits goes when its time comes
round again."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from queue_audit import violations

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = [
    pytest.mark.pg16,
    pytest.mark.parametrize("back", [timedelta(seconds=5), timedelta(hours=1)], ids=["5 s", "1 h"]),
]


async def send_all(workspace: Autopost) -> int:
    rows = await workspace.take()
    for row in rows:
        assert await workspace.sent(row["delivery_id"], row["lease"]) == "sent"
    return len(rows)


async def test_what_waited_goes_later_and_what_is_new_goes_at_once(workspace: Autopost, back: timedelta) -> None:
    await workspace.channel()
    waiting = await workspace.push("before")
    workspace.now -= back
    await workspace.push("after")
    assert await send_all(workspace) == 1
    (row,) = await workspace.deliveries("queued")
    assert row["message_id"] == waiting["message_id"]
    why = await workspace.sql(
        "select * from why_delivery(%s, %s, %s)", workspace.workspace, row["delivery_id"], workspace.now
    )
    assert why[0]["earliest"] == workspace.now + back
    workspace.now += back
    assert await send_all(workspace) == 1
    assert await violations(workspace.connection, workspace.workspace) == []


async def test_a_pace_is_kept_over_it(workspace: Autopost, back: timedelta) -> None:
    await workspace.channel(rate_rps=1)
    await workspace.push_batch({"text": "one"}, {"text": "two"})
    assert await send_all(workspace) == 1
    workspace.now -= back
    assert await send_all(workspace) == 0
    workspace.now += back
    assert await send_all(workspace) == 0
    workspace.wait(seconds=1)
    assert await send_all(workspace) == 1


async def test_what_is_being_sent_is_not_begun_again_and_its_result_counts(
    workspace: Autopost, back: timedelta
) -> None:
    await workspace.channel()
    await workspace.push("post")
    (row,) = await workspace.take()
    workspace.now -= back
    assert await workspace.sweep() == (0, 0)
    assert await workspace.take() == []
    assert await workspace.sent(row["delivery_id"], row["lease"]) == "sent"
    assert (await workspace.push("post"))["suppressed"] == 1
    assert await violations(workspace.connection, workspace.workspace) == []


async def test_a_lease_ends_no_earlier_than_it_would_have(workspace: Autopost, back: timedelta) -> None:
    await workspace.channel()
    await workspace.push("post")
    await workspace.take()
    workspace.now -= back
    workspace.wait(seconds=301)
    assert await workspace.sweep() == (0, 0)
    workspace.now += back
    assert await workspace.sweep() == (1, 0)


async def test_a_retry_comes_when_its_time_comes_round_again(workspace: Autopost, back: timedelta) -> None:
    await workspace.channel()
    await workspace.push("post")
    (row,) = await workspace.take()
    at = workspace.now + timedelta(seconds=30)
    await workspace.retry(row["delivery_id"], lease=row["lease"], at=at)
    workspace.now -= back
    assert await workspace.take() == []
    workspace.now = at
    assert await send_all(workspace) == 1
