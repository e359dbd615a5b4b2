"""Schedules in the database: each tick once, whatever was missed, changed or switched off in between."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from job_rig import Jobs

from vestnik.db.pool import Pool, call, make_pool
from vestnik.ops.jobs import verbs
from vestnik.ops.jobs.scheduler import fire_due

pytestmark = pytest.mark.pg16
HOUR = timedelta(hours=1)


async def put(pool: Pool, jobs: Jobs, schedule_id: str = "s", kind: str = "work", **rule: Any) -> Any:
    given = {"every": HOUR} | rule if "cron" not in rule else rule
    return await verbs.put_schedule(pool, jobs.workspace, schedule_id, kind, {"of": schedule_id}, now=jobs.now, **given)


async def ticks(jobs: Jobs) -> list[Any]:
    rows = await jobs.sql("select tick from ops.jobs where schedule_id is not null order by tick")
    return [row["tick"] for row in rows]


async def test_a_tick_makes_a_job_that_knows_which_tick_it_is_for(own_jobs: Jobs, pool: Pool) -> None:
    first = await put(pool, own_jobs, priority=7)
    assert first == own_jobs.now + HOUR
    assert await fire_due(pool, own_jobs.now + HOUR - timedelta(seconds=1)) == 0
    assert await fire_due(pool, first + timedelta(seconds=2)) == 1
    own_jobs.now = first + timedelta(seconds=2)
    (row,) = await own_jobs.claim()
    assert (row["tick"], row["payload"]) == (first, {"of": "s"})
    job = await own_jobs.job(row["job_id"])
    assert (job["schedule_id"], job["priority"]) == ("s", 7)
    (schedule,) = await verbs.list_schedules(pool, "w")
    assert (schedule["last_at"], schedule["next_at"]) == (first, first + HOUR)


async def test_however_many_schedulers_there_are_a_tick_fires_once(own_jobs: Jobs, pool: Pool, database: str) -> None:
    for n in range(5):
        await put(pool, own_jobs, f"s{n}")
    async with make_pool(database) as second, make_pool(database) as third:
        for _ in range(8):
            own_jobs.wait(hours=1)
            many = [fire_due(each, own_jobs.now) for each in (pool, second, third) for _ in range(4)]
            assert sum(await asyncio.gather(*many)) == 5
    assert await own_jobs.statuses() == {"waiting": 40}
    twice = await own_jobs.sql("select 1 from ops.jobs group by schedule_id, tick having count(*) > 1")
    assert twice == []


@pytest.mark.parametrize(("missed", "fired"), [("skip", []), ("once", [5]), ("all", [1, 2, 3, 4, 5])])
async def test_what_was_missed_goes_by_the_policy(own_jobs: Jobs, pool: Pool, missed: Any, fired: list[int]) -> None:
    await put(pool, own_jobs, missed=missed)
    start = own_jobs.now
    await fire_due(pool, start + HOUR * 5.5)
    assert await ticks(own_jobs) == [start + HOUR * n for n in fired]
    await fire_due(pool, start + HOUR * 6)
    assert (await ticks(own_jobs))[-1] == start + HOUR * 6, "and then it goes on as always"


async def test_a_tick_that_is_a_little_late_is_not_missed(own_jobs: Jobs, pool: Pool) -> None:
    await put(pool, own_jobs, missed="skip")
    assert await fire_due(pool, own_jobs.now + HOUR + timedelta(seconds=59)) == 1


async def test_without_overlap_a_tick_makes_no_job_while_one_is_not_finished(own_jobs: Jobs, pool: Pool) -> None:
    await put(pool, own_jobs, overlap=False)
    await put(pool, own_jobs, "other", overlap=False)
    own_jobs.wait(hours=1)
    assert await fire_due(pool, own_jobs.now) == 2
    first, _ = await own_jobs.claim()
    own_jobs.wait(hours=1)
    assert await fire_due(pool, own_jobs.now) == 0
    await own_jobs.came_to(first)
    own_jobs.wait(hours=1)
    assert await fire_due(pool, own_jobs.now) == 1


async def test_with_overlap_they_run_side_by_side(own_jobs: Jobs, pool: Pool) -> None:
    await put(pool, own_jobs)
    for _ in range(3):
        own_jobs.wait(hours=1)
        await fire_due(pool, own_jobs.now)
    assert len(await own_jobs.claim()) == 3


async def test_an_apply_that_repeats_itself_moves_nothing(own_jobs: Jobs, pool: Pool) -> None:
    first = await put(pool, own_jobs)
    own_jobs.wait(minutes=30)
    assert await put(pool, own_jobs) == first
    assert await put(pool, own_jobs, priority=5) == first, "nor does a change of anything but the rule"


@pytest.mark.parametrize("rule", [{"every": HOUR * 2}, {"cron": "0 9 * * *"}, {"enabled": False}])
async def test_a_change_of_the_rule_begins_anew(own_jobs: Jobs, pool: Pool, rule: Any) -> None:
    first = await put(pool, own_jobs)
    own_jobs.wait(minutes=30)
    moved = await put(pool, own_jobs, **rule)
    assert moved != first
    assert moved > own_jobs.now


async def test_a_cron_in_another_zone_is_another_rule(own_jobs: Jobs, pool: Pool) -> None:
    utc = await put(pool, own_jobs, cron="0 9 * * *")
    assert await put(pool, own_jobs, cron="0 9 * * *", timezone="Asia/Tokyo") != utc


async def test_what_passed_while_it_was_switched_off_was_not_missed(own_jobs: Jobs, pool: Pool) -> None:
    await put(pool, own_jobs, missed="all", enabled=False)
    own_jobs.wait(hours=10)
    assert await fire_due(pool, own_jobs.now) == 0
    again = await put(pool, own_jobs, missed="all", enabled=True)
    assert again == own_jobs.now + HOUR
    assert await fire_due(pool, own_jobs.now) == 0


async def test_a_schedule_that_is_removed_fires_no_more(own_jobs: Jobs, pool: Pool) -> None:
    await put(pool, own_jobs)
    assert await verbs.remove_schedule(pool, "w", "s")
    assert not await verbs.remove_schedule(pool, "w", "s")
    assert await fire_due(pool, own_jobs.now + HOUR) == 0


async def test_a_workspace_that_is_paused_fires_nothing_until_it_goes_on(own_jobs: Jobs, pool: Pool) -> None:
    await put(pool, own_jobs)
    await own_jobs.sql("update core.workspaces set status = 'paused'")
    own_jobs.wait(hours=3)
    assert await fire_due(pool, own_jobs.now) == 0
    await own_jobs.sql("update core.workspaces set status = 'active'")
    assert await fire_due(pool, own_jobs.now) == 1


async def test_the_service_has_schedules_of_its_own(own_jobs: Jobs, pool: Pool) -> None:
    own_jobs.workspace = "*"
    await put(pool, own_jobs)
    assert await fire_due(pool, own_jobs.now + HOUR) == 1


async def test_a_schedule_that_cannot_be_does_not_stop_the_others(own_jobs: Jobs, pool: Pool) -> None:
    await put(pool, own_jobs, "broken", cron="0 9 * * *")
    await put(pool, own_jobs, "fine")
    await own_jobs.sql(
        "update ops.schedules set cron = 'nonsense', next_at = %s where schedule_id = 'broken'", own_jobs.now
    )
    assert await fire_due(pool, own_jobs.now + HOUR) == 1


async def test_however_many_cannot_be_the_others_get_their_turn(own_jobs: Jobs, pool: Pool) -> None:
    for n in range(5):
        await put(pool, own_jobs, f"broken-{n}", cron="0 9 * * *")
    await own_jobs.sql("update ops.schedules set cron = 'nonsense', next_at = %s", own_jobs.now)
    await put(pool, own_jobs, "fine")
    assert await fire_due(pool, own_jobs.now + HOUR, page=2) == 1


async def test_a_schedule_beyond_the_last_date_does_not_stop_the_others(own_jobs: Jobs, pool: Pool) -> None:
    await put(pool, own_jobs, "broken", every=timedelta(days=3650))
    await put(pool, own_jobs, "fine", missed="all")
    last_day = datetime(9999, 12, 30, tzinfo=UTC)
    await own_jobs.sql("update ops.schedules set next_at = %s where schedule_id = 'broken'", last_day)
    assert await fire_due(pool, last_day + timedelta(minutes=10)) > 0


async def test_an_interval_beyond_all_dates_cannot_be_stored(own_jobs: Jobs, pool: Pool) -> None:
    await put(pool, own_jobs, every=timedelta(hours=1))
    with pytest.raises(psycopg.errors.CheckViolation):
        await own_jobs.sql("update ops.schedules set every = '300000 years'")


async def test_a_move_backwards_is_refused(own_jobs: Jobs, pool: Pool) -> None:
    first = await put(pool, own_jobs)
    with pytest.raises(Exception, match="the next tick lies after this one"):
        await call(pool, "select ops.fire_schedule('w', 's', %s, %s, '{}')", (first, first))
