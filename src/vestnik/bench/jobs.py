"""``jobs``: jobs that do nothing, through the shipped runner, beside procrastinate."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from vestnik.bench import procrastinate_peer
from vestnik.bench.ground import BenchError, Ground
from vestnik.bench.report import Figures
from vestnik.bench.workload import WORKSPACE, make_workspace
from vestnik.db.pool import Pool, call, make_pool
from vestnik.ops.jobs.registry import JobContext, JobKind, kinds
from vestnik.ops.jobs.runner import Runner
from vestnik.ops.jobs.verbs import NewJob, enqueue_many
from vestnik.settings import Settings

AIMS = {"vs_procrastinate": ">= 40"}
POOL_SIZE = (2, 16)  # as in vestnik.app
BATCH = 1000


@dataclass(frozen=True)
class Size:
    jobs: int = 20_000
    procrastinate_jobs: int = 2_000


TINY = Size(jobs=60, procrastinate_jobs=20)


async def run(ground: Ground, size: Size, turn: int) -> Figures:
    procrastinate_peer.require()
    parts = [_ours, _peer]
    figures: Figures = {}
    for part in parts if turn % 2 == 0 else parts[::-1]:
        figures |= await part(ground, size)
    return {
        "jobs_per_s": figures["jobs_per_s"],
        "vs_procrastinate": figures["jobs_per_s"] / figures["procrastinate_per_s"],
        **figures,
    }


async def _ours(ground: Ground, size: Size) -> Figures:
    ground.say("jobs: filling")
    async with ground.database("jobs") as url, make_pool(url, min_size=POOL_SIZE[0], max_size=POOL_SIZE[1]) as pool:
        await make_workspace(pool)
        began = time.perf_counter()
        for start in range(0, size.jobs, BATCH):
            numbers = range(start, min(start + BATCH, size.jobs))
            await enqueue_many(pool, WORKSPACE, [NewJob("nothing", {"number": number}) for number in numbers])
        enqueued = size.jobs / (time.perf_counter() - began)
        await ground.settle(url)
        ground.say("jobs")
        return {"enqueued_per_s": enqueued} | await _measure(ground, pool, url, size)


async def _measure(ground: Ground, pool: Pool, url: str, size: Size) -> Figures:
    """From the runner's start until the last result is written and it has stopped."""
    settings = Settings(database_url=url)
    done, last = 0, asyncio.Event()

    async def nothing(job: JobContext) -> None:
        nonlocal done
        done += 1
        if done == size.jobs:
            last.set()

    runner = Runner(
        url,
        pool,
        kinds([JobKind("nothing", nothing)]),
        concurrency=settings.job_concurrency,
        poll=settings.dispatch_poll,
    )
    before, began, cpu = await ground.wal_position(), time.perf_counter(), time.process_time()
    running = asyncio.create_task(runner.run())
    waiting = asyncio.create_task(last.wait())
    await asyncio.wait([running, waiting], timeout=300, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    runner.stop()
    await running
    taken, cpu = time.perf_counter() - began, time.process_time() - cpu
    wal = await ground.wal_position() - before
    await _refuse_unfinished(pool, size)
    return {
        "jobs_per_s": size.jobs / taken,
        "wal_bytes_per_job": wal / size.jobs,
        "python_us_per_job": cpu / size.jobs * 1e6,
    }


async def _peer(ground: Ground, size: Size) -> Figures:
    best = 0.0
    for concurrency in (1, 10, 50):
        ground.say(f"procrastinate, concurrency {concurrency}")
        async with ground.database("procrastinate", "template0") as url:
            rate = await procrastinate_peer.drain(ground, url, size.procrastinate_jobs, concurrency)
        best = max(best, rate)
    return {"procrastinate_per_s": best}


async def _refuse_unfinished(pool: Pool, size: Size) -> None:
    found = await call(
        pool,
        """select (select count(*) from ops.jobs where status = 'done' and attempt = 1) as done,
                  (select count(*) from ops.job_runs where outcome = 'done') as runs""",
    )
    if set(found[0].values()) != {size.jobs}:
        raise BenchError(f"not every job was done once with its run: {found[0]}")
