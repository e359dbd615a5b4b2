"""What happens when two do it at once. Every test here has real connections that really meet."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from crowd import Crowd, deadlocks, failed, push_now, sent, settle_now, take_now, until

from queue_audit import violations
from vestnik.autopost.housekeeping import ensure_event_partitions
from vestnik.db.pool import Pool, call, make_pool

pytestmark = pytest.mark.pg16


# Pushes


async def test_two_pushes_of_one_content_make_one_delivery_per_channel(autopost: Any, crowd: Crowd) -> None:
    await autopost.channel("a")
    await autopost.channel("b")
    first, second = await crowd.hands(2)
    async with first.connection.transaction():
        await first.push("hello")
        repetition = await crowd.blocked(second, second.push("hello"))
    assert (await repetition)["suppressed"] == 2
    assert await autopost.statuses() == {"queued": 2, "deduped": 2}


async def test_crossing_batches_of_one_content_never_make_two(autopost: Any, crowd: Crowd) -> None:
    """Batches lock their messages in hash order, so opposite orders neither deadlock nor slip past each other."""
    await autopost.channel("a")
    await autopost.channel("b")
    hands = await crowd.hands(4)
    for round_ in range(15):
        posts = [{"text": f"post {round_} {n}"} for n in range(6)]
        orders = [posts, posts[::-1], posts[3:] + posts[:3], posts[::-1]]
        await asyncio.gather(*(hand.push_batch(*order) for hand, order in zip(hands, orders, strict=True)))
    twice = await autopost.sql(
        "select channel_id from autopost.deliveries where status = 'queued'"
        " group by channel_id, content_hash having count(*) > 1"
    )
    assert twice == []
    assert await autopost.statuses() == {"queued": 15 * 6 * 2, "deduped": 15 * 6 * 2 * 3}


@pytest.mark.parametrize(
    "post", [{"text": "hello"}, {"text": "hello", "source_ref": "cms-1"}], ids=["by hash", "by source_ref"]
)
async def test_of_many_identical_requests_exactly_one_passes_the_gate(
    autopost: Any, crowd: Crowd, post: dict[str, Any]
) -> None:
    await autopost.channel("a")
    door = await autopost.endpoint()
    hands = await crowd.hands(32)
    answers = await asyncio.gather(*(hand.push_batch(post, endpoint=door, gated=True) for hand in hands))
    outcomes = [answer["outcome"] for batch in answers for answer in batch]
    assert sorted(outcomes) == ["accepted"] + ["duplicate"] * 31
    assert await autopost.statuses() == {"queued": 1}


@pytest.mark.parametrize(
    "post", [{"text": "hello"}, {"text": "hello", "source_ref": "cms-1"}], ids=["by hash", "by source_ref"]
)
async def test_a_request_that_meets_its_twin_under_way_waits_and_is_a_repetition(
    autopost: Any, crowd: Crowd, post: dict[str, Any]
) -> None:
    await autopost.channel("a")
    # A workspace's first row of rules is a lock of its own.
    await autopost.sql("select autopost.policy_of('w')")
    door = await autopost.endpoint()
    first, second = await crowd.hands(2)
    async with first.connection.transaction():
        await first.push_batch(post, endpoint=door, gated=True)
        answer = await crowd.blocked(second, second.push_batch(post, endpoint=door, gated=True))
    assert [row["outcome"] for row in await answer] == ["duplicate"]
    assert await autopost.value("select count(*) from autopost.ingress_receipts") == 1


async def test_a_request_whose_twin_fails_is_not_taken_for_a_repetition(autopost: Any, crowd: Crowd) -> None:
    """The receipt is written in the transaction of the enqueue: when that is rolled back, so is the receipt."""
    await autopost.channel("a")
    door = await autopost.endpoint()
    first, second = await crowd.hands(2)
    post = {"text": "hello", "source_ref": "cms-1"}
    async with first.connection.transaction(force_rollback=True):
        await first.push_batch(post, endpoint=door, gated=True)
        answer = await crowd.blocked(second, second.push_batch(post, endpoint=door, gated=True))
    assert [row["outcome"] for row in await answer] == ["accepted"]


async def test_fan_out_does_not_wait_for_a_channel_that_is_being_worked_on(autopost: Any, crowd: Crowd) -> None:
    """NO KEY UPDATE on channels lets a foreign key's KEY SHARE pass: with FOR UPDATE this push would hang."""
    await autopost.channel("a", rate_rps=1)
    await autopost.push("first")
    dispatcher, sender = await crowd.hands(2)
    async with dispatcher.connection.transaction():
        assert await dispatcher.take()
        async with asyncio.timeout(5):
            assert (await sender.push("second"))["enqueued"] == 1
    async with sender.connection.transaction():
        await sender.push("third")
        async with asyncio.timeout(5):
            await dispatcher.claim()
            await dispatcher.sweep()
    assert await autopost.statuses() == {"sending": 1, "claimed": 1, "queued": 1}


