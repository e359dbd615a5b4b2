"""Writes results back in batches: whatever has come in while the last batch was being written is the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.types.json import Jsonb
from psycopg_pool import PoolTimeout

from vestnik.autopost.sender import Result
from vestnik.db.pool import Pool, call
from vestnik.log import get_log

BATCH = 500
log = get_log()


class Settler:
    def __init__(self, pool: Pool, settled: Callable[[int], None]) -> None:
        self._pool, self._settled = pool, settled
        self._waiting: list[Result] = []
        self._something = asyncio.Event()
        self._closing = False

    def put(self, result: Result) -> None:
        self._waiting.append(result)
        self._something.set()

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
            batch = self._next_batch()
            try:
                await self._write(batch)
            except (psycopg.OperationalError, PoolTimeout) as e:
                # Nothing is dropped. What was in fact committed is recognised by its lease the second time.
                log.warning("settle.database_away", results=len(self._waiting), error=str(e).strip(), retry_in=pause)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 5.0)
                continue
            except psycopg.DatabaseError as e:
                await self._write_singly(batch, e)
            pause = 0.1
            written = set(map(id, batch))
            self._waiting = [r for r in self._waiting if id(r) not in written]
            self._settled(len(batch))

    def _next_batch(self) -> list[Result]:
        workspace = self._waiting[0].workspace_id
        return [r for r in self._waiting if r.workspace_id == workspace][:BATCH]

    async def _write(self, batch: list[Result]) -> None:
        results = Jsonb([_as_json(result) for result in batch])
        for row in await call(self._pool, _SETTLE, (batch[0].workspace_id, results)):
            if row["outcome"] in ("late", "illegal"):
                log.warning("settle.late", delivery_id=str(row["delivery_id"]), outcome=row["outcome"])

    async def _write_singly(self, batch: list[Result], reason: Exception) -> None:
        """One result that the database refuses must not hold back the others; its row is left to the lease sweep."""
        log.error("settle.batch_refused", results=len(batch), error=str(reason))
        for result in batch:
            try:
                await self._write([result])
            except psycopg.DatabaseError as e:
                log.error("settle.refused", delivery_id=str(result.delivery_id), error=str(e))


_SETTLE = "select * from autopost.settle_deliveries(%s, %s)"


def _as_json(result: Result) -> dict[str, Any]:
    settled: dict[str, Any] = {"delivery_id": str(result.delivery_id), "lease": result.lease}
    if result.error is not None:
        return settled | {"error": result.error}
    return settled | {
        "provider_message_id": result.provider_message_id,
        "sent_at": str(result.sent_at),
        "meta": result.raw,
    }
