"""Operators and dispatchers reach for the same rows: whoever is second finds what the first has left."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from crowd import Crowd, failed, push_now, sent, settle_now, take_now, until
from operated import credential, do, gave_up, requeue, switch_auth

from queue_audit import violations
from vestnik.autopost import rotation
from vestnik.db.pool import Pool

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16


async def test_of_two_operators_who_requeue_one_delivery_the_second_is_told(autopost: Autopost, crowd: Crowd) -> None:
    delivery_id = await gave_up(autopost)
    one, other = await crowd.hands(2)
    await one.sql("begin")
    assert await requeue(one, delivery_id) == {delivery_id: ("requeued", None)}
    second = await crowd.blocked(other, requeue(other, delivery_id, operator="anna"))
    await one.sql("commit")
    assert await second == {delivery_id: ("refused", "it is retry")}
    (event,) = await autopost.events("manual_requeue")
    assert event["meta"]["operator"] == "olga"


@pytest.mark.parametrize("first", ["push", "requeue"])
async def test_a_push_and_a_requeue_of_one_post_that_meet_bring_it_once(
    autopost: Autopost, crowd: Crowd, first: str
) -> None:
    delivery_id = await gave_up(autopost)
    one, other = await crowd.hands(2)
    deeds = {"push": lambda hand: hand.push("hello"), "requeue": lambda hand: requeue(hand, delivery_id)}
    second = "requeue" if first == "push" else "push"
    async with one.connection.transaction():
        await deeds[first](one)
        waiting = await crowd.blocked(other, deeds[second](other))
    await waiting
    (row,) = await autopost.take()
    await autopost.sent(row["delivery_id"], row["lease"])
    assert await autopost.take() == []
    assert await autopost.statuses() == {"sent": 1, "deduped": 1}


LATER = {
    "requeue": "select * from autopost.requeue_deliveries('w', 'olga', 'drill', array(select delivery_id from autopost.deliveries))",
    "pause": "select autopost.pause_channel('w', 'olga', 'drill', 'a', '1 hour')",
    "drain": "select autopost.drain_channel('w', 'olga', 'a')",
    "resume": "select autopost.resume_channel('w', 'olga', 'drill', 'a')",
    "rotate": "select autopost.switch_auth('w', 'olga', 'drill', 'a', 'new', 'other')",
}


@pytest.mark.parametrize("name", LATER)
async def test_what_is_done_under_the_lock_is_told_with_a_later_time_than_what_it_waited_for(
    autopost: Autopost, crowd: Crowd, name: str
) -> None:
    """Also when its transaction is the older one: the events of two who meet are in the order of what they did."""
    await gave_up(autopost)
    await credential(autopost, "new")
    older, other = await crowd.hands(2)
    await older.sql("begin")
    await older.sql("select now()")
    await other.sql("select autopost.disable_channel('w', 'anna', 'drill', 'a')")
    met = await autopost.value("select max(ts) from autopost.events where meta ->> 'operator' = 'anna'")
    await older.sql(LATER[name])
    await older.sql("commit")
    told = await autopost.sql("select ts from autopost.events where meta ->> 'operator' = 'olga'")
    assert told and all(event["ts"] > met for event in told)


@pytest.mark.parametrize("ends", ["commits", "rolls back"])
async def test_a_group_is_disabled_after_the_begin_that_has_its_channels(
    autopost: Autopost, crowd: Crowd, ends: str
) -> None:
    await autopost.channel(max_parallel=9)
    await autopost.push("hello")
    dispatcher, operator = await crowd.hands(2)
    await dispatcher.sql("begin")
    assert len(await dispatcher.take()) == 1
    disabling = await crowd.blocked(operator, do(operator, "disable_group", "bot"))
    await dispatcher.sql("commit" if ends == "commits" else "rollback")
    assert await disabling == ["c1"]
    assert await dispatcher.take() == []
    assert await autopost.statuses() == ({"sending": 1} if ends == "commits" else {"queued": 1})


async def test_a_begin_that_waited_for_the_disabling_begins_nothing(autopost: Autopost, crowd: Crowd) -> None:
    await autopost.channel()
    await autopost.push("hello")
    dispatcher, operator = await crowd.hands(2)
    await operator.sql("begin")
    await do(operator, "disable_group", "bot")
    beginning = await crowd.blocked(dispatcher, dispatcher.take())
    await operator.sql("commit")
    assert await beginning == []


async def test_a_group_is_locked_in_the_order_of_everybody_else(autopost: Autopost, crowd: Crowd) -> None:
    """Whoever has the first channel may still take the last: no deadlock."""
    for channel_id in ("b", "a"):
        await autopost.channel(channel_id)
    dispatcher, operator = await crowd.hands(2)
    await operator.sql("set enable_indexscan = off")
    await operator.sql("set enable_bitmapscan = off")  # else the plan itself goes by the key
    lock = "select 1 from autopost.channels where channel_id = %s for no key update"
    await dispatcher.sql("begin")
    await dispatcher.sql(lock, "a")
    disabling = await crowd.blocked(operator, do(operator, "disable_group", "bot"))
    await dispatcher.sql(lock + " nowait", "b")
    await dispatcher.sql("commit")
    assert await disabling == ["a", "b"]


async def test_a_switch_waits_for_the_begin_that_has_the_channel_and_is_refused(
    autopost: Autopost, crowd: Crowd
) -> None:
    await autopost.channel()
    await credential(autopost, "new")
    await autopost.push("hello")
    dispatcher, operator = await crowd.hands(2)
    await dispatcher.sql("begin")
    (row,) = await dispatcher.take()
    switching = await crowd.blocked(operator, switch_auth(operator, "c1", "new"))
    await dispatcher.sql("commit")
    assert (await switching)["outcome"] == "sending"
    assert row["auth_ref"] == "bot"


async def test_a_begin_that_waited_for_the_switch_has_the_new_credential(autopost: Autopost, crowd: Crowd) -> None:
    await autopost.channel()
    await credential(autopost, "new")
    await autopost.push("hello")
    dispatcher, operator = await crowd.hands(2)
    await operator.sql("begin")
    await switch_auth(operator, "c1", "new", "another-group")
    beginning = await crowd.blocked(dispatcher, dispatcher.take())
    await operator.sql("commit")
    rows = await beginning or await dispatcher.take()
    assert [row["auth_ref"] for row in rows] == ["new"]


async def rotating(pool: Pool, **more: Any) -> asyncio.Task[list[dict[str, Any]]]:
    """A rotation that has begun, and found a send under way."""
    task = asyncio.create_task(rotation.rotate_auth(pool, "w", ["a", "b"], "new", operator="olga", **more))
    await until(pool, "select 1 from autopost.channels where channel_id = 'a' and paused_until > now()")
    return task


@pytest.fixture
async def shop(autopost: Autopost, pool: Pool) -> Autopost:
    """Channel ``a`` is sending, ``b`` is idle; more waits for both."""
    for channel_id in ("a", "b"):
        await autopost.channel(channel_id)
    await credential(autopost, "new")
    return autopost


async def test_sends_under_way_end_with_the_old_token_and_none_begins_before_the_switch(
    shop: Autopost, pool: Pool
) -> None:
    await push_now(pool, "one")
    under_way = {row["channel_id"]: row for row in await take_now(pool)}
    await settle_now(pool, [sent(under_way["b"])])
    await push_now(pool, "two")
    task = await rotating(pool)
    assert [(row["channel_id"], row["auth_ref"]) for row in await take_now(pool)] == [("b", "new")]
    assert under_way["a"]["auth_ref"] == "bot"
    assert not task.done()
    await settle_now(pool, [sent(under_way["a"])])
    assert {row["channel_id"]: row["outcome"] for row in await task} == {"a": "rotated", "b": "rotated"}
    assert [(row["channel_id"], row["auth_ref"]) for row in await take_now(pool)] == [("a", "new")]


async def test_what_does_not_end_in_time_keeps_its_credential_and_goes_on(shop: Autopost, pool: Pool) -> None:
    await push_now(pool, "one")
    under_way = {row["channel_id"]: row for row in await take_now(pool)}
    await settle_now(pool, [sent(under_way["b"])])
    rows = await rotation.rotate_auth(pool, "w", ["a", "b"], "new", operator="olga", wait=timedelta(0))
    assert {row["channel_id"]: row["outcome"] for row in rows} == {"a": "sending", "b": "rotated"}
    await settle_now(pool, [sent(under_way["a"])])
    await push_now(pool, "two")
    assert {row["channel_id"]: row["auth_ref"] for row in await take_now(pool)} == {"a": "bot", "b": "new"}


async def test_who_breaks_a_rotation_off_leaves_no_pause_behind(shop: Autopost, pool: Pool) -> None:
    await push_now(pool, "one")
    await take_now(pool)
    task = await rotating(pool)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [row["paused_until"] for row in await shop.sql("select paused_until from autopost.channels")] == [None, None]
    assert await shop.events("auth_rotated") == []


async def test_in_a_crowd_each_requeued_delivery_goes_out_once(autopost: Autopost, crowd: Crowd, pool: Pool) -> None:
    """Operators requeue what dispatchers let die, again and again; nothing is lost, and nothing begins that nobody asked for."""
    await autopost.policy(max_attempts=1)
    for n in range(3):
        await autopost.channel(f"c{n}", max_parallel=3)
    await push_now(pool, *(f"post {n}" for n in range(8)))

    async def dispatch() -> None:
        rows = await take_now(pool, 5)
        await settle_now(pool, [failed(row, "500") if row["attempt"] < 3 else sent(row) for row in rows])

    async def bring_back(hand: Any) -> None:
        await hand.sql("select * from autopost.requeue_deliveries('w', 'olga', 'drill', array("
                       "select delivery_id from autopost.deliveries where status = 'dead'))")  # fmt: skip

    hands = await crowd.hands(2)
    while await autopost.statuses() != {"sent": 24}:
        await asyncio.gather(*(dispatch() for _ in range(3)), *(bring_back(hand) for hand in hands))
    assert {row["attempt"] for row in await autopost.deliveries()} == {3}
    assert len(await autopost.events("manual_requeue")) == 48
    assert await violations(autopost.connection, "w") == []
