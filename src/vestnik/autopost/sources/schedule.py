"""When a source is read: its own schedule on the jobs ground, made and changed together with the source."""

from __future__ import annotations

from datetime import UTC, datetime

from psycopg.types.json import Jsonb

from vestnik.db.pool import Connection
from vestnik.ops.jobs.clock import Rule

KIND = "source.pull"


async def schedule_source(connection: Connection, workspace_id: str, source_id: str) -> None:
    """In the caller's transaction. A source that was never read is read at once, to show that it works."""
    found = await connection.execute(
        "select every, cron, timezone, enabled, last_run_at from autopost.pull_sources"
        " where workspace_id = %s and source_id = %s",
        (workspace_id, source_id),
    )
    source = await found.fetchone()
    if source is None:
        return
    now = datetime.now(UTC)
    rule = Rule(source["cron"], source["every"], source["timezone"])
    payload = {"source_id": source_id}
    definition = {
        "kind": KIND, "payload": payload, "cron": rule.cron, "every": rule.every.total_seconds() if rule.every else None,
        "timezone": rule.timezone, "overlap": False, "enabled": source["enabled"],
    }  # fmt: skip
    await connection.execute(
        "select ops.put_schedule(%s, %s, %s, %s, %s)",
        (workspace_id, f"source:{source_id}", Jsonb(definition), rule.first_after(now), now),
    )
    if source["enabled"] and source["last_run_at"] is None:
        await connection.execute(
            "select ops.enqueue_job(%s, %s, %s, %s), pg_notify('vestnik_jobs', %s)",
            (workspace_id, KIND, Jsonb(payload), unique_key(source_id), workspace_id),
        )


def unique_key(source_id: str) -> str:
    """The one of the schedule's own jobs: a source has one job at a time, whoever asked for it."""
    return f"schedule:source:{source_id}"
