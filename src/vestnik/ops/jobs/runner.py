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

from psycopg.rows import DictRow
from psycopg.types.json import Jsonb

from vestnik.db.listen import listen
from vestnik.db.pool import Pool, call
from vestnik.db.rounds import Rounds
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
        self._rounds = Rounds("jobs", self, concurrency, poll)
        self._settler = Settler(pool, lambda _: self._rounds.wake())
        self._heart = Heart(pool, self._runs, lease)

    def stop(self) -> None:
        """Begin nothing more; ``run`` returns when what is under way has ended."""
        for run in self._runs:
            run.context.told_to_stop = True
        self._rounds.stop()

    async def run(self) -> None:
        """Until ``stop``; raises when a part of it fails, for then nothing may go on as if all were well."""
        log.info("jobs.started", worker=self.worker, concurrency=self._concurrency, kinds=self._names)
        settling = asyncio.create_task(self._settler.run())
        beating = asyncio.create_task(self._heart.run())
        parts = [asyncio.create_task(part) for part in (self._rounds.run(), self._listen(), keep_house(self._pool))]
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
            await self._settler.end(settling, self._grace)
            log.info("jobs.stopped", worker=self.worker)

    @property
    def free(self) -> int:
        """A place is free when its run has really ended, and its result is written."""
        return self._concurrency - len(self._runs) - self._settler.waiting

    def held(self, workspace_id: str) -> int:
        return sum(run.context.workspace_id == workspace_id for run in self._runs)

    async def workspaces(self) -> list[str]:
        query = "select w from ops.workspaces_with_jobs(%s, %s) w"
        return [row["w"] for row in await call(self._pool, query, (self._names, self._served))]

    async def until_next(self, workspace_id: str) -> float:
        return self._poll

    async def served(self, workspace_id: str) -> None:
        self._served = workspace_id

    async def begin(self, workspace_id: str, limit: int) -> int:
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
            self._rounds.stopping,
        )
        return Run(kind, context, row["lease"], told=self._settler.put, gone=self._runs.discard)

    async def _listen(self) -> None:
        async with aclosing(listen(self._url, WAKE_CHANNEL, name="vestnik jobs listen")) as wakes:
            async for wake in wakes:
                if wake.payload == CANCELLED or wake.connected:
                    self._heart.hurry()
                self._rounds.wake()

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
