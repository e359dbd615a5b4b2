"""What is done aside: expired leases come back, the days of the event log are made ahead."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import LiteralString

import psycopg
from psycopg_pool import PoolTimeout

from vestnik.db.pool import Connection, Pool, call, retrying
from vestnik.db.refusals import OF_THE_ROWS
from vestnik.log import get_log
from vestnik.telemetry.instruments import swept as swept_deliveries
from vestnik.telemetry.instruments import workspaces

SWEEP_EVERY = 5.0
PARTITIONS_EVERY = 3600.0
SWEEP_BATCH = 500
log = get_log()


async def keep_sweeping(pool: Pool) -> None:
    """The dispatcher's: what a dead one has left behind comes back."""
    await _repeat(lambda: sweep(pool), SWEEP_EVERY)


async def keep_partitions_ahead(pool: Pool) -> None:
    """Every role's: whichever of them runs, no day comes unprepared."""
    await _repeat(lambda: ensure_event_partitions(pool), PARTITIONS_EVERY)


async def _repeat(work: Callable[[], Awaitable[int]], every: float) -> None:
    while True:
        pause = every
        try:
            await work()
        except (psycopg.Error, PoolTimeout) as e:
            log.warning("housekeeping.failed", error=str(e).strip())
            pause = min(every, 30.0)
        await asyncio.sleep(pause)


async def sweep(pool: Pool) -> int:
    """Every workspace; returns how many deliveries came back."""
    swept = 0
    for row in await call(pool, "select workspace_id from core.workspaces where status <> 'disabled'"):
        for sweep_of in ("sweep_sending", "sweep_claimed", "sweep_windows", "sweep_media"):
            try:
                count = await _sweep_workspace(pool, sweep_of, row["workspace_id"])
            except OF_THE_ROWS as e:
                log.error(f"sweep.{sweep_of}_failed", workspace_id=row["workspace_id"], error=str(e))
                continue
            if count:
                swept += count
                swept_deliveries.add(workspaces(row["workspace_id"]), sweep_of, by=count)
                log.info(f"sweep.{sweep_of}", workspace_id=row["workspace_id"], deliveries=count)
    return swept


async def _sweep_workspace(pool: Pool, sweep_of: LiteralString, workspace_id: str) -> int:
    """Page by page."""
    swept, count = 0, SWEEP_BATCH
    while count >= SWEEP_BATCH:
        found = await call(pool, f"select autopost.{sweep_of}(%s, %s) as swept", (workspace_id, SWEEP_BATCH))
        count = found[0]["swept"]
        swept += count
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