# Claims and begins


async def test_two_that_begin_at_once_share_the_last_place(autopost: Any, crowd: Crowd) -> None:
    await autopost.channel("a", max_parallel=1)
    await autopost.push_batch({"text": "one"}, {"text": "two"})
    await autopost.claim()
    first, second = await crowd.hands(2)
    async with first.connection.transaction():
        assert len(await first.begin()) == 1
        late = await crowd.blocked(second, second.begin(run="run-2"))
    assert await late == []
    assert await autopost.statuses() == {"sending": 1, "claimed": 1}


async def test_two_that_claim_at_once_never_claim_the_same(autopost: Any, crowd: Crowd) -> None:
    await autopost.policy(claim_per_channel=3)
    await autopost.channel("a")
    await autopost.push_batch(*({"text": f"post {n}"} for n in range(5)))
    first, second = await crowd.hands(2)
    async with first.connection.transaction():
        claimed = await first.claim()
        other = await crowd.blocked(second, second.claim(run="run-2"))
    assert len(claimed) == 3
    assert await other == [], "what is claimed counts against the most that a channel may have"


async def test_a_pause_that_commits_first_wins_over_a_begin(autopost: Any, crowd: Crowd) -> None:
    await autopost.channel("a")
    await autopost.push("hello")
    await autopost.claim()
    operator, dispatcher = await crowd.hands(2)
    async with operator.connection.transaction():
        await operator.sql("update autopost.channels set paused_until = %s", autopost.now + timedelta(hours=1))
        late = await crowd.blocked(dispatcher, dispatcher.begin())
    assert await late == []
    assert await autopost.statuses() == {"claimed": 1}


@pytest.mark.parametrize("call", ["claim", "take"])
async def test_a_pause_that_commits_first_wins_over_a_claim(autopost: Any, crowd: Crowd, call: str) -> None:
    await autopost.channel("a", rate_rps=10)
    await autopost.push("hello")
    operator, dispatcher = await crowd.hands(2)
    async with operator.connection.transaction():
        await operator.sql("update autopost.channels set paused_until = %s", autopost.now + timedelta(hours=1))
        late = await crowd.blocked(dispatcher, getattr(dispatcher, call)())
    assert await late == []
    assert await autopost.statuses() == {"queued": 1}


async def test_who_waited_for_a_lock_begins_by_the_time_it_is_then(autopost: Any, crowd: Crowd, pool: Pool) -> None:
    """A begin that was asked for before a long wait must not be booked at the time of asking: the next one, a step
    after that, would go out at the same moment."""
    await autopost.channel("a", rate_rps=4, max_parallel=9)
    await push_now(pool, "one", "two")
    begin = "select * from autopost.claim_and_begin('w', 'run', 10)"
    first, holder = await crowd.hands(2)
    async with holder.connection.transaction():
        await holder.sql("select autopost.lock_channels('w', array['a'])")
        waiting = await crowd.blocked(first, first.sql(begin))
        await holder.sql("select pg_sleep(0.5)")
    assert len(await waiting) == 1
    assert await autopost.sql(begin) == []


