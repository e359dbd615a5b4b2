"""Whose a job is: leases, signs of life, and results that come too late."""

from __future__ import annotations

from datetime import timedelta

import pytest
from job_rig import Jobs

pytestmark = pytest.mark.pg16


async def test_who_gives_signs_of_life_keeps_the_lease(jobs: Jobs) -> None:
    row = await jobs.begun()
    for _ in range(5):
        jobs.wait(seconds=50)
        assert await jobs.sweep() == 0
        assert await jobs.beat(row) == {}
    assert (await jobs.job(row["job_id"]))["lease_until"] == jobs.now + timedelta(seconds=60)


async def test_who_falls_silent_loses_the_job(jobs: Jobs) -> None:
    row = await jobs.begun()
    jobs.wait(seconds=60)
    assert await jobs.sweep() == 0
    jobs.wait(seconds=0.001)
    assert await jobs.sweep() == 1
    job = await jobs.job(row["job_id"])
    assert (job["status"], job["attempt"], job["last_error"]["type"]) == ("retry", 1, "LeaseLost")
    (again,) = await jobs.claim(worker="runner-2")
    assert (again["attempt"], again["lease"]) == (2, 2)
    assert await jobs.came_to(again) == "done"
    assert await jobs.outcomes(row["job_id"]) == ["lost", "done"]


async def test_a_sign_of_life_never_shortens_a_lease(jobs: Jobs) -> None:
    row = await jobs.begun()
    until = (await jobs.job(row["job_id"]))["lease_until"]
    await jobs.beat(row, lease=1)
    assert (await jobs.job(row["job_id"]))["lease_until"] == until


async def test_progress_is_seen_while_it_runs_and_begins_anew_with_the_next_run(jobs: Jobs) -> None:
    row = await jobs.begun()
    await jobs.beat(row, progress={"done": 3, "total": 9, "note": "c"})
    assert (await jobs.job(row["job_id"]))["progress"] == {"done": 3, "total": 9, "note": "c"}
    await jobs.beat(row)
    assert (await jobs.job(row["job_id"]))["progress"]["done"] == 3, "a beat without news keeps them"
    await jobs.came_to(row, "retry")
    jobs.wait(hours=1)
    await jobs.claim()
    assert (await jobs.job(row["job_id"]))["progress"] is None


async def test_a_silent_runner_that_speaks_again_hears_that_it_has_lost(jobs: Jobs) -> None:
    row = await jobs.begun()
    jobs.wait(minutes=2)
    await jobs.sweep()
    key = (row["job_id"], 1)
    assert await jobs.beat(row) == {key: "lost"}
    (again,) = await jobs.claim()
    assert await jobs.beat(row) == {key: "lost"}
    assert await jobs.beat(row, again) == {key: "lost"}, "of two runs of one job in one runner, only the old one"
    await jobs.came_to(again)
    assert await jobs.beat(again) == {(row["job_id"], 2): "lost"}


async def test_a_success_after_the_sweep_counts_while_nobody_has_begun_anew(jobs: Jobs) -> None:
    """To do again what is known to be done would be knowing double work."""
    row = await jobs.begun()
    jobs.wait(minutes=2)
    await jobs.sweep()
    assert await jobs.came_to(row, stats={"n": 1}) == "done"
    assert await jobs.claim() == []
    (run,) = await jobs.runs(row["job_id"])
    assert (run["outcome"], run["stats"], run["error"]) == ("done", {"n": 1}, None)


@pytest.mark.parametrize("outcome", ["retry", "failed", "snoozed", "released", "cancelled"])
async def test_any_other_result_after_the_sweep_is_late(jobs: Jobs, outcome: str) -> None:
    row = await jobs.begun()
    jobs.wait(minutes=2)
    await jobs.sweep()
    before = await jobs.job(row["job_id"])
    assert await jobs.came_to(row, outcome, after=900) == "late"
    assert await jobs.job(row["job_id"]) == before
    assert await jobs.outcomes(row["job_id"]) == ["lost"]


@pytest.mark.parametrize("outcome", ["done", "retry", "failed", "snoozed", "released", "cancelled"])
async def test_a_result_of_an_older_lease_changes_nothing(jobs: Jobs, outcome: str) -> None:
    old = await jobs.begun()
    jobs.wait(minutes=2)
    await jobs.sweep()
    (new,) = await jobs.claim(worker="runner-2")
    before = await jobs.job(old["job_id"])
    assert await jobs.came_to(old, outcome) == "late"
    assert await jobs.job(old["job_id"]) == before
    assert await jobs.came_to(new) == "done"
    assert await jobs.came_to(old, outcome) == "late"
    assert await jobs.outcomes(old["job_id"]) == ["lost", "done"]


