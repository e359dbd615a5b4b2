"""The runner between real jobs and handlers inside the test."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from job_rig import Jobs
from runner_rig import NO_PAUSE, Worker, ended, enqueue, idle, until
from structlog.testing import capture_logs

from vestnik.db.pool import Pool
from vestnik.ops.jobs import verbs
from vestnik.ops.jobs.registry import Backoff, JobContext, JobFailed, JobKind, JobRetry, JobSnooze


async def test_every_job_is_done_once(own_jobs: Jobs, pool: Pool, run_jobs: Any) -> None:
    worker = Worker()
    await run_jobs(JobKind("work", worker))
    await enqueue(pool, 500)
    await until(idle(own_jobs))
    assert set(worker.seen.values()) == {1}
    assert await own_jobs.statuses() == {"done": 500}
    assert await own_jobs.value("select count(*) from ops.job_runs where outcome = 'done' and stats ? 'n'") == 500


async def test_wakes_when_something_is_enqueued(own_jobs: Jobs, pool: Pool, run_jobs: Any) -> None:
    """The poll is half a minute away: what comes earlier came by NOTIFY."""
    worker = Worker()
    await run_jobs(JobKind("work", worker))
    for _ in range(3):
        await enqueue(pool)
        await until(idle(own_jobs), 10)


async def test_no_more_run_at_once_than_the_runner_may(own_jobs: Jobs, pool: Pool, run_jobs: Any) -> None:
    worker = Worker(hold=True)
    await enqueue(pool, 20)
    await run_jobs(JobKind("work", worker), concurrency=8)  # a quarter of it is for other workspaces
    await worker.until(6)
    assert await own_jobs.statuses() == {"running": 6, "waiting": 14}
    worker.go.set()
    await until(idle(own_jobs))
    assert worker.most == 6


async def test_two_runners_share_the_work_and_the_limit_of_its_kind(own_jobs: Jobs, pool: Pool, run_jobs: Any) -> None:
    worker = Worker(hold=True)
    await enqueue(pool, 30)
    for _ in range(2):
        await run_jobs(JobKind("work", worker, concurrency=5), concurrency=3, poll=0.02)
    await worker.until(5)
    assert await own_jobs.statuses() == {"running": 5, "waiting": 25}
    worker.go.set()
    await until(idle(own_jobs))
    assert worker.most == 5
    assert set(worker.seen.values()) == {1}
    assert await own_jobs.value("select count(distinct worker) from ops.job_runs") == 2


async def test_a_workspace_with_much_to_do_leaves_room_for_the_others(
    own_jobs: Jobs, pool: Pool, run_jobs: Any
) -> None:
    worker = Worker(hold=True)
    await enqueue(pool, 50)
    await run_jobs(JobKind("work", worker), concurrency=10, poll=0.02)
    await worker.until(5)
    await own_jobs.sql("insert into core.workspaces (workspace_id, name) values ('small', '')")
    small = await verbs.enqueue(pool, "small", "work", {"n": 100})
    worker.go.set()

    async def done() -> bool:
        return (await verbs.show_job(pool, "small", small.job_id))["status"] == "done"

    await until(done)


async def test_what_a_handler_says_is_what_becomes_of_its_job(own_jobs: Jobs, pool: Pool, run_jobs: Any) -> None:
    said: dict[str, BaseException | None] = {
        "fine": None,
        "later": JobRetry("the other side is busy", after=3600, code="busy"),
        "never": JobFailed("there is no such thing", code="gone"),
        "asleep": JobSnooze(3600),
        "broken": ValueError("first line\nsecond line with the payload"),
    }

    async def speak(job: JobContext) -> None:
        if error := said[job.kind]:
            raise error

    job_ids = {kind: (await enqueue(pool, kind=kind))[0] for kind in said}
    await run_jobs(*(JobKind(kind, speak, backoff=Backoff(base=3600)) for kind in said))
    made = {}
    for kind, job_id in job_ids.items():
        await until(lambda job_id=job_id: _runs(pool, job_id))
        made[kind] = await verbs.show_job(pool, "w", job_id)
    assert {kind: job["status"] for kind, job in made.items()} == {
        "fine": "done", "later": "retry", "never": "dead", "asleep": "waiting", "broken": "retry",
    }  # fmt: skip
    assert made["later"]["last_error"] == {"type": "JobRetry", "code": "busy", "message": "the other side is busy"}
    assert made["never"]["last_error"]["code"] == "gone"
    assert made["broken"]["last_error"] == {"type": "ValueError", "message": "first line"}
    assert [job["attempt"] for job in made.values()] == [1, 1, 1, 0, 1]


async def _runs(pool: Pool, job_id: Any) -> Any:
    return (await verbs.show_job(pool, "w", job_id))["runs"]


async def test_a_handler_is_tried_again_until_it_succeeds(own_jobs: Jobs, pool: Pool, run_jobs: Any) -> None:
    async def third_time(job: JobContext) -> dict[str, Any]:
        if job.attempt < 3:
            raise ConnectionError("not yet")
        return {"attempt": job.attempt}

    (job_id,) = await enqueue(pool)
    await run_jobs(JobKind("work", third_time, backoff=NO_PAUSE), poll=0.02)
    job = await ended(pool, job_id)
    assert (job["status"], job["attempt"]) == ("done", 3)
    assert [run["outcome"] for run in job["runs"]] == ["retry", "retry", "done"]


@pytest.mark.parametrize(
    "stats", [{"text": "a\0b"}, {"text": "\ud800"}, {"x": object()}], ids=["NUL", "half", "object"]
)
async def test_a_result_that_cannot_be_stored_is_still_a_result(
    own_jobs: Jobs, pool: Pool, run_jobs: Any, stats: Any
) -> None:
    async def odd(job: JobContext) -> Any:
        return stats if job.payload["n"] == 3 else {"n": 1}

    job_ids = await enqueue(pool, 6)
    await run_jobs(JobKind("work", odd))
    await until(idle(own_jobs))
    assert await own_jobs.statuses() == {"done": 6}
    stored = [(await verbs.show_job(pool, "w", job_id))["runs"][0]["stats"] for job_id in job_ids]
    assert Counter(map(str, stored)) == {"{'n': 1}": 5, "None": 1}


async def test_a_message_that_cannot_be_stored_is_still_a_failure(own_jobs: Jobs, pool: Pool, run_jobs: Any) -> None:
    async def odd(job: JobContext) -> None:
        raise JobFailed("nul \0 and \ud800")

    (job_id,) = await enqueue(pool)
    await run_jobs(JobKind("work", odd))
    job = await ended(pool, job_id)
    assert job["status"] == "dead"
    assert "nul" in job["last_error"]["message"]


async def test_progress_is_seen_while_it_runs(own_jobs: Jobs, pool: Pool, run_jobs: Any) -> None:
    seen = asyncio.Event()

    async def slow(job: JobContext) -> None:
        job.progress(1, 9, "nul \0 in the note")
        job.progress(3, 9, "a.png")
        await seen.wait()

    (job_id,) = await enqueue(pool)
    await run_jobs(JobKind("work", slow), lease=2)

    async def progress() -> Any:
        return (await verbs.show_job(pool, "w", job_id))["progress"]

    assert await until(progress) == {"done": 3, "total": 9, "note": "a.png"}
    seen.set()
    await ended(pool, job_id)


async def test_a_note_that_cannot_be_stored_costs_nobody_the_lease(own_jobs: Jobs, pool: Pool, run_jobs: Any) -> None:
    held = asyncio.Event()

    async def odd(job: JobContext) -> None:
        job.progress(1, 9, "nul \0")
        await held.wait()

    (job_id,) = await enqueue(pool)
    await run_jobs(JobKind("work", odd), lease=1.0)
    first = await until(lambda: _lease_until(pool, job_id))

    async def longer() -> bool:
        return bool(await _lease_until(pool, job_id) > first + timedelta(seconds=1))

    await until(longer)
    held.set()
    assert (await ended(pool, job_id))["attempt"] == 1


async def _lease_until(pool: Pool, job_id: Any) -> Any:
    return (await verbs.show_job(pool, "w", job_id))["lease_until"]


async def test_a_dead_job_is_told_to_the_log_with_its_kind_and_what_was_wrong(
    own_jobs: Jobs, pool: Pool, run_jobs: Any
) -> None:
    """Unless its handler has told it."""
    said = {
        "gone": JobFailed("no such thing: SECRET", code="gone"),
        "known": JobFailed("as before", code="known", logged=True),
        "broken": ValueError("SECRET"),
    }

    async def speak(job: JobContext) -> None:
        raise said[job.kind]

    job_ids = {kind: (await enqueue(pool, kind=kind))[0] for kind in said}
    with capture_logs() as lines:
        await run_jobs(*(JobKind(kind, speak, max_attempts=1) for kind in said))
        for job_id in job_ids.values():
            await ended(pool, job_id)
        await until(lambda: _of(lines, 2))
    told = {(line["kind"], line["code"]): line["job_id"] for line in lines if line["event"] == "job.dead"}
    assert told == {("gone", "gone"): str(job_ids["gone"]), ("broken", "ValueError"): str(job_ids["broken"])}
    assert "SECRET" not in str(lines)


async def _of(lines: Any, count: int) -> bool:
    return sum(line["event"] == "job.dead" for line in lines) >= count