@pytest.mark.parametrize(
    ("call", "column"), [("claim_deliveries", "claimed_at"), ("begin_sending", "sending_started_at")]
)
async def test_the_calls_of_the_specification_go_by_the_time_after_the_wait_too(
    autopost: Any, crowd: Crowd, pool: Pool, call: str, column: str
) -> None:
    await autopost.channel("a", rate_rps=4)
    await push_now(pool, "one")
    if call == "begin_sending":
        await autopost.sql("select autopost.claim_deliveries('w', 'run')")
    first, holder = await crowd.hands(2)
    async with holder.connection.transaction():
        await holder.sql("select autopost.lock_channels('w', array['a'])")
        waiting = await crowd.blocked(first, first.sql(f"select * from autopost.{call}('w', 'run')"))
        released = await holder.value("select clock_timestamp()")
    assert len(await waiting) == 1
    (row,) = await autopost.deliveries()
    assert row[column] >= released


async def test_the_first_use_of_a_group_by_many_at_once(autopost: Any, crowd: Crowd) -> None:
    hands = await crowd.hands(8)
    for round_ in range(5):
        for n in range(3):
            await autopost.channel(f"c{round_}{n}", rate_rps=1, rate_group=f"g{round_}{n}")
        await autopost.push(f"post {round_}")
        await asyncio.gather(*(hand.take(run=f"run-{n}") for n, hand in enumerate(hands)))
    groups = await autopost.value("select count(*) from autopost.platform_limits")
    assert groups == 15
    begun = await autopost.sql(
        "select channel_id from autopost.events where action = 'send_attempt' group by 1 having count(*) <> 1"
    )
    assert begun == []


async def test_the_first_use_of_a_policy_by_many_at_once(autopost: Any, crowd: Crowd) -> None:
    hands = await crowd.hands(8)
    policies = await asyncio.gather(*(hand.sql("select (autopost.policy_of('w')).*") for hand in hands))
    assert all(row == policies[0] for row in policies)
    assert policies[0][0]["max_attempts"] == 5


# Groups that change meanwhile


@pytest.fixture
async def shared(autopost: Any, pool: Pool) -> Any:
    """Channel ``a`` is alone, ``b`` is in a group that begins now and then; a post waits for both."""
    await autopost.sql("insert into autopost.platform_limits values ('w', 'telegram', 'shared', 0.01)")
    await autopost.channel("a")
    await autopost.channel("b", rate_group="shared", enabled=False)
    await push_now(pool, "hello")
    return autopost


MOVED = "update autopost.channels set rate_group = 'shared' where channel_id = 'a'"
GROUP = "select from autopost.platform_limits where rate_group = 'shared' for no key update "


async def test_a_claim_that_waited_while_the_group_changed_holds_the_new_one(shared: Any, crowd: Crowd) -> None:
    await shared.sql(
        "update autopost.platform_limits set rate_rps = null"
    )  # or the begin locks it by what it writes there
    operator, dispatcher, other = await crowd.hands(3)
    await operator.sql("begin")
    await operator.sql(MOVED)
    await dispatcher.sql("begin")
    claiming = await crowd.blocked(dispatcher, dispatcher.sql("select * from autopost.claim_and_begin('w', 'run', 9)"))
    await operator.sql("commit")
    assert [row["rate_group"] for row in await claiming] == ["shared"]
    assert await other.sql(GROUP + "skip locked") == []
    await dispatcher.sql("commit")


async def test_a_claim_does_not_wait_out_of_order_for_a_group_that_changed(
    shared: Any, crowd: Crowd, pool: Pool
) -> None:
    """Somebody has the new group, and may be waiting for the channel: the claim lets go of everything, and starts over."""
    operator, holder = await crowd.hands(2)
    before = await deadlocks(pool)
    await holder.sql("begin")
    await holder.sql(GROUP)
    await operator.sql("begin")
    await operator.sql(MOVED)
    claiming = asyncio.create_task(take_now(pool))
    waits = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like '%%claim_and_begin%%'"
    await until(pool, waits)
    await operator.sql("commit")
    await until(
        pool, f"select 1 from pg_stat_activity where {holder.connection.info.backend_pid} = any (pg_blocking_pids(pid))"
    )
    async with asyncio.timeout(5):
        await holder.sql("select from autopost.channels where channel_id = 'a' for no key update")
    await holder.sql(
        "update autopost.platform_limits set last_begin_at = clock_timestamp() where rate_group = 'shared'"
    )
    await holder.sql("commit")
    rows = await claiming
    assert await deadlocks(pool) == before
    assert rows == [], "the group began only just now"
    await shared.sql("update autopost.platform_limits set rate_rps = null")
    assert len(await take_now(pool)) == 1