@pytest.mark.parametrize("outcome", ["done", "retry", "failed", "snoozed", "released", "cancelled"])
async def test_a_result_that_is_written_twice_counts_once(jobs: Jobs, outcome: str) -> None:
    """As after an answer that was lost on its way back."""
    row = await jobs.begun()
    await jobs.came_to(row, outcome)
    before, runs = await jobs.job(row["job_id"]), await jobs.runs(row["job_id"])
    jobs.wait(seconds=9)
    assert await jobs.came_to(row, outcome) in ("repeat", "done")
    assert await jobs.job(row["job_id"]) == before
    assert await jobs.runs(row["job_id"]) == runs
    assert len(await jobs.errors()) == (outcome == "failed")


async def test_a_result_from_the_future_changes_nothing(jobs: Jobs) -> None:
    row = await jobs.begun()
    assert await jobs.came_to(row | {"lease": 2}) == "late"
    assert await jobs.came_to(row | {"lease": 0}, "failed") == "late"
    assert await jobs.statuses() == {"running": 1}


async def test_old_and_new_results_of_one_job_in_one_batch(jobs: Jobs) -> None:
    old = await jobs.begun()
    jobs.wait(minutes=2)
    await jobs.sweep()
    (new,) = await jobs.claim()
    results = [{"job_id": str(row["job_id"]), "lease": row["lease"], "outcome": "done"} for row in (new, old)]
    await jobs.settle(*results)
    assert await jobs.outcomes(old["job_id"]) == ["lost", "done"]
    assert (await jobs.job(old["job_id"]))["lease"] == 2


async def test_a_batch_of_everything_settles_each_as_it_is(jobs: Jobs) -> None:
    await jobs.enqueue_all(*({"kind": "work"} for _ in range(6)))
    rows = await jobs.claim()
    said = ["done", "retry", "failed", "snoozed", "released", "cancelled"]
    made = await jobs.settle(
        *(
            {"job_id": str(row["job_id"]), "lease": 1, "outcome": outcome}
            for row, outcome in zip(rows, said, strict=True)
        ),
        {"job_id": "01234567-89ab-cdef-0123-456789abcdef", "lease": 1, "outcome": "done"},
    )
    assert [made[row["job_id"]] for row in rows] == ["done", "retry", "dead", "snoozed", "released", "cancelled"]
    assert len(made) == 6, "what is not there any more is passed over"
    assert await jobs.statuses() == {"done": 1, "retry": 1, "dead": 1, "waiting": 2, "cancelled": 1}


async def test_the_last_try_that_is_lost_is_a_dead_letter(jobs: Jobs) -> None:
    row = await jobs.begun(max_attempts=1)
    jobs.wait(minutes=2)
    assert await jobs.sweep() == 1
    assert (await jobs.job(row["job_id"]))["status"] == "dead"
    assert await jobs.outcomes(row["job_id"]) == ["lost"]
    (told,) = await jobs.errors()
    assert told["job_id"] == row["job_id"]
    assert await jobs.came_to(row) == "late"
    assert (await jobs.job(row["job_id"]))["status"] == "dead"


async def test_a_lost_place_is_free_again(jobs: Jobs) -> None:
    await jobs.kind(concurrency=1)
    await jobs.begun()
    await jobs.enqueue()
    jobs.wait(minutes=2)
    assert await jobs.claim() == []
    await jobs.sweep()
    assert len(await jobs.claim()) == 1


async def test_the_sweep_takes_a_bounded_bite(jobs: Jobs) -> None:
    await jobs.enqueue_all(*({"kind": "work"} for _ in range(5)))
    await jobs.claim()
    jobs.wait(minutes=2)
    bite = "select ops.sweep_jobs(%s, 2, %s)"
    assert [await jobs.value(bite, jobs.workspace, jobs.now) for _ in range(4)] == [2, 2, 1, 0]


@pytest.mark.parametrize(("after", "years"), [(-5, 0), (0, 0), (1e300, 100)])
async def test_whatever_time_a_handler_asks_for_is_a_time(jobs: Jobs, after: float, years: int) -> None:
    row = await jobs.begun()
    assert await jobs.came_to(row, "snoozed", after=after) == "snoozed"
    assert round((await jobs.job(row["job_id"]))["run_at"].year - jobs.now.year) == years
