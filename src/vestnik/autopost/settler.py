"""Writes results back in batches: whatever has come in while the last batch was being written is the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
from psycopg.types.json import Jsonb
from psycopg_pool import PoolTimeout

from vestnik.autopost.sender import Result
from vestnik.db.pool import Pool, call
from vestnik.errors import VestnikError
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

    @property
    def waiting(self) -> int:
        return len(self._waiting)

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
                await self._write_or_singly(batch)
            except (psycopg.OperationalError, PoolTimeout) as e:
                # Nothing is dropped. What was in fact committed is recognised by its lease the second time. The other
                # workspaces come first then: a lock that this one waits for is none of theirs.
                self._waiting.sort(key=lambda r: r.workspace_id == batch[0].workspace_id)
                log.warning("settle.database_away", results=len(self._waiting), error=str(e).strip(), retry_in=pause)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 5.0)
                continue
            pause = 0.1
            written = set(map(id, batch))
            self._waiting = [r for r in self._waiting if id(r) not in written]
            self._settled(len(batch))

    def _next_batch(self) -> list[Result]:
        workspace = self._waiting[0].workspace_id
        return [r for r in self._waiting if r.workspace_id == workspace][:BATCH]

    async def _write_or_singly(self, batch: list[Result]) -> None:
        try:
            await self._write(batch)
        except psycopg.OperationalError:
            raise
        except (psycopg.DatabaseError, ValueError, VestnikError) as e:
            log.error("settle.batch_refused", results=len(batch), error=str(e))
            for result in batch:
                await self._write_one(result)

    async def _write_one(self, result: Result) -> None:
        """What a platform said may be something that cannot be stored. The result itself counts, so it goes without."""
        try:
            await self._write([result])
        except psycopg.OperationalError:
            raise
        except (psycopg.DatabaseError, ValueError, VestnikError) as e:
            log.error("settle.answer_not_stored", delivery_id=str(result.delivery_id), error=str(e))
            await self._write_bare(result)

    async def _write_bare(self, result: Result) -> None:
        try:
            await self._write([_bare(result)])
        except psycopg.OperationalError:
            raise
        except (psycopg.DatabaseError, ValueError, VestnikError) as e:
            # Something in this workspace cannot be. The sweep takes the delivery back when its lease has run out.
            log.error("settle.left_to_the_lease", delivery_id=str(result.delivery_id), error=str(e))

    async def _write(self, batch: list[Result]) -> None:
        results = Jsonb([_as_json(result) for result in batch])
        for row in await call(self._pool, _SETTLE, (batch[0].workspace_id, results)):
            log.warning("settle.late", delivery_id=str(row["delivery_id"]), outcome=row["outcome"])


_SETTLE = "select * from autopost.settle_deliveries(%s, %s) where outcome in ('late', 'illegal')"


def _as_json(result: Result) -> dict[str, Any]:
    settled: dict[str, Any] = {"delivery_id": str(result.delivery_id), "lease": result.lease}
    if result.error is not None:
        return settled | {"error": result.error}
    return settled | {
        "provider_message_id": result.provider_message_id,
        "sent_at": result.sent_at.isoformat() if result.sent_at else None,
        "meta": result.raw,
    }


def _bare(result: Result) -> Result:
    """Only what decides, and of it only what any database can store."""
    if result.error is None:
        return replace(result, raw=None, provider_message_id=_printable(result.provider_message_id))
    known = ("category", "scope", "code", "scope_named")
    return replace(result, error={key: _printable(result.error[key]) for key in known if key in result.error})


def _printable(value: Any) -> Any:
    return value if value is None or isinstance(value, bool) else ascii(str(value))[1:-1]
