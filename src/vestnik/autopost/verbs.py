"""What one can do with autopost: the only door for other parts of Vestnik."""

from __future__ import annotations

import re
import secrets
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from vestnik.autopost.intake import secret_hash
from vestnik.db.pool import Pool, call, retrying
from vestnik.errors import ConfigError, NotFound

Row = dict[str, Any]
ENDPOINT_ID = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}"


async def publish(pool: Pool, workspace_id: str, payload: dict[str, Any], *, actor: str | None = None) -> Row:
    """Enqueue one post past the ingress gates: the caller is trusted, and on record as ``actor``. Raises InvalidPayload."""
    query = """
        with done as materialized (
            select * from autopost.enqueue_messages_and_deliveries(%s, null, 'webhook_push', %s)
        ), woken as materialized (
            select pg_notify('vestnik_wake', %s) from (select from done where enqueued > 0) any_row
        ), asked as materialized (
            select pg_notify('vestnik_jobs', %s) from (select from done where media_pending > 0) any_row
        ), noted as materialized (
            select core.note_change(%s, %s, 'published', 'message ' || done.message_id) from done
            where %s::text is not null and done.message_id is not null
        )
        select done.* from done left join woken on true left join asked on true left join noted on true"""
    named = (workspace_id, Jsonb(payload), workspace_id, workspace_id, workspace_id, actor, actor)
    return (await call(pool, query, named))[0]


async def create_endpoint(
    pool: Pool,
    workspace_id: str,
    endpoint_id: str,
    *,
    kind: str = "webhook_push",
    rps: float = 5.0,
    name: str = "",
    actor: str = "vestnik",
) -> str:
    """Make a door and return its secret. It is shown this once: only its hash is kept."""
    if not re.fullmatch(ENDPOINT_ID, endpoint_id):
        raise ConfigError(f"{endpoint_id!r} is no name for an endpoint", hint="letters, digits, '_', '.', '-'")
    secret = new_secret()
    meta = Jsonb({"name": name} if name else {})
    made = await call(pool, _NEW_ENDPOINT, (workspace_id, endpoint_id, kind, secret_hash(secret), rps, meta, actor))
    if not made:
        raise ConfigError(
            f"endpoint {endpoint_id} of {workspace_id} already exists",
            hint=f"another name, or a new secret for it: vestnik endpoint rotate {workspace_id} {endpoint_id}",
        )
    return secret


async def rotate_endpoint(
    pool: Pool, workspace_id: str, endpoint_id: str, *, actor: str = "vestnik"
) -> tuple[str, str]:
    """A new door with a new secret, then the old one is shut and kept for the record. Returns the new id and secret."""
    secret = new_secret()

    async def work(connection: Any) -> str:
        found = await connection.execute(
            "select * from autopost.rotate_endpoint(%s, %s, %s)",
            (workspace_id, endpoint_id, secret_hash(secret)),
        )
        new_id = str((await found.fetchone())["rotate_endpoint"])
        await connection.execute(_ROTATED, (workspace_id, actor, endpoint_id, new_id))
        return new_id

    return await retrying(pool, work), secret


async def list_endpoints(pool: Pool, workspace_id: str | None) -> list[Row]:
    return await call(
        pool,
        "select workspace_id, endpoint_id, kind, enabled, ingress_rps, max_payload_bytes, created_at"
        " from autopost.workspace_endpoints where %s::text is null or workspace_id = %s order by 1, created_at, 2",
        (workspace_id, workspace_id),
    )


async def queue_snapshot(pool: Pool, workspace_id: str | None = None) -> list[Row]:
    """How many deliveries stand where, and since when the oldest of them waits."""
    rows = await call(
        pool,
        "select s.* from core.workspaces w, lateral autopost.queue_snapshot(w.workspace_id) s"
        " where %s::text is null or w.workspace_id = %s order by s.workspace_id, s.status",
        (workspace_id, workspace_id),
    )
    return rows if rows or workspace_id is None else await _nothing_of(pool, workspace_id)


async def list_events(
    pool: Pool,
    workspace_id: str,
    *,
    minutes: int = 30,
    errors_only: bool = False,
    delivery_id: UUID | None = None,
    channel_id: str | None = None,
    limit: int = 200,
) -> list[Row]:
    """What happened lately, newest first."""
    where = ["workspace_id = %s", "ts >= now() - make_interval(mins => %s)"]
    arguments: list[Any] = [workspace_id, minutes]
    if errors_only:
        where.append("result = 'error'")
    for column, value in (("delivery_id", delivery_id), ("channel_id", channel_id)):
        if value is not None:
            where.append(f"{column} = %s")
            arguments.append(value)
    rows = await call(
        pool,
        "select ts, action, result, channel_id, delivery_id, attempt, error, meta from autopost.events where "
        + " and ".join(where)
        + " order by ts desc, id desc limit %s",
        (*arguments, limit),
    )
    return rows or await _nothing_of(pool, workspace_id)


async def why(pool: Pool, workspace_id: str, delivery_id: UUID) -> Row:
    """The gate that holds a delivery, and the earliest moment at which it can go."""
    found = await call(pool, "select * from autopost.why_delivery(%s, %s)", (workspace_id, delivery_id))
    if not found:
        raise NotFound(f"no delivery {delivery_id} in workspace {workspace_id}")
    return found[0]


async def workspace_of_delivery(pool: Pool, delivery_id: UUID) -> str:
    found = await call(
        pool,
        "select d.workspace_id from core.workspaces w"
        " join autopost.deliveries d on d.workspace_id = w.workspace_id and d.delivery_id = %s",
        (delivery_id,),
    )
    if not found:
        raise NotFound(f"no delivery {delivery_id}", hint=await _deliveries_of(pool, delivery_id))
    return str(found[0]["workspace_id"])


async def _deliveries_of(pool: Pool, message_id: UUID) -> str | None:
    found = await call(
        pool,
        "select d.channel_id, d.delivery_id from core.workspaces w"
        " join autopost.deliveries d on d.workspace_id = w.workspace_id and d.message_id = %s order by 2 limit 5",
        (message_id,),
    )
    if not found:
        return None
    named = ", ".join(f"{row['delivery_id']} ({row['channel_id']})" for row in found)
    return f"one of the deliveries of this message: {named}"


def new_secret() -> str:
    return "vpush_" + secrets.token_urlsafe(32)


async def _nothing_of(pool: Pool, workspace_id: str) -> list[Row]:
    """Nothing, of a workspace that is there."""
    if not await call(pool, "select 1 from core.workspaces where workspace_id = %s", (workspace_id,)):
        raise NotFound(f"no workspace {workspace_id}", hint="vestnik apply FILE makes one")
    return []


_NEW_ENDPOINT = """
with made as (
    insert into autopost.workspace_endpoints (workspace_id, endpoint_id, kind, secret_hash, ingress_rps, meta)
    values (%s, %s, %s, %s, %s, %s) on conflict (workspace_id, endpoint_id) do nothing returning *
)
select endpoint_id, core.note_change(workspace_id, %s, 'created', 'endpoint ' || endpoint_id,
           jsonb_build_object('kind', kind, 'ingress_rps', ingress_rps)) from made
"""
_ROTATED = (
    "select core.note_change(%s, %s, 'rotated', 'endpoint ' || %s::text, jsonb_build_object('new_endpoint', %s::text))"
)
