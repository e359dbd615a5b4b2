"""Signs of life of what runs, in batches: they keep the leases, carry the progress, and bring back who must stop."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb
from psycopg_pool import PoolTimeout

from vestnik.db.pool import Pool, call
from vestnik.errors import VestnikError
from vestnik.log import get_log
from vestnik.ops.jobs.run import Run

BATCH = 500
BEATS_PER_LEASE = 4
LOOK_EVERY = 1.0  # seconds: no more often is progress written
DEAF_AFTER = 5.0  # seconds that a cancelled handler may take to end
log = get_log()


class Heart:
    """Runs that end before their first beat cost nothing."""

    def __init__(self, pool: Pool, runs: Collection[Run], lease: float) -> None:
        self._pool, self._runs, self._lease = pool, runs, lease
        self._cancelled_at: dict[Run, float] = {}
        self._now = asyncio.Event()

    def hurry(self) -> None:
        """Somebody was cancelled: ask about all of them, now."""
        self._now.set()

    async def run(self) -> None:
        pause = min(self._lease / BEATS_PER_LEASE / 2, LOOK_EVERY)
        while True:
            all_of_them = self._now.is_set()
            self._now.clear()
            for workspace_id, due in self._due(all_of_them).items():
                for start in range(0, len(due), BATCH):
                    await self._beat(workspace_id, due[start : start + BATCH])
            self._give_up_the_deaf()
            try:
                async with asyncio.timeout(pause):
                    await self._now.wait()
            except TimeoutError:
                pass

    def _due(self, all_of_them: bool) -> dict[str, list[Run]]:
        found: dict[str, list[Run]] = defaultdict(list)
        latest = asyncio.get_running_loop().time() - self._lease / BEATS_PER_LEASE
        for run in self._runs:
            if all_of_them or run.beat_at <= latest or run.context.reached is not None:
                found[run.context.workspace_id].append(run)
        return found

    async def _beat(self, workspace_id: str, runs: list[Run]) -> None:
        began = asyncio.get_running_loop().time()
        told = {run: run.context.reached for run in runs}
        beats = [_as_json(run, reached) for run, reached in told.items()]
        try:
            # A database that does not answer must not make it forget how the time passes.
            async with asyncio.timeout(self._lease / BEATS_PER_LEASE):
                gone = await self._send(workspace_id, beats)
        except (psycopg.Error, PoolTimeout, VestnikError, ValueError, TimeoutError) as e:
            log.warning("jobs.heartbeat_failed", runs=len(runs), error_type=type(e).__name__)
            self._let_go_of_the_lost()
            return
        for run, reached in told.items():
            run.beat_at = began
            if run.context.reached is reached:
                run.context.reached = None
            # One that ended while this was on its way is not lost: it is settled.
            if (state := gone.get((run.context.job_id, run.lease))) and run in self._runs and not run.cancelled:
                log.warning(f"job.{state}", **run.names())
                run.cancel("cancelled" if state == "cancelled" else "lost")

    def _let_go_of_the_lost(self) -> None:
        """By now somebody else may have them."""
        now = asyncio.get_running_loop().time()
        for run in self._runs:
            if now - run.beat_at > self._lease and not run.cancelled:
                run.cancel("lost")

    async def _send(self, workspace_id: str, beats: list[dict[str, Any]]) -> dict[tuple[UUID, int], str]:
        query = "select * from ops.heartbeat_jobs(%s, %s, %s)"
        lease = timedelta(seconds=self._lease)
        try:
            rows = await call(self._pool, query, (workspace_id, Jsonb(beats), lease))
        except (psycopg.DataError, ValueError):
            # A note that cannot be stored must not cost anybody's lease.
            bare = [{key: beat[key] for key in ("job_id", "lease")} for beat in beats]
            rows = await call(self._pool, query, (workspace_id, Jsonb(bare), lease))
        return {(row["job_id"], row["lease"]): row["state"] for row in rows}

    def _give_up_the_deaf(self) -> None:
        now = asyncio.get_running_loop().time()
        cancelled = {run for run in self._runs if run.cancelled}
        self._cancelled_at = {run: self._cancelled_at.get(run, now) for run in cancelled}
        for run, since in self._cancelled_at.items():
            if now - since > DEAF_AFTER:
                run.abandon()


def _as_json(run: Run, reached: dict[str, Any] | None) -> dict[str, Any]:
    beat: dict[str, Any] = {"job_id": str(run.context.job_id), "lease": run.lease}
    return beat | {"progress": reached} if reached is not None else beat
