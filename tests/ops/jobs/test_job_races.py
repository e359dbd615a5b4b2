"""What happens when two do it at once. Every test here has real connections that really meet."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from uuid import UUID

import psycopg
import pytest
from job_rig import Hands, Jobs, Row
from psycopg.types.json import Jsonb

pytestmark = pytest.mark.pg16


async def test_two_that_claim_at_once_never_get_the_same_job(jobs: Jobs, hands: Hands) -> None:
    await jobs.enqueue_all(*({"kind": "work"} for _ in range(300)))
    claimed: list[UUID] = []

    async def take(hand: Jobs) -> None:
        while rows := await hand.claim(7):
            claimed.extend(row["job_id"] for row in rows)

    await asyncio.gather(*(take(hand) for hand in await hands.take(6)))
    assert len(claimed) == len(set(claimed)) == 300


async def test_who_would_wait_for_a_job_takes_the_next_one(jobs: Jobs, hands: Hands) -> None:
    await jobs.enqueue_all({"kind": "work"}, {"kind": "work"})
    first, second = await hands.take(2)
    async with first.connection.transaction():
        (one,) = await first.claim(1)
        async with asyncio.timeout(5):
            (other,) = await second.claim(1)
    assert one["job_id"] != other["job_id"]


async def test_two_claims_of_a_kind_with_one_place_share_it(jobs: Jobs, hands: Hands) -> None:
    await jobs.kind(concurrency=1)
    await jobs.enqueue_all({"kind": "work"}, {"kind": "work"})
    first, second = await hands.take(2)
    async with first.connection.transaction():
        assert len(await first.claim()) == 1
        late = await hands.blocked(second, second.claim())
    assert await late == []


async def test_a_kind_that_was_idle_when_places_were_locked_is_not_counted_without_its_lock(
    jobs: Jobs, hands: Hands
) -> None:
    """Its jobs arrive between the lock and the count: each of two runners would find its only place free."""
    await jobs.kind("narrow", concurrency=1)
    for kind in ("slow.a", "slow.b"):
        await jobs.kind(kind, concurrency=1)
        await jobs.enqueue(kind)
    first, second, *keepers = await hands.take(4)
    lock = "select from ops.job_kinds where workspace_id = %s and kind = %s for no key update"
    async with first.connection.transaction():
        async with keepers[1].connection.transaction():
            async with keepers[0].connection.transaction():
                for keeper, kind in zip(keepers, ("slow.a", "slow.b"), strict=True):
                    await keeper.sql(lock, jobs.workspace, kind)
                one = await hands.blocked(first, first.claim(kinds=["narrow", "slow.a"]))
                other = await hands.blocked(second, second.claim(kinds=["narrow", "slow.b"]))
                await jobs.enqueue_all({"kind": "narrow"}, {"kind": "narrow"})
            rows = await one
        async with asyncio.timeout(5):
            rows += await other
    claimed = [row["kind"] for row in rows] + [row["kind"] for row in await jobs.claim(kinds=["narrow"])]
    assert claimed.count("narrow") == 1


async def test_many_runners_never_run_more_of_a_kind_than_its_limit(jobs: Jobs, hands: Hands) -> None:
    """Counted from the answer to a claim until the result is sent: in the database it runs even longer."""
    await jobs.kind("narrow", concurrency=3)
    await jobs.enqueue_all(*({"kind": "narrow"} for _ in range(120)), *({"kind": "work"} for _ in range(60)))

    running: set[UUID] = set()
    most = 0

    async def work(hand: Jobs, worker: str) -> None:
        nonlocal most
        while await hand.sql(_LEFT, jobs.workspace):
            rows = await hand.claim(5, ["narrow", "work"], worker)
            running.update(row["job_id"] for row in rows if row["kind"] == "narrow")
            most = max(most, len(running))
            for row in rows:
                running.discard(row["job_id"])
                await hand.came_to(row)

    async with asyncio.timeout(60):
        await asyncio.gather(*(work(hand, f"runner-{n}") for n, hand in enumerate(await hands.take(8))))
    assert most == 3
    assert await jobs.statuses() == {"done": 180}


_LEFT = "select 1 from ops.jobs where workspace_id = %s and status in ('waiting', 'retry', 'running') limit 1"


def _done(row: Row) -> Row:
    return {"job_id": str(row["job_id"]), "lease": row["lease"], "outcome": "done"}


async def test_two_that_enqueue_one_key_make_one_job(jobs: Jobs, hands: Hands) -> None:
    first, second = await hands.take(2)
    async with first.connection.transaction():
        (made,) = await first.enqueue_all({"kind": "work", "unique_key": "k"})
        late = await hands.blocked(second, second.enqueue_all({"kind": "work", "unique_key": "k"}))
    (found,) = await late
    assert (found["job_id"], found["is_new"]) == (made["job_id"], False)
    assert await jobs.statuses() == {"waiting": 1}


async def test_who_waited_for_a_key_that_was_rolled_back_makes_the_job(jobs: Jobs, hands: Hands) -> None:
    first, second = await hands.take(2)
    async with first.connection.transaction(force_rollback=True):
        await first.enqueue_all({"kind": "work", "unique_key": "k"})
        late = await hands.blocked(second, second.enqueue_all({"kind": "work", "unique_key": "k"}))
    assert [row["is_new"] for row in await late] == [True]


async def test_crossing_batches_of_keys_neither_deadlock_nor_make_two(jobs: Jobs, hands: Hands) -> None:
    crowd = await hands.take(4)
    for round_ in range(15):
        wanted = [{"kind": "work", "unique_key": f"{round_}-{n}"} for n in range(6)]
        orders = [wanted, wanted[::-1], wanted[3:] + wanted[:3], wanted[::-1]]
        answers = await asyncio.gather(*(hand.enqueue_all(*order) for hand, order in zip(crowd, orders, strict=True)))
        assert sum(row["is_new"] for rows in answers for row in rows) == 6
    assert await jobs.statuses() == {"waiting": 15 * 6}


async def test_a_key_is_given_back_and_taken_while_many_ask_for_it(jobs: Jobs, hands: Hands) -> None:
    """Enqueues that meet the end of the job which held the key get either that one or a new one, and never nothing."""
    *askers, worker = await hands.take(5)
    ended = asyncio.Event()
    answers: list[Row] = []

    async def ask(hand: Jobs) -> None:
        while not ended.is_set():
            answers.extend(await hand.enqueue_all({"kind": "work", "unique_key": "k"}))

    async def work() -> None:
        for _ in range(60):
            for row in await worker.claim():
                await worker.came_to(row)
        ended.set()

    async with asyncio.timeout(60):
        await asyncio.gather(work(), *(ask(hand) for hand in askers))
    assert all(row["job_id"] for row in answers)
    made = [row["job_id"] for row in answers if row["is_new"]]
    assert len(made) == len(set(made)) == sum((await jobs.statuses()).values())
    assert len(made) > 3, "the key changed hands"


async def test_a_success_that_waited_for_the_sweep_still_counts(jobs: Jobs, hands: Hands) -> None:
    row = await jobs.begun()
    jobs.wait(minutes=2)
    sweeper, runner = await hands.take(2)
    async with sweeper.connection.transaction():
        assert await sweeper.sweep() == 1
        result = await hands.blocked(runner, runner.came_to(row))
    assert await result == "done"
    assert await jobs.outcomes(row["job_id"]) == ["done"]


async def test_a_failure_that_waited_for_the_sweep_is_late(jobs: Jobs, hands: Hands) -> None:
    row = await jobs.begun()
    jobs.wait(minutes=2)
    sweeper, runner = await hands.take(2)
    async with sweeper.connection.transaction():
        await sweeper.sweep()
        result = await hands.blocked(runner, runner.came_to(row, "failed"))
    assert await result == "late"
    assert await jobs.statuses() == {"retry": 1}


async def test_the_sweep_leaves_alone_what_is_being_settled(jobs: Jobs, hands: Hands) -> None:
    row = await jobs.begun()
    jobs.wait(minutes=2)
    sweeper, runner = await hands.take(2)
    async with runner.connection.transaction():
        assert await runner.came_to(row) == "done"
        async with asyncio.timeout(5):
            assert await sweeper.sweep() == 0
    assert await jobs.outcomes(row["job_id"]) == ["done"]


async def test_a_sign_of_life_waits_for_nobody(jobs: Jobs, hands: Hands) -> None:
    """What somebody else has in hand at the moment is neither prolonged nor called lost; the others are."""
    row, other = await jobs.begun(), await jobs.begun()
    jobs.wait(seconds=40)
    person, runner = await hands.take(2)
    async with person.connection.transaction():
        await person.cancel(row["job_id"])
        async with asyncio.timeout(5):
            assert await runner.beat(row, other) == {}
    jobs.wait(seconds=30)
    assert (await jobs.job(other["job_id"]))["lease_until"] > jobs.now
    assert await jobs.sweep() == 1
    assert await jobs.beat(row, other) == {(row["job_id"], 1): "lost"}


async def test_a_cancel_that_waited_for_the_end_is_refused(jobs: Jobs, hands: Hands) -> None:
    row = await jobs.begun()
    runner, person = await hands.take(2)
    async with runner.connection.transaction():
        await runner.came_to(row)
        late = await hands.blocked(person, person.cancel(row["job_id"]))
    with pytest.raises(psycopg.Error, match="there is nothing to cancel"):
        await late


async def test_one_result_reported_by_many_counts_once(jobs: Jobs, hands: Hands) -> None:
    row = await jobs.begun()
    made = await asyncio.gather(*(hand.came_to(row, "failed") for hand in await hands.take(8)))
    assert sorted(made) == ["dead"] + ["repeat"] * 7
    assert len(await jobs.errors()) == 1


async def test_crossing_batches_of_results_and_signs_of_life_do_not_deadlock(jobs: Jobs, hands: Hands) -> None:
    crowd = await hands.take(4)
    for _ in range(10):
        await jobs.enqueue_all(*({"kind": "work"} for _ in range(20)))
        rows = sorted(await jobs.claim(), key=lambda row: row["job_id"])
        await asyncio.gather(
            crowd[0].settle(*(_done(row) for row in rows)),
            crowd[1].settle(*(_done(row) for row in rows[::-1])),
            crowd[2].beat(*rows[::-1]),
            crowd[3].beat(*rows),
        )
    assert await jobs.statuses() == {"done": 200}


async def test_a_tick_fires_once_however_many_see_it(jobs: Jobs, hands: Hands) -> None:
    crowd = await hands.take(8)
    await _every_hour(jobs)
    for _ in range(10):
        tick, following = jobs.now + timedelta(hours=1), jobs.now + timedelta(hours=2)
        jobs.wait(hours=1)
        fired = await asyncio.gather(
            *(
                hand.value(
                    "select ops.fire_schedule(%s, 's', %s, %s, array[%s::timestamptz], %s)",
                    jobs.workspace, tick, following, tick, jobs.now,
                )
                for hand in crowd
            )
        )  # fmt: skip
        assert Counter(fired) == {1: 1, None: 7}
    assert await jobs.value("select count(distinct tick) from ops.jobs where workspace_id = %s", jobs.workspace) == 10
    assert await jobs.statuses() == {"waiting": 10}


async def _every_hour(jobs: Jobs) -> None:
    definition = Jsonb({"kind": "work", "every": 3600})
    first = jobs.now + timedelta(hours=1)
    await jobs.sql("select ops.put_schedule(%s, 's', %s, %s, %s)", jobs.workspace, definition, first, jobs.now)


async def test_a_schedule_that_is_switched_off_meanwhile_does_not_fire(jobs: Jobs, hands: Hands) -> None:
    await _every_hour(jobs)
    person, runner = await hands.take(2)
    tick = jobs.now + timedelta(hours=1)
    async with person.connection.transaction():
        await person.sql("update ops.schedules set enabled = false where workspace_id = %s", jobs.workspace)
        fire = "select ops.fire_schedule(%s, 's', %s, %s, array[%s::timestamptz], %s)"
        late = await hands.blocked(
            runner, runner.value(fire, jobs.workspace, tick, tick + timedelta(hours=1), tick, tick)
        )
    assert await late is None
    assert await jobs.statuses() == {}
