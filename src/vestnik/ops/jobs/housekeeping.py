"""What is done aside: jobs of silent runners come back, and what is long over goes."""

from __future__ import annotations

import asyncio
from typing import LiteralString

import psycopg
from psycopg_pool import PoolTimeout

from vestnik.db.pool import Pool, call
from vestnik.db.refusals import OF_THE_ROWS
from vestnik.log import get_log

SWEEP_EVERY = 5.0
PRUNE_EVERY = 3600.0
BATCH = 500
log = get_log()


async def keep_house(pool: Pool) -> None:
    last_pruned = float("-inf")
    while True:
        try:
            await sweep(pool)
            if asyncio.get_running_loop().time() - last_pruned >= PRUNE_EVERY:
                await prune(pool)
                last_pruned = asyncio.get_running_loop().time()
        except (psycopg.Error, PoolTimeout) as e:
            log.warning("jobs.housekeeping_failed", error=str(e).strip())
        await asyncio.sleep(SWEEP_EVERY)


async def sweep(pool: Pool) -> int:
    """Every workspace where something runs; returns how many jobs came back."""
    return await _in_each(pool, _WORKSPACES_THAT_RUN, "select ops.sweep_jobs(%s, p_limit => %s) as n", "jobs.swept")


async def prune(pool: Pool) -> int:
    """What is older than the functions' default; returns how many jobs are forgotten."""
    return await _in_each(pool, _WORKSPACES, "select ops.prune_jobs(%s, p_limit => %s) as n", "jobs.pruned")


async def _in_each(pool: Pool, workspaces: LiteralString, query: LiteralString, action: str) -> int:
    total = 0
    for row in await call(pool, workspaces):
        try:
            count = await _page_by_page(pool, query, row["workspace_id"])
        except OF_THE_ROWS as e:
            log.error(f"{action}_not", workspace_id=row["workspace_id"], error=str(e))
            continue
        total += count
        if count:
            log.info(action, workspace_id=row["workspace_id"], jobs=count)
    return total


async def _page_by_page(pool: Pool, query: LiteralString, workspace_id: str) -> int:
    total, count = 0, BATCH
    while count >= BATCH:
        count = (await call(pool, query, (workspace_id, BATCH)))[0]["n"]
        total += count
    return total


_WORKSPACES = "select workspace_id from core.workspaces union all select '*'"
_WORKSPACES_THAT_RUN = """
select w.workspace_id from (select workspace_id from core.workspaces union all select '*') w
where exists (select from ops.jobs j where j.workspace_id = w.workspace_id and j.status = 'running')"""