# Results


async def test_two_channels_of_a_group_that_hear_429_at_once_cool_it(autopost: Any, crowd: Crowd) -> None:
    """The second must see what the first has noted of the group, or each of them is a first."""
    await autopost.channel("a")
    await autopost.channel("b")
    await autopost.push("hello")
    rows = {row["channel_id"]: row for row in await autopost.take()}
    first, second = await crowd.hands(2)
    limited = {"scope": "platform", "code": "429", "retry_after_ms": 30000}
    async with first.connection.transaction():
        await first.retry(rows["a"]["delivery_id"], limited, rows["a"]["lease"])
        answer = await crowd.blocked(second, second.retry(rows["b"]["delivery_id"], limited, rows["b"]["lease"]))
    assert await answer == "retry"
    assert await autopost.value("select cooldown_until from autopost.platform_limits") > autopost.now


async def test_a_success_that_waited_for_the_sweep_still_settles(autopost: Any, crowd: Crowd) -> None:
    row = await begun(autopost)
    autopost.wait(minutes=6)
    sweeper, sender = await crowd.hands(2)
    async with sweeper.connection.transaction():
        assert await sweeper.sweep() == (1, 0)
        result = await crowd.blocked(sender, sender.sent(row["delivery_id"], row["lease"]))
    assert await result == "sent"
    assert await violations(autopost.connection, "w") == []


async def test_a_failure_that_waited_for_the_sweep_is_late(autopost: Any, crowd: Crowd) -> None:
    row = await begun(autopost)
    autopost.wait(minutes=6)
    sweeper, sender = await crowd.hands(2)
    async with sweeper.connection.transaction():
        await sweeper.sweep()
        result = await crowd.blocked(sender, sender.fail(row["delivery_id"], lease=row["lease"]))
    assert await result == "late"
    assert (await autopost.delivery(row["delivery_id"]))["status"] == "retry"
    assert await violations(autopost.connection, "w") == []


async def test_the_sweep_leaves_alone_what_is_being_settled(autopost: Any, crowd: Crowd) -> None:
    row = await begun(autopost)
    autopost.wait(minutes=6)
    sweeper, sender = await crowd.hands(2)
    async with sender.connection.transaction():
        assert await sender.sent(row["delivery_id"], row["lease"]) == "sent"
        async with asyncio.timeout(5):
            assert await sweeper.sweep() == (0, 0)
    assert await violations(autopost.connection, "w") == []


async def test_one_result_reported_by_many_settles_once(autopost: Any, crowd: Crowd) -> None:
    row = await begun(autopost)
    hands = await crowd.hands(8)
    outcomes = await asyncio.gather(*(hand.sent(row["delivery_id"], row["lease"]) for hand in hands))
    assert sorted(outcomes) == ["duplicate"] * 7 + ["sent"]
    assert len(await autopost.events("sent")) == 1


async def test_success_and_failure_of_one_send_at_once_agree_on_one(autopost: Any, crowd: Crowd) -> None:
    row = await begun(autopost)
    first, second = await crowd.hands(2)
    async with first.connection.transaction():
        assert await first.retry(row["delivery_id"], lease=row["lease"]) == "retry"
        result = await crowd.blocked(second, second.sent(row["delivery_id"], row["lease"]))
    assert await result == "late", "the failure was taken for the truth, and may have been acted upon"
    assert await violations(autopost.connection, "w") == []


async def test_results_of_the_same_deliveries_lock_them_in_order(autopost: Any, crowd: Crowd) -> None:
    """Whoever waits for one delivery holds none that comes after it, awaited or not."""
    await autopost.channel("a", max_parallel=2)
    await autopost.push_batch({"text": "one"}, {"text": "two"})
    lower, upper = sorted(await autopost.take(), key=lambda row: row["delivery_id"])
    await autopost.sql("update autopost.deliveries set lease = 2 where delivery_id = %s", lower["delivery_id"])
    other, sender = await crowd.hands(2)
    async with other.connection.transaction():
        assert await other.sent(lower["delivery_id"], 2) == "sent"
        waiting = await crowd.blocked(sender, sender.settle(sent(upper), sent(lower)))
        async with asyncio.timeout(5):
            assert await other.sent(upper["delivery_id"], upper["lease"]) == "sent"
    assert await waiting == {lower["delivery_id"]: "late", upper["delivery_id"]: "duplicate"}


