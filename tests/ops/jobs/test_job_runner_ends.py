"""How runs end that do not end by themselves: limits, cancels, stops, and a database that goes away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from job_rig import Jobs
from runner_rig import NO_PAUSE, Worker, ended, enqueue, idle, status, until

from vestnik.db.pool import Pool, call
from vestnik.ops.jobs import heartbeat, housekeeping, verbs
from vestnik.ops.jobs.registry import JobContext, JobKind


async def test_the_hard_limit_ends_a_run_and_the_soft_one_asks_it_to_stop(
    own_jobs: Jobs, pool: Pool, run_jobs: Any
) -> None:
    asked = asyncio.Event()

    async def endless(job: JobContext) -> None:
        while True:
            await asyncio.sleep(0.005)
            if job.should_stop:
                asked.set()

    async def obedient(job: JobContext) -> dict[str, Any]:
        while not job.should_stop:
            await asyncio.sleep(0.005)
        return {"stopped": True}

    (hard,), (soft,) = await enqueue(pool, kind="endless"), await enqueue(pool, kind="obedient")
    limits = {"soft_limit": 0.05, "hard_limit": 0.3, "max_attempts": 2, "backoff": NO_PAUSE}
    await run_jobs(JobKind("endless", endless, **limits), JobKind("obedient", obedient, **limits), poll=0.02)
    job = await ended(pool, hard)
    assert (job["status"], job["attempt"], job["last_error"]["type"]) == ("dead", 2, "HardLimit")
    assert asked.is_set()
    job = await ended(pool, soft)
    assert (job["status"], job["runs"][0]["stats"]) == ("done", {"stopped": True})


async def test_a_handler_that_ignores_its_end_has_a_result_all_the_same(
    own_jobs: Jobs, pool: Pool, run_jobs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its place stays taken until it really ends."""
    monkeypatch.setattr(heartbeat, "DEAF_AFTER", 0.05)
    go = asyncio.Event()

    async def deaf(job: JobContext) -> None:
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    (job_id,) = await enqueue(pool)
    runner = await run_jobs(JobKind("work", deaf, soft_limit=0.05, hard_limit=0.1, max_attempts=1), lease=1)
    assert (await ended(pool, job_id))["last_error"]["type"] == "HardLimit"
    assert len(runner._runs) == 1
    go.set()

    async def free() -> bool:
        return not runner._runs

    await until(free)


async def test_a_cancel_reaches_a_running_handler(own_jobs: Jobs, pool: Pool, run_jobs: Any) -> None:
    worker = Worker(hold=True)
    (job_id,) = await enqueue(pool)
    await run_jobs(JobKind("work", worker))
    await worker.until(1)
    assert await verbs.cancel_job(pool, "w", job_id) == "running"
    job = await ended(pool, job_id)
    assert (job["status"], [run["outcome"] for run in job["runs"]]) == ("cancelled", ["cancelled"])
    assert worker.now == 0


async def test_a_stopping_runner_lets_what_runs_finish(own_jobs: Jobs, pool: Pool, run_jobs: Any) -> None:
    async def to_the_end(job: JobContext) -> None:
        while not job.told_to_stop:
            await asyncio.sleep(0.005)

    await enqueue(pool, 3)
    runner = await run_jobs(JobKind("work", to_the_end), concurrency=2)
    await until(lambda: _running(own_jobs, 2))
    runner.stop()
    await run_jobs.end()
    assert await own_jobs.statuses() == {"done": 2, "waiting": 1}, "and nothing new begins"


async def _running(jobs: Jobs, count: int) -> bool:
    return (await jobs.statuses()).get("running") == count


async def test_what_does_not_finish_in_time_goes_back_and_counts_no_attempt(
    own_jobs: Jobs, pool: Pool, run_jobs: Any
) -> None:
    worker = Worker(hold=True)
    (job_id,) = await enqueue(pool, max_attempts=1)
    await run_jobs(JobKind("work", worker), grace=0.1)
    await worker.until(1)
    await run_jobs.end()
    job = await verbs.show_job(pool, "w", job_id)
    assert (job["status"], job["attempt"]) == ("waiting", 0)
    assert [run["outcome"] for run in job["runs"]] == ["released"]
    worker.go.set()
    await run_jobs(JobKind("work", worker))
    assert (await ended(pool, job_id))["status"] == "done"


async def test_goes_on_when_its_connections_are_cut_again_and_again(own_jobs: Jobs, pool: Pool, run_jobs: Any) -> None:
    worker = Worker()
    await run_jobs(JobKind("work", worker), poll=0.02, lease=60)
    for n in range(4):
        await enqueue(pool, 50)
        await own_jobs.sql(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
            " and pid <> pg_backend_pid() and backend_type = 'client backend' and not pid = any (%s)",
            [connection.info.backend_pid for connection in pool._pool],
        )
        # What was claimed by an answer that never came is nobody's: the sweep brings it back.
        await own_jobs.sql("update ops.jobs set lease_until = now() - interval '1 s' where status = 'running'")
        await housekeeping.sweep(pool)
        await until(idle(own_jobs))
        assert (await own_jobs.statuses())["done"] == 50 * (n + 1)
    assert await own_jobs.value("select count(*) from ops.job_runs where outcome = 'done'") == 200


async def test_a_runner_that_was_cut_off_too_long_lets_go(own_jobs: Jobs, pool: Pool, run_jobs: Any) -> None:
    """Somebody else may have the job by now: its handler is cancelled, and its result changes nothing."""
    worker = Worker(hold=True)
    (job_id,) = await enqueue(pool)
    await run_jobs(JobKind("work", worker), lease=1.0)
    await worker.until(1)
    await call(pool, "update ops.jobs set lease = lease + 1, worker = 'another' where job_id = %s", (job_id,))

    async def let_go() -> bool:
        return worker.now == 0

    await until(let_go)
    assert await status(pool, job_id) == "running"
    assert (await verbs.show_job(pool, "w", job_id))["worker"] == "another"


async def test_a_runner_that_hears_nothing_lets_go_when_its_lease_is_over(
    own_jobs: Jobs, pool: Pool, run_jobs: Any
) -> None:
    """Not when the database has refused often enough: the time of a lease passes, whoever answers."""
    worker = Worker(hold=True)
    (job_id,) = await enqueue(pool, max_attempts=1)
    await run_jobs(JobKind("work", worker), lease=1.0)
    await worker.until(1)

    async def let_go() -> bool:
        return worker.now == 0

    async with own_jobs.connection.transaction():
        await own_jobs.sql("lock table ops.jobs in access exclusive mode")
        await until(let_go, 8)
    assert (await ended(pool, job_id))["last_error"]["type"] == "LeaseLost"


async def test_a_broken_workspace_does_not_stop_the_others(own_jobs: Jobs, pool: Pool, run_jobs: Any) -> None:
    await own_jobs.sql("insert into core.workspaces (workspace_id, name) values ('a', '')")
    await verbs.enqueue(pool, "a", "work", {"n": 1})
    (job_id,) = await enqueue(pool)
    await own_jobs.sql(
        "alter table ops.job_kinds add constraint broken check (workspace_id <> 'a') not valid"
    )  # nothing can be declared there
    await run_jobs(JobKind("work", Worker()), poll=0.05)
    assert (await ended(pool, job_id))["status"] == "done"
