"""What one can do with jobs: the only door for other parts of Vestnik."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

from vestnik.db.pool import Pool, call
from vestnik.errors import InvalidPayload, NotFound
from vestnik.ops.jobs.clock import Missed, Rule

NOBODY = "vestnik"  # who acts where nobody is named
SERVICE = "*"  # the workspace of jobs that are no workspace's
STATUSES = ("waiting", "running", "retry", "done", "dead", "cancelled")
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class NewJob:
    kind: str
    payload: Mapping[str, Any] | None = None
    unique_key: str | None = None
    run_at: datetime | None = None
    priority: int = 0
    max_attempts: int | None = None
    trace_id: str | None = None


@dataclass(frozen=True, slots=True)
class Enqueued:
    """``is_new`` is False when an unfinished job held the unique key: then this is that one."""

    job_id: UUID
    is_new: bool


async def enqueue(
    pool: Pool,
    workspace_id: str,
    kind: str,
    payload: Mapping[str, Any] | None = None,
    *,
    unique_key: str | None = None,
    run_at: datetime | None = None,
    priority: int = 0,
    max_attempts: int | None = None,
    trace_id: str | None = None,
) -> Enqueued:
    job = NewJob(kind, payload, unique_key, run_at, priority, max_attempts, trace_id)
    return (await enqueue_many(pool, workspace_id, [job]))[0]


async def enqueue_many(pool: Pool, workspace_id: str, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """All of them or none, in one transaction; wakes the runners once."""
    given = Jsonb([{key: value for key, value in asdict(job).items() if value is not None} for job in jobs])
    with _storable():
        rows = await call(pool, _ENQUEUE, (workspace_id, given, workspace_id))
    return [Enqueued(row["job_id"], row["is_new"]) for row in rows]


async def list_jobs(
    pool: Pool, workspace_id: str | None = None, *, status: str | None = None, kind: str | None = None, limit: int = 50
) -> list[Row]:
    """The newest first. What the service itself has done by the clock is told only to who asks for it: there is much of it."""
    if status is not None and status not in STATUSES:
        raise NotFound(f"no job can be {status!r}", hint=f"one of {', '.join(STATUSES)}")
    return await call(pool, _LIST, {"workspace_id": workspace_id, "status": status, "kind": kind, "limit": limit})


async def show_job(pool: Pool, workspace_id: str, job_id: UUID) -> Row:
    """One job with all its runs."""
    found = await call(pool, _SHOW, (workspace_id, job_id))
    if not found:
        raise NotFound(f"no job {job_id} in workspace {workspace_id}")
    runs = await call(pool, _RUNS, (workspace_id, job_id))
    return found[0] | {"runs": runs}


async def retry_job(pool: Pool, workspace_id: str, job_id: UUID, *, actor: str = NOBODY) -> None:
    """A dead or cancelled job goes again, with one more try."""
    query = f"select ops.retry_job(%s, %s), {_NOTE}, {_WAKE}"
    noted = (workspace_id, actor, "job_retried", f"job {job_id}")
    await call(pool, query, (workspace_id, job_id, *noted, workspace_id))


async def run_job_now(pool: Pool, workspace_id: str, job_id: UUID, *, actor: str = NOBODY) -> None:
    """A job that waits for its time goes at once."""
    query = f"select ops.run_job_now(%s, %s), {_NOTE}, {_WAKE}"
    noted = (workspace_id, actor, "job_run", f"job {job_id}")
    await call(pool, query, (workspace_id, job_id, *noted, workspace_id))


async def cancel_job(pool: Pool, workspace_id: str, job_id: UUID, *, actor: str = NOBODY) -> str:
    """Returns its status: one that is ``running`` ends as soon as its runner hears of it."""
    query = f"select ops.cancel_job(%s, %s) as status, {_NOTE}, pg_notify('vestnik_jobs', 'cancelled')"
    noted = (workspace_id, actor, "job_cancelled", f"job {job_id}")
    return str((await call(pool, query, (workspace_id, job_id, *noted)))[0]["status"])


async def pause_kind(pool: Pool, workspace_id: str, kind: str, *, actor: str = NOBODY) -> bool:
    """Nothing of this kind begins any more. False: it was paused already."""
    query = f"with done as materialized (select ops.pause_kind(%s, %s) as new) select new, {_NOTE_NEW} from done"
    noted = (workspace_id, actor, "kind_paused", f"jobs {kind}")
    return bool((await call(pool, query, (workspace_id, kind, *noted)))[0]["new"])


async def resume_kind(pool: Pool, workspace_id: str, kind: str, *, actor: str = NOBODY) -> bool:
    query = (
        f"with done as materialized (select ops.resume_kind(%s, %s) as new) select new, {_NOTE_NEW}, {_WAKE} from done"
    )
    noted = (workspace_id, actor, "kind_resumed", f"jobs {kind}")
    return bool((await call(pool, query, (workspace_id, kind, *noted, workspace_id)))[0]["new"])


async def list_kinds(pool: Pool, workspace_id: str | None = None) -> list[Row]:
    """How many jobs of each kind stand where, and whether it is paused."""
    return await call(pool, _KINDS, (workspace_id, workspace_id))


async def workspace_of_job(pool: Pool, job_id: UUID) -> str:
    query = (
        "select j.workspace_id from (select workspace_id from core.workspaces union all select '*') w"
        " join ops.jobs j on j.workspace_id = w.workspace_id and j.job_id = %s"
    )
    found = await call(pool, query, (job_id,))
    if not found:
        raise NotFound(f"no job {job_id}", hint="vestnik jobs list")
    return str(found[0]["workspace_id"])


async def list_errors(pool: Pool, workspace_id: str | None = None, *, limit: int = 50) -> list[Row]:
    """Why jobs died, and what else was worth a row; the newest first."""
    return await call(
        pool,
        "select * from ops.errors where %s::text is null or workspace_id = %s order by ts desc, error_id desc limit %s",
        (workspace_id, workspace_id, limit),
    )


async def put_schedule(
    pool: Pool,
    workspace_id: str,
    schedule_id: str,
    kind: str,
    payload: Mapping[str, Any] | None = None,
    *,
    cron: str | None = None,
    every: timedelta | None = None,
    timezone: str = "UTC",
    missed: Missed = "once",
    overlap: bool = True,
    enabled: bool = True,
    priority: int = 0,
    now: datetime | None = None,
) -> datetime:
    """Make or change a schedule; returns its next tick, which stays as long as the rule does.

    Without ``overlap`` a tick makes no job while an earlier one of this schedule is not finished.
    """
    moment = now or datetime.now(UTC)
    first = Rule(cron, every, timezone).first_after(moment)
    definition = {
        "kind": kind, "payload": dict(payload or {}), "priority": priority, "cron": cron,
        "every": every.total_seconds() if every else None, "timezone": timezone, "missed": missed, "overlap": overlap,
        "enabled": enabled,
    }  # fmt: skip
    query = "select ops.put_schedule(%s, %s, %s, %s, %s) as next_at"
    with _storable():
        rows = await call(pool, query, (workspace_id, schedule_id, Jsonb(definition), first, moment))
    next_at = rows[0]["next_at"]
    assert isinstance(next_at, datetime)
    return next_at


async def remove_schedule(pool: Pool, workspace_id: str, schedule_id: str) -> bool:
    query = "select ops.remove_schedule(%s, %s) as gone"
    return bool((await call(pool, query, (workspace_id, schedule_id)))[0]["gone"])


async def fire_schedule_now(pool: Pool, workspace_id: str, schedule_id: str, *, actor: str = NOBODY) -> Enqueued:
    """A job of a schedule beside its ticks, which stay as they are. At most one such job is unfinished."""
    noted = (workspace_id, actor, "schedule_fired", f"schedule {schedule_id}")
    found = await call(pool, _FIRE_NOW, (*noted, workspace_id, schedule_id))
    if not found:
        raise NotFound(f"no schedule {schedule_id} in workspace {workspace_id}", hint="vestnik jobs schedules")
    schedule = found[0]
    return await enqueue(
        pool,
        workspace_id,
        schedule["kind"],
        schedule["payload"],
        unique_key=f"schedule:{schedule_id}",
        priority=schedule["priority"],
    )


async def list_schedules(pool: Pool, workspace_id: str | None = None) -> list[Row]:
    return await call(
        pool,
        "select * from ops.schedules where %s::text is null or workspace_id = %s order by workspace_id, schedule_id",
        (workspace_id, workspace_id),
    )


@contextmanager
def _storable() -> Iterator[None]:
    """What is no JSON, or none that the database keeps: NUL, half a surrogate pair, NaN, an object of some class."""
    try:
        yield
    except (ValueError, psycopg.DataError) as e:
        raise InvalidPayload([f"it cannot be stored as JSON: {str(e).splitlines()[0]}"]) from e


_WAKE = "pg_notify('vestnik_jobs', %s)"
_ENQUEUE = """
with done as materialized (
    select * from ops.enqueue_jobs(%s, %s)
), woken as materialized (
    select pg_notify('vestnik_jobs', %s) from (select from done where is_new limit 1) any_new
)
select done.job_id, done.is_new from done left join woken on true order by done.item
"""
_NOTE = "core.note_change(%s, %s, %s, %s)"
_NOTE_NEW = "case when new then core.note_change(%s, %s, %s, %s) end"
_FIRE_NOW = (
    f"select kind, payload, priority, {_NOTE} as noted from ops.schedules where workspace_id = %s and schedule_id = %s"
)
_COLUMNS = """job_id, workspace_id, kind, status, priority, attempt, run_at, created_at, started_at, finished_at, worker,
    schedule_id, progress, last_error"""
_LIST = f"""
select {_COLUMNS} from ops.jobs
where (%(workspace_id)s::text is null or workspace_id = %(workspace_id)s)
  and (%(status)s::text is null or status = %(status)s) and (%(kind)s::text is null or kind = %(kind)s)
  and not (workspace_id = '*' and status = 'done' and num_nonnulls(%(workspace_id)s::text, %(status)s, %(kind)s) = 0)
order by job_id desc limit %(limit)s
"""
_SHOW = f"""
select {_COLUMNS}, unique_key, payload, tick, trace_id, max_attempts, lease, lease_until, cancel_requested_at from ops.jobs
where workspace_id = %s and job_id = %s
"""
_RUNS = """
select lease, attempt, outcome, worker, started_at, finished_at, error, stats from ops.job_runs
where workspace_id = %s and job_id = %s order by lease
"""
_KINDS = """
select workspace_id, kind, k.concurrency, k.paused_at, coalesce(n.waiting, 0) as waiting, coalesce(n.running, 0) as running,
       coalesce(n.dead, 0) as dead
from ops.job_kinds k full join (
    select workspace_id, kind, count(*) filter (where status in ('waiting', 'retry')) as waiting,
           count(*) filter (where status = 'running') as running, count(*) filter (where status = 'dead') as dead
    from ops.jobs where status in ('waiting', 'retry', 'running', 'dead') group by 1, 2) n using (workspace_id, kind)
where %s::text is null or workspace_id = %s
order by 1, 2
"""
