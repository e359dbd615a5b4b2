"""Which tries count, of a post that takes several calls: those that got no further. And what the others may not do."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.types.json import Jsonb
from sends import BUSY, begun

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16

NOT_READY = {"scope": "delivery", "code": "attachment.not.ready"}


async def progress(workspace: Autopost, row: Any, calls: int, plan: dict[str, Any] | None = None) -> bool:
    return bool(await workspace.value(
        "select autopost.record_progress(%s, %s, %s, %s, %s, %s, %s, %s)",
        workspace.workspace, row["delivery_id"], row["lease"], calls, [f"m{calls}"], [calls - 1],
        None if plan is None else Jsonb(plan), workspace.now,
    ))  # fmt: skip


async def render_meta(workspace: Autopost) -> dict[str, Any]:
    (row,) = await workspace.deliveries()
    return dict(row["render_meta"])


async def tried_again(workspace: Autopost, row: Any, error: dict[str, Any] = BUSY) -> Any:
    assert await workspace.retry(row["delivery_id"], error, row["lease"]) == "retry"
    workspace.wait(hours=1)
    (row,) = await workspace.take()
    return row


async def test_a_delivery_is_dead_after_so_many_tries_without_progress(workspace: Autopost) -> None:
    await workspace.policy(max_attempts=3, backoff_jitter=0)
    row, waits = await begun(workspace), []
    for calls in (1, 2, 3, 3, 3):
        if calls > len(waits):
            await progress(workspace, row, calls)
        outcome = await workspace.retry(row["delivery_id"], BUSY, row["lease"])
        found = await workspace.delivery(row["delivery_id"])
        waits.append(found["next_retry_at"] and (found["next_retry_at"] - workspace.now).total_seconds())
        workspace.wait(hours=1)
        row = next(iter(await workspace.take()), row)
    assert outcome == "dead"
    assert waits == [2, 2, 2, 4, None], "the pauses begin anew, too"
    assert found["attempt"] == 5


async def test_a_sender_that_dies_after_progress_is_not_the_last_one(workspace: Autopost) -> None:
    await workspace.policy(max_attempts=2)
    row = await tried_again(workspace, await begun(workspace))
    await progress(workspace, row, 1)
    for status in ("retry", "dead"):
        workspace.wait(hours=1)
        await workspace.sweep()
        assert await workspace.statuses() == {status: 1}
        workspace.wait(hours=1)
        await workspace.take()


async def test_a_file_that_is_not_ready_is_waited_for_and_then_tried_as_often_as_anything(workspace: Autopost) -> None:
    await workspace.policy(max_attempts=2, backoff_jitter=0, not_ready_patience="10 minutes")
    row = await begun(workspace)
    for _ in range(10):
        assert await workspace.retry(row["delivery_id"], NOT_READY, row["lease"]) == "retry"
        assert (await workspace.delivery(row["delivery_id"]))["next_retry_at"] <= workspace.now + timedelta(seconds=5)
        workspace.wait(minutes=1)
        (row,) = await workspace.take()
    outcomes = []
    for _ in range(2):
        outcomes.append(await workspace.retry(row["delivery_id"], NOT_READY, row["lease"]))
        workspace.wait(minutes=1)
        row = next(iter(await workspace.take()), row)
    assert outcomes == ["retry", "dead"]


async def test_other_errors_do_not_pay_for_a_file_that_was_not_ready(workspace: Autopost) -> None:
    await workspace.policy(max_attempts=2, not_ready_patience="1 day")
    row = await begun(workspace)
    for error in (NOT_READY, NOT_READY, NOT_READY, BUSY):
        row = await tried_again(workspace, row, error)
    assert await workspace.retry(row["delivery_id"], BUSY, row["lease"]) == "dead"


async def test_each_file_of_a_series_has_a_patience_of_its_own(workspace: Autopost) -> None:
    await workspace.policy(max_attempts=1, not_ready_patience="90 minutes")
    row = await begun(workspace)
    for calls in range(1, 5):
        row = await tried_again(workspace, row, NOT_READY)
        assert {"not_ready_since", "not_ready_attempts"} <= set(await render_meta(workspace))
        await progress(workspace, row, calls)
        assert not {"not_ready_since", "not_ready_attempts"} & set(await render_meta(workspace))


async def test_who_has_lost_the_lease_records_no_progress(workspace: Autopost) -> None:
    old = await begun(workspace)
    new = await tried_again(workspace, old)
    assert await progress(workspace, new, 1)
    before = await workspace.delivery(new["delivery_id"])
    workspace.wait(minutes=1)
    assert not await progress(workspace, old, 2)
    assert await workspace.delivery(new["delivery_id"]) == before
    assert await workspace.sent(new["delivery_id"], new["lease"]) == "sent"
    assert not await progress(workspace, new, 2), "what is over makes no progress"


async def test_one_call_that_is_told_twice_is_one_call(workspace: Autopost) -> None:
    """The database had written it down, and its answer was lost."""
    row = await begun(workspace)
    assert await progress(workspace, row, 1)
    first = await render_meta(workspace)
    assert await progress(workspace, row, 1)
    assert await render_meta(workspace) == first


async def test_the_first_call_pins_what_the_others_are_planned_with(workspace: Autopost) -> None:
    row = await begun(workspace)
    await progress(workspace, row, 1, {"target_id": "1"})
    await progress(workspace, row, 2, {"target_id": "2"})
    assert (await render_meta(workspace))["series_plan"] == {"target_id": "1"}


async def test_the_next_post_of_the_channel_keeps_the_rate_after_the_last_call(workspace: Autopost) -> None:
    await workspace.channel(rate_rps=1, max_parallel=9)
    row = await begun(workspace)
    await workspace.push("the next one")
    workspace.wait(seconds=5)
    await progress(workspace, row, 1)
    assert await workspace.take() == []
    workspace.wait(seconds=1)
    assert len(await workspace.take()) == 1


async def test_a_call_of_a_series_counts_for_the_group_too(workspace: Autopost) -> None:
    await workspace.channel()
    row = await begun(workspace)
    await workspace.channel("c2")
    await workspace.sql("update autopost.platform_limits set rate_rps = 1 where workspace_id = %s", workspace.workspace)
    await workspace.push({"text": "for the other", "channels": ["c2"]})
    await progress(workspace, row, 1)
    assert await workspace.take() == []
    workspace.wait(seconds=1)
    assert len(await workspace.take()) == 1
