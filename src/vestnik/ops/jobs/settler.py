"""Writes results back in batches: whatever has come in while the last batch was being written is the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
from psycopg.types.json import Jsonb
from psycopg_pool import PoolTimeout

from vestnik.db.pool import Pool, call
from vestnik.errors import VestnikError
from vestnik.log import get_log
from vestnik.ops.jobs.run import Result

BATCH = 500
log = get_log()


class Settler:
    def __init__(self, pool: Pool, settled: Callable[[], None]) -> None:
        self._pool, self._settled = pool, settled
        self._waiting: dict[str, list[Result]] = {}  # by workspace
        self._something = asyncio.Event()
        self._closing = False

    def put(self, result: Result) -> None:
        self._waiting.setdefault(result.workspace_id, []).append(result)
        self._something.set()

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    def close(self) -> None:
        """Lets ``run`` end once everything that was put has been written."""
        self._closing = True
        self._something.set()

    async def run(self) -> None:
        pause = 0.1
        while self._waiting or not self._closing:
            if not self._waiting:
                self._something.clear()
                await self._something.wait()
                continue
            workspace_id, results = next(iter(self._waiting.items()))
            batch = results[:BATCH]
            try:
                await self._write_or_singly(workspace_id, batch)
            except (psycopg.OperationalError, PoolTimeout) as e:
                # Nothing is dropped. What was in fact committed is recognised by its lease the second time.
                log.warning("jobs.database_away", results=self.waiting, error=str(e).strip(), retry_in=pause)
                # The other workspaces come first then: a lock that this one waits for is none of theirs.
                self._waiting[workspace_id] = self._waiting.pop(workspace_id)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 5.0)
                continue
            pause = 0.1
            del results[: len(batch)]
            # The next workspace's turn.
            del self._waiting[workspace_id]
            if results:
                self._waiting[workspace_id] = results
            self._settled()

    async def _write_or_singly(self, workspace_id: str, batch: list[Result]) -> None:
        try:
            await self._write(workspace_id, batch)
        except psycopg.OperationalError:
            raise
        except (psycopg.DatabaseError, ValueError, VestnikError) as e:
            log.error("jobs.batch_refused", results=len(batch), error_type=type(e).__name__)
            for result in batch:
                await self._write_one(workspace_id, result)

    async def _write_one(self, workspace_id: str, result: Result) -> None:
        """What a handler returned may be something that cannot be stored. The outcome itself counts, so it goes without."""
        try:
            await self._write(workspace_id, [result])
        except psycopg.OperationalError:
            raise
        except (psycopg.DatabaseError, ValueError, VestnikError) as e:
            log.error("jobs.result_not_stored", job_id=str(result.job_id), error_type=type(e).__name__)
            await self._write_bare(workspace_id, result)

    async def _write_bare(self, workspace_id: str, result: Result) -> None:
        try:
            await self._write(workspace_id, [_bare(result)])
        except psycopg.OperationalError:
            raise
        except (psycopg.DatabaseError, ValueError, VestnikError) as e:
            # Something in this workspace cannot be. The sweep takes the job back when its lease has run out.
            log.error("jobs.left_to_the_lease", job_id=str(result.job_id), error_type=type(e).__name__)

    async def _write(self, workspace_id: str, batch: list[Result]) -> None:
        results = Jsonb([_as_json(result) for result in batch])
        for row in await call(self._pool, _SETTLE, (workspace_id, results)):
            log.warning(f"job.{row['outcome']}", job_id=str(row["job_id"]), workspace_id=workspace_id)


_SETTLE = "select * from ops.settle_jobs(%s, %s) where outcome in ('late', 'dead')"


def _as_json(result: Result) -> dict[str, Any]:
    settled: dict[str, Any] = {"job_id": str(result.job_id), "lease": result.lease, "outcome": result.outcome}
    for name in ("stats", "error", "after"):
        if (value := getattr(result, name)) is not None:
            settled[name] = value
    return settled


def _bare(result: Result) -> Result:
    error = result.error and {key: ascii(str(value))[1:-1] for key, value in result.error.items()}
    after = result.after if result.after is not None and 0 <= result.after < float("inf") else None
    return replace(result, stats=None, error=error, after=after)
