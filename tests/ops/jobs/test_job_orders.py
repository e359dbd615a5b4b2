"""What people may order: cancel, retry, run now, pause and resume a kind, and what is forgotten in the end."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest
from job_rig import Jobs

pytestmark = pytest.mark.pg16


async def test_a_waiting_job_is_cancelled_at_once(jobs: Jobs) -> None:
    job_id = await jobs.enqueue()
    assert await jobs.cancel(job_id) == "cancelled"
    assert await jobs.cancel(job_id) == "cancelled", "and again is no mistake"
    assert await jobs.claim() == []
    assert (await jobs.job(job_id))["finished_at"] == jobs.now


async def test_a_job_between_two_tries_is_cancelled_at_once(jobs: Jobs) -> None:
    row = await jobs.begun()
    await jobs.came_to(row, "retry")
    assert await jobs.cancel(row["job_id"]) == "cancelled"
    jobs.wait(days=1)
    assert await jobs.claim() == []


async def test_the_runner_of_a_cancelled_job_hears_of_it_and_has_the_last_word(jobs: Jobs) -> None:
    row = await jobs.begun()
    assert await jobs.cancel(row["job_id"]) == "running"
    assert await jobs.beat(row) == {(row["job_id"], 1): "cancelled"}
    assert await jobs.came_to(row, "cancelled") == "cancelled"
    assert await jobs.outcomes(row["job_id"]) == ["cancelled"]


async def test_a_cancelled_job_that_succeeded_all_the_same_is_done(jobs: Jobs) -> None:
    row = await jobs.begun()
    await jobs.cancel(row["job_id"])
    assert await jobs.came_to(row) == "done"


@pytest.mark.parametrize("outcome", ["retry", "snoozed", "released"])
async def test_a_cancelled_job_is_not_tried_again(jobs: Jobs, outcome: str) -> None:
    row = await jobs.begun()
    await jobs.cancel(row["job_id"])
    assert await jobs.came_to(row, outcome) == "cancelled"
    jobs.wait(days=1)
    assert await jobs.claim() == []


async def test_a_cancelled_job_whose_runner_is_gone_ends_with_its_lease(jobs: Jobs) -> None:
    row = await jobs.begun()
    await jobs.cancel(row["job_id"])
    jobs.wait(minutes=2)
    await jobs.sweep()
    assert await jobs.statuses() == {"cancelled": 1}
    assert await jobs.outcomes(row["job_id"]) == ["lost"]


async def test_a_dead_job_that_is_retried_gets_one_more_try(jobs: Jobs) -> None:
    row = await jobs.begun(max_attempts=1)
    await jobs.came_to(row, "retry")
    await jobs.retry(row["job_id"])
    (again,) = await jobs.claim()
    assert (again["attempt"], again["lease"]) == (2, 2)
    assert await jobs.came_to(again, "retry") == "dead"
    assert await jobs.outcomes(row["job_id"]) == ["dead", "dead"]
    assert len(await jobs.errors()) == 2


async def test_a_job_that_died_early_keeps_the_tries_it_had_left(jobs: Jobs) -> None:
    row = await jobs.begun(max_attempts=3)
    await jobs.came_to(row, "failed")
    await jobs.retry(row["job_id"])
    for expected in ("retry", "dead"):
        (row,) = await jobs.claim()
        assert await jobs.came_to(row, "retry") == expected
        jobs.wait(hours=1)


async def test_a_cancelled_job_that_is_retried_begins_anew(jobs: Jobs) -> None:
    job_id = await jobs.enqueue(run_at=jobs.now + timedelta(days=1))
    await jobs.cancel(job_id)
    await jobs.retry(job_id)
    (row,) = await jobs.claim()
    assert (row["job_id"], row["attempt"]) == (job_id, 1)
    job = await jobs.job(job_id)
    assert (job["finished_at"], job["cancel_requested_at"]) == (None, None)


async def test_a_retry_does_not_break_a_key(jobs: Jobs) -> None:
    row = await jobs.begun(unique_key="k")
    await jobs.came_to(row, "failed")
    other = await jobs.enqueue(unique_key="k")
    with pytest.raises(psycopg.Error, match="another one with its unique key is not finished") as refused:
        await jobs.retry(row["job_id"])
    assert refused.value.sqlstate == "VM001"
    await jobs.cancel(other)
    await jobs.retry(row["job_id"])
    assert await jobs.enqueue(unique_key="k") == row["job_id"]


async def test_a_job_is_run_before_its_time(jobs: Jobs) -> None:
    job_id = await jobs.enqueue(run_at=jobs.now + timedelta(days=1))
    await jobs.run_now(job_id)
    (row,) = await jobs.claim()
    await jobs.came_to(row, "retry")
    await jobs.run_now(job_id)
    assert len(await jobs.claim()) == 1


async def test_run_now_does_not_push_back_what_waits_already(jobs: Jobs) -> None:
    first = await jobs.enqueue()
    jobs.wait(minutes=1)
    await jobs.enqueue()
    await jobs.run_now(first)
    assert [row["job_id"] for row in await jobs.claim(1)] == [first]


async def test_of_a_paused_kind_nothing_begins_and_what_runs_may_finish(jobs: Jobs) -> None:
    row = await jobs.begun()
    await jobs.enqueue()
    other = await jobs.enqueue("other")
    pause = "select ops.pause_kind(%s, 'work', %s)"
    assert await jobs.value(pause, jobs.workspace, jobs.now)
    assert not await jobs.value(pause, jobs.workspace, jobs.now)
    assert [claimed["job_id"] for claimed in await jobs.claim(kinds=["work", "other"])] == [other]
    assert await jobs.beat(row) == {}
    assert await jobs.came_to(row) == "done"
    asked = "select w from ops.workspaces_with_jobs('{work}', '', 100000, %s) w where w = %s"
    assert await jobs.sql(asked, jobs.now, jobs.workspace) == [], "nor is a runner told of it"
    await jobs.kind(max_attempts=9)
    assert await jobs.claim() == [], "a new declaration does not resume it"
    resume = "select ops.resume_kind(%s, 'work', %s)"
    assert await jobs.value(resume, jobs.workspace, jobs.now)
    assert not await jobs.value(resume, jobs.workspace, jobs.now)
    assert len(await jobs.claim()) == 1


async def test_what_is_long_over_is_forgotten_and_nothing_else(jobs: Jobs) -> None:
    done, dead = await jobs.begun(), await jobs.begun()
    await jobs.came_to(done)
    await jobs.came_to(dead, "failed")
    waiting = await jobs.enqueue(run_at=jobs.now + timedelta(days=999))
    snoozed = await jobs.begun()
    await jobs.came_to(snoozed, "retry")
    jobs.wait(days=13, hours=23)
    fresh = await jobs.begun()
    await jobs.came_to(fresh)
    assert await jobs.prune() == 0
    jobs.wait(hours=2)
    assert await jobs.prune() == 1
    assert await jobs.runs(done["job_id"]) == []
    left = {
        row["job_id"] for row in await jobs.sql("select job_id from ops.jobs where workspace_id = %s", jobs.workspace)
    }
    assert left == {dead["job_id"], waiting, snoozed["job_id"], fresh["job_id"]}
    assert len(await jobs.errors()) == 1


async def test_dead_letters_are_kept_four_times_as_long(jobs: Jobs) -> None:
    dead = await jobs.begun()
    await jobs.came_to(dead, "failed")
    jobs.wait(days=55)
    assert await jobs.prune() == 0
    jobs.wait(days=2)
    assert await jobs.prune() == 1
    assert await jobs.errors() == []
    assert await jobs.runs(dead["job_id"]) == []


async def test_a_job_that_waited_long_is_not_forgotten_as_soon_as_it_ends(jobs: Jobs) -> None:
    await jobs.enqueue(run_at=jobs.now + timedelta(days=60))
    jobs.wait(days=60)
    (row,) = await jobs.claim()
    await jobs.came_to(row)
    assert await jobs.prune() == 0
    jobs.wait(days=15)
    assert await jobs.prune() == 1
