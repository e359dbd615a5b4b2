"""What one can do with sources, beside declaring them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from vestnik.adapters.contract import Adapter
from vestnik.autopost.preview import preview
from vestnik.autopost.sources.pull import Puller
from vestnik.autopost.sources.schedule import KIND, unique_key
from vestnik.db.pool import Pool, call
from vestnik.errors import InvalidPayload, NotFound
from vestnik.ops.jobs.verbs import enqueue

Row = dict[str, Any]


async def list_sources(pool: Pool, workspace_id: str | None = None) -> list[Row]:
    """Each with its rhythm, its next time, and how its last run ended."""
    return await call(
        pool,
        """select s.workspace_id, s.source_id, s.kind, s.enabled, s.every, s.cron, s.timezone, c.next_at, s.last_run_at,
                  s.failures, s.last_error
           from autopost.pull_sources s
           left join ops.schedules c on c.workspace_id = s.workspace_id and c.schedule_id = 'source:' || s.source_id
                and c.enabled
           where %s::text is null or s.workspace_id = %s order by 1, 2""",
        (workspace_id, workspace_id),
    )


async def list_runs(pool: Pool, workspace_id: str, source_id: str | None = None, *, limit: int = 20) -> list[Row]:
    """The newest first. ``running`` for long is a run whose process was killed."""
    if source_id is not None:
        await call(pool, "select autopost.require_source(%s, %s)", (workspace_id, source_id))
    return await call(
        pool,
        """select r.run_id, r.stats_json ->> 'source_id' as source_id, r.started_at, r.finished_at,
                  r.stats_json ->> 'outcome' as outcome, r.stats_json - '{source_id,outcome}'::text[] as stats
           from autopost.ingest_runs r
           where r.workspace_id = %s and r.kind = 'pull' and (%s::text is null or r.stats_json ->> 'source_id' = %s)
           order by r.started_at desc, r.run_id desc limit %s""",
        (workspace_id, source_id, source_id, limit),
    )


async def try_source(
    puller: Puller,
    adapters: Mapping[str, Adapter],
    workspace_id: str,
    source_id: str,
    *,
    from_the_start: bool = False,
    most: int = 20,
) -> Row:
    """What the next run would take and where each item would go, without a row of it; raises SourceFailed."""
    items, about = await puller.look(workspace_id, source_id, from_the_start=from_the_start, most=most)
    return {**about, "items": [await _with_channels(puller.pool, adapters, workspace_id, item) for item in items]}


async def run_soon(pool: Pool, workspace_id: str, source_id: str, *, actor: str = "vestnik") -> UUID:
    """The job that reads it: a new one, or the one that is waiting or running already."""
    query = "select autopost.require_source(%s, %s), core.note_change(%s, %s, 'run_asked', %s)"
    await call(pool, query, (workspace_id, source_id, workspace_id, actor, f"source {source_id}"))
    job = await enqueue(pool, workspace_id, KIND, {"source_id": source_id}, unique_key=unique_key(source_id))
    return job.job_id


async def remove_source(pool: Pool, workspace_id: str, source_id: str, *, actor: str = "vestnik") -> None:
    """With its place and its memory of items; what it has posted stays."""
    query = """with done as materialized (select autopost.remove_source(%s, %s) as removed)
               select removed, case when removed then core.note_change(%s, %s, 'removed', %s) end from done"""
    found = await call(pool, query, (workspace_id, source_id, workspace_id, actor, f"source {source_id}"))
    if not found[0]["removed"]:
        raise NotFound(f"no source {source_id} in workspace {workspace_id}")


async def _with_channels(pool: Pool, adapters: Mapping[str, Adapter], workspace_id: str, item: Row) -> Row:
    if item["outcome"] != "take":
        return item
    try:
        found = await preview(pool, adapters, workspace_id, item["payload"])
    except InvalidPayload as e:
        return item | {"outcome": "invalid", "reason": str(e)}
    return item | {"matching": found["matching"], "channels": found["channels"]}