async def test_a_success_forgives_no_channel_that_it_has_not_locked(autopost: Any, crowd: Crowd) -> None:
    """Its refusals came after the locks were taken: to wait for the channel now would be out of order."""
    row = await begun(autopost)
    holder, sender, operator = await crowd.hands(3)
    async with holder.connection.transaction():
        await holder.sql("savepoint before")
        await holder.sql("select from autopost.deliveries for no key update")
        waiting = await crowd.blocked(sender, sender.sent(row["delivery_id"], row["lease"]))
        await operator.sql("update autopost.channels set error_streak = 1")
        async with operator.connection.transaction():
            await operator.sql("select autopost.lock_channels('w', array['a'])")
            await holder.sql("rollback to before")
            async with asyncio.timeout(5):
                assert await waiting == "sent"
    assert (await autopost.channel_row("a"))["error_streak"] == 1


async def test_claims_that_are_being_decided_about_do_not_hold_up_a_cooldown(autopost: Any, crowd: Crowd) -> None:
    await autopost.channel("a", rate_rps=1)
    await autopost.push_batch({"text": "one"}, {"text": "two"})
    (row,) = await autopost.take()
    operator, sender = await crowd.hands(2)
    async with operator.connection.transaction():
        await operator.sql("select from autopost.deliveries where status = 'claimed' for no key update")
        async with asyncio.timeout(5):
            assert (
                await sender.retry(row["delivery_id"], {"code": "429", "retry_after_ms": 9000}, row["lease"]) == "retry"
            )
    assert await autopost.statuses() == {"retry": 1, "claimed": 1}
    assert await autopost.take() == [], "the cooldown holds what is still claimed"


async def test_crossing_batches_of_results_do_not_deadlock(autopost: Any, pool: Pool) -> None:
    for n in range(6):
        await autopost.channel(f"c{n}", max_parallel=9, rate_group=f"g{5 - n}")
    before = await deadlocks(pool)
    for round_ in range(10):
        await push_now(pool, f"post {round_}")
        rows = await take_now(pool)
        await asyncio.gather(
            settle_now(pool, [failed(row, "429") for row in rows]),
            settle_now(pool, [sent(row) for row in rows[::-1]]),
            settle_now(pool, [failed(row, "403", scope="channel") for row in rows[::2]]),
        )
        await call(pool, "update autopost.channels set paused_until = null, enabled = true, cooldown_until = null")
        await call(pool, "update autopost.platform_limits set cooldown_until = null")
    assert await deadlocks(pool) == before
    assert await violations(autopost.connection, "w") == []


# The calendar


async def test_the_days_of_the_event_log_are_made_once(pool: Pool, database: str) -> None:
    await call(pool, "select autopost.ensure_event_partitions()")
    days = "select count(*) as n from pg_inherits where inhparent = 'autopost.events'::regclass"
    before = (await call(pool, days))[0]["n"]
    async with make_pool(database) as other:
        later = "select autopost.ensure_event_partitions(now() + interval '40 days') as made"
        made = await asyncio.gather(*(call(p, later) for p in [pool, other] * 4))
    assert sum(row["made"] for rows in made for row in rows) == 16
    assert (await call(pool, days))[0]["n"] == before + 16


async def test_making_days_gives_way_to_a_long_reader(autopost: Any, crowd: Crowd, pool: Pool) -> None:
    """It tries again rather than queue the writers of events behind itself."""
    reader, writer = await crowd.hands(2)
    await autopost.sql("drop table if exists autopost.events_20270301")
    async with reader.connection.transaction():
        await reader.sql("lock table autopost.events in share mode")
        making = asyncio.ensure_future(ensure_event_partitions(pool))
        await until(
            pool, "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like '%%ensure_event%%'"
        )
    assert await making >= 0
    await autopost.channel("a")
    assert (await writer.push("hello"))["enqueued"] == 1


async def begun(autopost: Any) -> Any:
    """One delivery, being sent."""
    await autopost.channel("a")
    await autopost.push("hello")
    return (await autopost.take())[0]
