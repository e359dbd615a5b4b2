"""What is done aside: jobs of silent runners come back; and the rule by which what is long over goes."""

from __future__ import annotations

import asyncio
from typing import LiteralString

import psycopg
from psycopg_pool import PoolTimeout

from vestnik.db.pool import Pool, call
from vestnik.db.refusals import OF_THE_ROWS
from vestnik.log import get_log
from vestnik.ops.retention import Pages

SWEEP_EVERY = 5.0
BATCH = 500
log = get_log()


async def keep_house(pool: Pool) -> None:
    while True:
        try:
            await sweep(pool)
        except (psycopg.Error, PoolTimeout) as e:
            log.warning("jobs.housekeeping_failed", error=str(e).strip())
        await asyncio.sleep(SWEEP_EVERY)


async def sweep(pool: Pool) -> int:
    """Every workspace where something runs; returns how many jobs came back."""
    return await _in_each(pool, _WORKSPACES_THAT_RUN, "select ops.sweep_jobs(%s, p_limit => %s) as n")


async def _in_each(pool: Pool, workspaces: LiteralString, query: LiteralString) -> int:
    total = 0
    for row in await call(pool, workspaces):
        try:
            count = await _page_by_page(pool, query, row["workspace_id"])
        except OF_THE_ROWS as e:
            log.error("jobs.swept_not", workspace_id=row["workspace_id"], error=str(e))
            continue
        total += count
        if count:
            log.info("jobs.swept", workspace_id=row["workspace_id"], jobs=count)
    return total


async def _page_by_page(pool: Pool, query: LiteralString, workspace_id: str) -> int:
    total, count = 0, BATCH
    while count >= BATCH:
        count = (await call(pool, query, (workspace_id, BATCH)))[0]["n"]
        total += count
    return total


FINISHED_JOBS = Pages(
    "jobs",
    "finished jobs, the dead four times as long",
    """with gone as materialized (
           select ops.prune_jobs(%(workspace_id)s, %(keep)s, %(limit)s, coalesce(%(now)s::timestamptz, now())) as n
       )
       select n as removed, n >= %(limit)s as more,
              ops.note_retention(%(workspace_id)s, 'jobs', n, p_now => coalesce(%(now)s::timestamptz, now()))
       from gone""",
    """select count(*) as going, null as place, min(j.finished_at) as oldest
       from ops.jobs j, (select coalesce(%(now)s::timestamptz, now()) - %(keep)s::interval) x (before)
       where j.workspace_id = %(workspace_id)s and j.job_id < ops.first_id(before)
         and j.finished_at < before - %(keep)s::interval * case j.status when 'dead' then 3 else 0 end""",
    for_service=True,
)
_WORKSPACES_THAT_RUN = """
select w.workspace_id from (select workspace_id from core.workspaces union all select '*') w
where exists (select from ops.jobs j where j.workspace_id = w.workspace_id and j.status = 'running')"""
