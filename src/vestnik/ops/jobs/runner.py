"""The runner: takes jobs that are due from the database, hands them to their handlers, writes back what they came to.

It decides nothing that a function in ``sql/functions/ops`` decides. What it owns is time: sleep no longer than needed,
wake when somebody enqueues, stop without losing a run.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import aclosing
from datetime import timedelta
from uuid import uuid4

import psycopg
from psycopg.rows import DictRow
from psycopg.types.json import Jsonb
from psycopg_pool import PoolTimeout

from vestnik.db.listen import listen
from vestnik.db.pool import Pool, call
from vestnik.db.refusals import OF_THE_ROWS
from vestnik.log import get_log
from vestnik.ops.jobs.heartbeat import Heart
from vestnik.ops.jobs.housekeeping import keep_house
from vestnik.ops.jobs.registry import JobContext, JobKind
from vestnik.ops.jobs.run import Run
from vestnik.ops.jobs.settler import Settler

WAKE_CHANNEL = "vestnik_jobs"
CANCELLED = "cancelled"  # the wake-up that says so
DEAF_AFTER = 1.0  # seconds that a cancelled handler may take to end when the runner does
log = get_log()


class Runner:
    """``concurrency`` bounds what runs at once in this process; a kind's own limit is the database's to keep."""

    def __init__(
        self,
        url: str,
        pool: Pool,
        kinds: Mapping[str, JobKind],
        *,
        concurrency: int = 1000,
        poll: float = 0.5,
        lease: float = 60.0,
        grace: float = 20.0,
    ) -> None:
        self._url, self._pool, self._kinds = url, pool, kinds
        self._names = list(kinds)
        self._concurrency, self._poll, self._lease, self._grace = concurrency, poll, lease, grace
        self.worker = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
        self._runs: set[Run] = set()
        self._declared: set[str] = set()
        self._served = ""
        self._awake = asyncio.Event()
        self._stopping = False
        self._settler = Settler(pool, self._awake.set)
        self._heart = Heart(pool, self._runs, lease)

    def stop(self) -> None:
        """Begin nothing more; ``run`` returns when what is under way has ended."""
        self._stopping = True
        for run in self._runs:
            run.context.told_to_stop = True
        self._awake.set()

    async def run(self) -> None:
        """Until ``stop``; raises when a part of it fails, for then nothing may go on as if all were well."""
        log.info("jobs.started", worker=self.worker, concurrency=self._concurrency, kinds=self._names)
        settling = asyncio.create_task(self._settler.run())
        beating = asyncio.create_task(self._heart.run())
        parts = [asyncio.create_task(part) for part in (self._loop(), self._listen(), keep_house(self._pool))]
        try:
            done, _ = await asyncio.wait([settling, beating, *parts], return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                part.result()
        finally:
            for part in parts:
                part.cancel()
            await asyncio.wait(parts)
            await self._end_runs()
            beating.cancel()
            await asyncio.wait([beating])
            await self._end_settling(settling)
            log.info("jobs.stopped", worker=self.worker)

    async def _loop(self) -> None:
        pause = 0.1
        while not self._stopping:
            self._awake.clear()
            try:
                begun = await self._round()
            except (psycopg.OperationalError, PoolTimeout) as e:
                log.warning("jobs.database_away", error=str(e).strip(), retry_in=pause)
                await self._wait(pause)
                pause = min(pause * 2, 5.0)
                continue
            pause = 0.1
            if not begun:
                await self._wait(self._poll)

    async def _round(self) -> int:
        """Once around the workspaces where a job is due; each may take its share of the free places."""
        begun = 0
        if not self._free or not self._names:
            return begun
        query = "select w from ops.workspaces_with_jobs(%s, %s) w"
        workspaces = [row["w"] for row in await call(self._pool, query, (self._names, self._served))]
        for n, workspace_id in enumerate(workspaces):
            share = min(max(self._free // (len(workspaces) - n), 1), max(self._concurrency // 2, 1))
            if self._free < share or self._stopping:
                break
            try:
                begun_here = await self._begin(workspace_id, share)
                begun, self._served = begun + begun_here, workspace_id
                # Nobody else waits: ask for the next ones at once, so that the database works while these run.
                while len(workspaces) == 1 and begun_here == share <= self._free and not self._stopping:
                    begun_here = await self._begin(workspace_id, share)
                    begun += begun_here
            except OF_THE_ROWS as e:
                log.error("jobs.workspace_failed", workspace_id=workspace_id, error=str(e))
        return begun

    async def _begin(self, workspace_id: str, limit: int) -> int:
        if workspace_id not in self._declared:
            declarations = Jsonb([kind.declaration() for kind in self._kinds.values()])
            await call(self._pool, "select ops.declare_kinds(%s, %s)", (workspace_id, declarations))
            self._declared.add(workspace_id)
        lease = timedelta(seconds=self._lease)
        query = "select * from ops.claim_jobs(%s, %s, %s, %s, %s)"
        rows = await call(self._pool, query, (workspace_id, self.worker, self._names, limit, lease))
        for row in rows:
            self._runs.add(self._start(workspace_id, row))
        return len(rows)

    def _start(self, workspace_id: str, row: DictRow) -> Run:
        kind = self._kinds[row["kind"]]
        context = JobContext(
            row["job_id"],
            workspace_id,
            kind.name,
            row["payload"],
            row["attempt"],
            row["tick"],
            self._pool,
            asyncio.get_running_loop().time() + kind.soft_limit,
            self._stopping,
        )
        return Run(kind, context, row["lease"], told=self._settler.put, gone=self._runs.discard)

    @property
    def _free(self) -> int:
        """A place is free when its run has really ended, and its result is written."""
        return self._concurrency - len(self._runs) - self._settler.waiting

    async def _listen(self) -> None:
        async with aclosing(listen(self._url, WAKE_CHANNEL, name="vestnik jobs listen")) as wakes:
            async for wake in wakes:
                if wake.payload == CANCELLED or wake.connected:
                    self._heart.hurry()
                self._awake.set()

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._awake.wait()
        except TimeoutError:
            pass

    async def _end_runs(self) -> None:
        """What is under way may finish; what has not by the end of the grace goes back, and no attempt is counted."""
        if self._runs:
            log.info("jobs.draining", runs=len(self._runs))
            self.stop()
            _, late = await asyncio.wait([run.task for run in self._runs], timeout=self._grace)
            for run in list(self._runs):
                run.cancel("released")
            if late:
                await asyncio.wait(late, timeout=DEAF_AFTER)
            await asyncio.sleep(0)  # lets the last done-callbacks hand over their results
        for run in list(self._runs):
            run.abandon()

    async def _end_settling(self, settling: asyncio.Task[None]) -> None:
        """Everything that ended is written down, unless the database stays away: then the lease sweep finds it."""
        self._settler.close()
        _, unfinished = await asyncio.wait([settling], timeout=self._grace)
        for task in unfinished:
            log.error("jobs.results_not_written", results=self._settler.waiting)
            task.cancel()
            await asyncio.wait([task])
