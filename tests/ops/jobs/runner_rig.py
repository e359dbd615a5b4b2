"""Runners in the test's own process: what they work on, and ways to know how far they are."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from job_rig import Jobs

from vestnik.db.pool import Pool
from vestnik.ops.jobs import verbs
from vestnik.ops.jobs.registry import Backoff, JobContext

NO_PAUSE = Backoff(base=0, jitter=0)


async def until(true: Callable[[], Awaitable[Any]], seconds: float = 20) -> Any:
    async with asyncio.timeout(seconds):
        while not (found := await true()):
            await asyncio.sleep(0.005)
    return found


async def enqueue(pool: Pool, count: int = 1, kind: str = "work", **job: Any) -> list[Any]:
    jobs = [verbs.NewJob(kind, {"n": n}, **job) for n in range(count)]
    return [enqueued.job_id for enqueued in await verbs.enqueue_many(pool, "w", jobs)]


async def status(pool: Pool, job_id: Any) -> str:
    return str((await verbs.show_job(pool, "w", job_id))["status"])


async def ended(pool: Pool, job_id: Any) -> Any:
    """The job, once it has ended."""

    async def look() -> Any:
        job = await verbs.show_job(pool, "w", job_id)
        return job if job["status"] in ("done", "dead", "cancelled") else None

    return await until(look)


def idle(jobs: Jobs) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return not set(await jobs.statuses()) & {"waiting", "running", "retry"}

    return look


class Worker:
    """Counts what runs; holds it until it is let go."""

    def __init__(self, hold: bool = False) -> None:
        self.seen: Counter[int] = Counter()
        self.now = self.most = 0
        self.go = asyncio.Event()
        if not hold:
            self.go.set()

    async def __call__(self, job: JobContext) -> dict[str, Any]:
        self.seen[job.payload["n"]] += 1
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.go.wait()
        finally:
            self.now -= 1
        return {"n": job.payload["n"]}

    async def until(self, count: int) -> None:
        async def enough() -> bool:
            return self.now >= count

        await until(enough)
