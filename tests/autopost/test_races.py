"""What happens when two do it at once. Every test here has real connections that really meet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from bedlam import Bedlam
from crowd import Crowd, begins_too_close, deadlocks, failed, for_seconds, push_now, sent, settle_now, take_now, until
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from queue_audit import violations

from vestnik.autopost.housekeeping import ensure_event_partitions
from vestnik.db.embedded import EmbeddedServer
from vestnik.db.embedded.place import ROLE
from vestnik.db.pool import Pool, call, make_pool

pytestmark = pytest.mark.pg16


@pytest.fixture
async def crowd(database: str, autopost: Any) -> AsyncIterator[Crowd]:
    crowd = Crowd(database, autopost)
    yield crowd
    await crowd.close()


@pytest.fixture
async def impatient_pool(server: EmbeddedServer, database: str) -> AsyncIterator[Pool]:
    """Connections that look for a deadlock after 20 ms instead of a second, so that more happens in the same time."""
    with psycopg.connect(server.superuser_url, autocommit=True) as admin:
        admin.execute(sql.SQL("alter role {} in database {} set deadlock_timeout = '20ms'").format(
            sql.Identifier(ROLE), sql.Identifier(conninfo_to_dict(database)["dbname"])))  # fmt: skip
    async with make_pool(database, max_size=20) as pool:
        yield pool


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
        "select from autopost.deliveries where status = 'queued' group by channel_id, content_hash having count(*) > 1"
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


async def test_a_request_whose_twin_fails_is_not_taken_for_a_repetition(autopost: Any, crowd: Crowd) -> None:
    """The receipt is written in the transaction of the enqueue: when that is rolled back, so is the receipt."""
    await autopost.channel("a")
    door = await autopost.endpoint()
    first, second = await crowd.hands(2)
    post = {"text": "hello", "source_ref": "cms-1"}
    with pytest.raises(ConnectionResetError):
        async with first.connection.transaction():
            await first.push_batch(post, endpoint=door, gated=True)
            answer = await crowd.blocked(second, second.push_batch(post, endpoint=door, gated=True))
            raise ConnectionResetError
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


async def test_many_dispatchers_stay_within_places_and_pace(autopost: Any, crowd: Crowd, pool: Pool) -> None:
    await autopost.channel("narrow", max_parallel=2)
    await autopost.channel("paced", rate_rps=25, max_parallel=9)
    for n in range(3):
        await autopost.channel(f"shared{n}", rate_group="shared", max_parallel=9)
    await autopost.sql("insert into autopost.platform_limits values ('w', 'telegram', 'shared', 20)")
    await push_now(pool, *(f"post {n}" for n in range(80)))
    crowded: list[Any] = []

    async def look() -> None:
        crowded.extend(
            await call(
                pool,
                """
            select d.channel_id, count(*) from autopost.deliveries d join autopost.channels c using (workspace_id, channel_id)
            where d.status = 'sending' group by d.channel_id, c.max_parallel having count(*) > c.max_parallel""",
            )
        )

    async def dispatch() -> None:
        rows = await take_now(pool, 10)
        await settle_now(pool, [sent(row) for row in rows])

    await for_seconds(2, look, *[dispatch] * 5)

    assert crowded == []
    assert await begins_too_close(autopost, "e.channel_id = 'paced'", 1 / 25) == []
    assert await begins_too_close(autopost, "e.channel_id like 'shared%%'", 1 / 20) == []
    counts = await autopost.sql(
        "select channel_id, count(*) as n from autopost.events where action = 'sent' group by 1"
    )
    reached = {row["channel_id"]: row["n"] for row in counts}
    assert reached["narrow"] == 80
    assert reached["paced"] > 25
    assert sum(reached[f"shared{n}"] for n in range(3)) > 20
    assert await violations(autopost.connection, "w") == []


async def test_dispatchers_of_mixed_groups_do_not_deadlock(autopost: Any, pool: Pool) -> None:
    """Paced and unpaced channels of many groups, in an order that crosses that of the groups."""
    for n in range(12):
        await autopost.channel(f"c{n:02}", rate_group=f"g{11 - n:02}", max_parallel=3, rate_rps=[None, 200][n % 2])
    await push_now(pool, *(f"post {n}" for n in range(40)))

    async def dispatch() -> None:
        rows = await take_now(pool, 7)
        await settle_now(pool, [failed(row, "500") for row in rows[::2]] + [sent(row) for row in rows[1::2]])

    before = await deadlocks(pool)
    await for_seconds(2, *[dispatch] * 6)
    assert await deadlocks(pool) == before


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


# Results


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


# Everybody at once


async def test_everything_at_once_keeps_every_promise(autopost: Any, impatient_pool: Pool) -> None:
    """Claims, results, sweeps, pushes, and an operator with the runbook in hand. Deadlocks may come only as what is
    repeated by ``call``; nothing may be lost, doubled, or without its event."""
    await autopost.policy(sending_lease="30 milliseconds", claimed_lease="30 milliseconds", backoff_base="5 milliseconds",
                          expired_send_backoff="5 milliseconds", pause_on_permanent_for="10 milliseconds",
                          disable_after_permanent_streak=1000, max_attempts=3, platform_cooldown_for="5 milliseconds")  # fmt: skip
    for n in range(8):
        await autopost.channel(
            f"c{n}", max_parallel=2, rate_group=f"g{n % 3}", rate_rps=[None, 100][n % 2], dedup_ttl_hours=1
        )
    world = Bedlam(impatient_pool)
    rounds = await for_seconds(
        4,
        *[world.dispatch] * 3,
        world.forget,
        world.push,
        world.sweep,
        world.requeue,
        world.release,
        world.pause,
        world.disable,
    )
    print(rounds, await deadlocks(impatient_pool))
    assert all(rounds)
    assert world.begun > 100
    await world.calm()
    assert await violations(autopost.connection, "w") == []
    assert set(await autopost.statuses()) <= {"sent", "dead", "failed_permanent", "deduped"}


# Ingress, and the calendar


async def test_two_doorkeepers_let_in_no_more_than_one_would(autopost: Any, crowd: Crowd) -> None:
    await autopost.endpoint(ingress_rps=40)
    hands = await crowd.hands(2)
    admitted = 0

    def knock(hand: Any) -> Any:
        async def knock_once() -> None:
            nonlocal admitted
            passed = await hand.value("select autopost.ingress_admit('w', 'door', 3)")
            admitted += passed

        return knock_once

    began = await autopost.value("select clock_timestamp()")
    await for_seconds(1.5, *(knock(hand) for hand in hands))
    lasted = (await autopost.value("select clock_timestamp()") - began).total_seconds()
    assert 40 * 1.5 * 0.8 < admitted <= 40 * lasted + 40


async def test_the_days_of_the_event_log_are_made_once(pool: Pool, database: str) -> None:
    await call(pool, "select autopost.ensure_event_partitions()")
    days = "select count(*) as n from pg_inherits where inhparent = 'autopost.events'::regclass"
    before = (await call(pool, days))[0]["n"]
    async with make_pool(database) as other:
        made = await asyncio.gather(*(
            call(p, "select autopost.ensure_event_partitions(now() + interval '40 days') as made") for p in [pool, other] * 4
        ))  # fmt: skip
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
