"""Fires schedules whose tick has come. Run as many as you like: the database lets each tick fire once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import psycopg
from psycopg_pool import PoolTimeout

from vestnik.db.pool import Pool, call
from vestnik.db.refusals import OF_THE_ROWS
from vestnik.log import get_log
from vestnik.ops.jobs.clock import Rule, due

LOOK_EVERY = 1.0
log = get_log()


class Scheduler:
    def __init__(self, pool: Pool, *, look_every: float = LOOK_EVERY) -> None:
        self._pool, self._look_every = pool, look_every
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        while not self._stopping.is_set():
            try:
                await fire_due(self._pool)
            except (psycopg.Error, PoolTimeout) as e:
                log.warning("schedules.database_away", error=str(e).strip())
            try:
                async with asyncio.timeout(self._look_every):
                    await self._stopping.wait()
            except TimeoutError:
                pass


async def fire_due(pool: Pool, now: datetime | None = None, page: int = 1000) -> int:
    """Everything that is due, by the database's clock unless ``now`` is given; returns how many jobs that made."""
    fired = 0
    query = "select * from ops.due_schedules(%s, coalesce(%s, now()), %s, %s, %s)"
    place: tuple[Any, ...] = ("-infinity", "", "")
    while True:
        schedules = await call(pool, query, (page, now, *place))
        for schedule in schedules:
            fired += await _fire(pool, schedule)
        if len(schedules) < page:
            return fired
        now = schedules[-1]["asked_at"]
        place = tuple(schedules[-1][name] for name in ("next_at", "workspace_id", "schedule_id"))


async def _fire(pool: Pool, schedule: Mapping[str, Any]) -> int:
    names = (schedule["workspace_id"], schedule["schedule_id"])
    try:
        rule = Rule(schedule["cron"], schedule["every"], schedule["timezone"])
        ticks, following = due(rule, schedule["missed"], schedule["next_at"], schedule["asked_at"])
        arguments = (*names, schedule["next_at"], following, ticks, schedule["asked_at"], schedule["workspace_id"])
        return (await call(pool, _FIRE, arguments))[0]["jobs"] or 0
    except (*OF_THE_ROWS, OverflowError) as e:
        # One that cannot be must not stop the others. No date is as far away as some intervals are long.
        log.error("schedule.failed", workspace_id=names[0], schedule_id=names[1], error=str(e))
        return 0


_FIRE = """
with fired as materialized (
    select ops.fire_schedule(%s, %s, %s, %s, %s::timestamptz[], %s) as jobs
), woken as materialized (
    select pg_notify('vestnik_jobs', %s) from fired where jobs > 0
)
select fired.jobs from fired left join woken on true
"""
