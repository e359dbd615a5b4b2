"""What the dispatcher does aside: take back expired leases, drop old receipts, make the days of the event log ahead."""

from __future__ import annotations

import asyncio
import time

import psycopg
from psycopg_pool import PoolTimeout

from vestnik.db.pool import Connection, Pool, call, retrying
from vestnik.log import get_log

SWEEP_EVERY = 5.0
PARTITIONS_EVERY = 3600.0
SWEEP_BATCH = 500
log = get_log()


class Housekeeping:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._partitions_at = float("-inf")

    async def run(self) -> None:
        while True:
            try:
                if time.monotonic() - self._partitions_at > PARTITIONS_EVERY:
                    await ensure_event_partitions(self._pool)
                    self._partitions_at = time.monotonic()
                await sweep(self._pool)
            except (psycopg.Error, PoolTimeout) as e:
                log.warning("housekeeping.failed", error=str(e).strip())
            await asyncio.sleep(SWEEP_EVERY)


async def sweep(pool: Pool) -> int:
    """Every workspace, page by page; returns how many deliveries came back."""
    swept = 0
    for row in await call(pool, "select workspace_id from core.workspaces where status <> 'disabled'"):
        for sweep_of in ("sweep_sending", "sweep_claimed", "sweep_receipts"):
            count = SWEEP_BATCH
            while count >= SWEEP_BATCH:
                found = await call(
                    pool, f"select autopost.{sweep_of}(%s, %s) as swept", (row["workspace_id"], SWEEP_BATCH)
                )
                count = found[0]["swept"]
                if count and sweep_of != "sweep_receipts":
                    swept += count
                    log.info(f"sweep.{sweep_of}", workspace_id=row["workspace_id"], deliveries=count)
    return swept


async def ensure_event_partitions(pool: Pool, attempts: int = 20) -> int:
    """Short patience, often: the lock that a new partition needs must never queue the writers behind a long reader."""

    async def work(connection: Connection) -> int:
        await connection.execute("set local lock_timeout = '200ms'")
        cursor = await connection.execute("select autopost.ensure_event_partitions() as made")
        made = await cursor.fetchone()
        assert made is not None
        return int(made["made"])

    for _ in range(attempts - 1):
        try:
            return await retrying(pool, work)
        except psycopg.errors.LockNotAvailable:
            await asyncio.sleep(0.5)
    return await retrying(pool, work)
