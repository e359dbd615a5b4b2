"""Retention beside those who work on the same rows: nobody waits for it, and nothing that is needed goes."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from crowd import Crowd

    from conftest import Autopost

pytestmark = pytest.mark.pg16
KEEP = timedelta(days=90)
POST = "the same post"


async def prune(hand: Autopost, what: str) -> int:
    query = f"select removed from autopost.prune_{what}(%s, %s, 500, %s)"
    async with asyncio.timeout(20):
        return int(await hand.value(query, hand.workspace, KEEP, hand.now))


async def old_and_sent(autopost: Autopost) -> None:
    """A post that went out so long ago that all of it may go."""
    await autopost.channel()
    await autopost.push(POST)
    for row in await autopost.take():
        await autopost.sent(row["delivery_id"], row["lease"])
    autopost.wait(days=91)


async def test_a_message_that_is_just_seen_again_is_passed_by(autopost: Autopost, crowd: Crowd) -> None:
    await old_and_sent(autopost)
    await prune(autopost, "deliveries")
    pusher, pruner = await crowd.hands(2)
    async with pusher.connection.transaction():
        assert (await pusher.push(POST))["enqueued"] == 1
        assert await prune(pruner, "messages") == 0, "and it did not wait"
    assert await prune(pruner, "messages") == 0
    assert await autopost.statuses() == {"queued": 1}


async def test_a_push_that_comes_while_its_message_goes_makes_it_anew(autopost: Autopost, crowd: Crowd) -> None:
    await old_and_sent(autopost)
    await prune(autopost, "deliveries")
    before = await autopost.value("select message_id from autopost.messages")
    pusher, pruner = await crowd.hands(2)
    async with pruner.connection.transaction():
        assert await prune(pruner, "messages") == 1
        pushing = await crowd.blocked(pusher, pusher.push(POST))
    assert (await pushing)["enqueued"] == 1
    after = await autopost.value("select message_id from autopost.messages")
    assert after != before
    assert [row["message_id"] for row in await autopost.deliveries()] == [after]


async def test_a_push_that_comes_while_the_removal_breaks_off_finds_its_message(
    autopost: Autopost, crowd: Crowd
) -> None:
    await old_and_sent(autopost)
    await prune(autopost, "deliveries")
    pusher, pruner = await crowd.hands(2)
    with pytest.raises(asyncio.CancelledError):
        async with pruner.connection.transaction():
            await prune(pruner, "messages")
            pushing = await crowd.blocked(pusher, pusher.push(POST))
            raise asyncio.CancelledError
    assert (await pushing)["enqueued"] == 1
    assert await autopost.value("select seen_count from autopost.messages") == 2


async def test_a_message_whose_delivery_came_before_its_lock_stays(autopost: Autopost, crowd: Crowd) -> None:
    """Somebody's own SQL, which does not touch the message: the look under the lock finds what it wrote."""
    await old_and_sent(autopost)
    await prune(autopost, "deliveries")
    other, pruner = await crowd.hands(2)
    async with other.connection.transaction():
        await other.sql(
            "insert into autopost.deliveries (workspace_id, delivery_id, message_id, channel_id, content_hash)"
            " select workspace_id, gen_random_uuid(), message_id, 'c1', content_hash from autopost.messages"
        )
        pruning = await crowd.blocked(pruner, prune(pruner, "messages"))
    with pytest.raises(Exception, match="deliveries_workspace_id_message_id_fkey"):
        await pruning
    assert await prune(pruner, "messages") == 0


async def test_a_delivery_that_somebody_requeues_is_passed_by(autopost: Autopost, crowd: Crowd) -> None:
    await autopost.channel()
    await autopost.push(POST)
    (row,) = await autopost.take()
    await autopost.fail(row["delivery_id"], lease=row["lease"])
    autopost.wait(days=91)
    operator, pruner = await crowd.hands(2)
    async with operator.connection.transaction():
        await operator.sql(
            "update autopost.deliveries set status = 'retry', next_retry_at = %s, updated_at = %s", *[autopost.now] * 2
        )
        assert await prune(pruner, "deliveries") == 0, "and it did not wait"
    assert await prune(pruner, "deliveries") == 0
    assert await autopost.statuses() == {"retry": 1}


async def test_what_is_requeued_while_it_goes_is_gone_for_both(autopost: Autopost, crowd: Crowd) -> None:
    await autopost.channel()
    await autopost.push(POST)
    (row,) = await autopost.take()
    await autopost.fail(row["delivery_id"], lease=row["lease"])
    autopost.wait(days=91)
    operator, pruner = await crowd.hands(2)
    query = "update autopost.deliveries set status = 'retry', next_retry_at = now() returning delivery_id"
    async with pruner.connection.transaction():
        assert await prune(pruner, "deliveries") == 1
        requeueing: Any = await crowd.blocked(operator, operator.sql(query))
    assert await requeueing == []


async def test_two_runs_at_once_remove_everything_once(autopost: Autopost, crowd: Crowd) -> None:
    await autopost.channel(max_parallel=200)
    await autopost.push_batch(*({"text": f"post {n}"} for n in range(100)))
    for row in await autopost.take(limit=200):
        await autopost.sent(row["delivery_id"], row["lease"])
    autopost.wait(days=91)

    async def all_pages(hand: Autopost) -> int:
        removed = 0
        for what in ("deliveries", "messages") * 2:
            more = True
            while more:
                query = f"select * from autopost.prune_{what}(%s, %s, 7, %s)"
                (row,) = await hand.sql(query, hand.workspace, KEEP, hand.now)
                removed, more = removed + row["removed"], row["more"]
        return removed

    removed = await asyncio.gather(*(all_pages(hand) for hand in await crowd.hands(2)))
    assert sum(removed) == 200
    assert await autopost.value("select sum(removed) from ops.retention_progress") == 200
