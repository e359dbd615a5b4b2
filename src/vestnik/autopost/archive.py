"""Messages and deliveries as they lie there, page by page: by the moment of their making, the newest first."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from vestnik.db.pool import Pool, call
from vestnik.errors import NotFound

Row = dict[str, Any]
Status = Literal["queued", "claimed", "sending", "sent", "retry", "deduped", "failed_permanent", "dead"]


async def list_messages(
    pool: Pool, workspace_id: str, *, source_ref: str | None = None, before: UUID | None = None, limit: int = 50
) -> list[Row]:
    """Those older than ``before``."""
    arguments = (workspace_id, before, before, source_ref, source_ref, limit)
    return await call(pool, _MESSAGES, arguments)


async def show_message(pool: Pool, workspace_id: str, message_id: UUID) -> Row:
    """With its deliveries, one for each channel that it was meant for."""
    rows = await call(pool, _MESSAGE, (workspace_id, message_id))
    if not rows:
        raise NotFound(f"no message {message_id} in workspace {workspace_id}")
    return rows[0] | {"deliveries": await call(pool, _DELIVERIES_OF, (workspace_id, message_id))}


async def list_deliveries(
    pool: Pool,
    workspace_id: str,
    *,
    status: Status | None = None,
    channel_id: str | None = None,
    before: UUID | None = None,
    limit: int = 50,
) -> list[Row]:
    """Those older than ``before``."""
    filters = {"d.delivery_id < %s": before, "d.status = %s": status, "d.channel_id = %s": channel_id}
    asked = {clause: value for clause, value in filters.items() if value is not None}
    where = "".join(f" and {clause}" for clause in asked)
    query = f"{_DELIVERIES}{where} order by d.delivery_id desc limit %s"
    return await call(pool, query, (workspace_id, *asked.values(), limit))


async def show_delivery(pool: Pool, workspace_id: str, delivery_id: UUID) -> Row:
    rows = await call(pool, _DELIVERY, (workspace_id, delivery_id))
    if not rows:
        raise NotFound(f"no delivery {delivery_id} in workspace {workspace_id}")
    return rows[0]


# Ids are ordered by time and lead a key with the workspace, so a page is a walk along it, whatever lies before.
_MESSAGES = """
select m.message_id, m.created_at, m.last_seen_at, m.seen_count, m.tags, m.source_ref, left(m.payload ->> 'text', 200) as shows
from autopost.messages m
where m.workspace_id = %s and (%s::uuid is null or m.message_id < %s) and (%s::text is null or m.source_ref = %s)
order by m.message_id desc limit %s
"""
_MESSAGE = """
select m.message_id, m.created_at, m.last_seen_at, m.seen_count, m.tags, m.source_ref, m.source, m.payload
from autopost.messages m where m.workspace_id = %s and m.message_id = %s
"""
# Infinity is how a row waits for something else than time, and no moment.
_COLUMNS = """d.delivery_id, d.message_id, d.channel_id, d.status, d.attempt, d.created_at, d.scheduled_for,
    nullif(d.not_before, 'infinity') as not_before, nullif(d.next_retry_at, 'infinity') as next_retry_at, d.held_at, d.sending_started_at, d.sent_at, d.updated_at, d.provider_message_id, d.last_error"""
# No index leads from a message to its deliveries: every send would pay for it. They are found by channel and content, those
# that failed by the index of failures.
_DELIVERIES_OF = f"""
with of_message as materialized (
    select * from autopost.messages m where m.workspace_id = %s and m.message_id = %s
), found as (
    select f.delivery_id from of_message m join autopost.channels c on c.workspace_id = m.workspace_id,
    lateral (
        select d.delivery_id, d.message_id from autopost.deliveries d
        where d.workspace_id = m.workspace_id and d.channel_id = c.channel_id and d.content_hash = m.content_hash
          and d.status in ('queued', 'claimed', 'sending', 'retry')
        union all
        select d.delivery_id, d.message_id from autopost.deliveries d
        where d.workspace_id = m.workspace_id and d.channel_id = c.channel_id and d.content_hash = m.content_hash
          and d.status in ('sent', 'deduped')) f
    where f.message_id = m.message_id
    union all
    select d.delivery_id from of_message m join autopost.deliveries d on d.workspace_id = m.workspace_id
    where d.status in ('failed_permanent', 'dead') and d.updated_at >= m.created_at and d.message_id = m.message_id
)
select {_COLUMNS} from of_message m join autopost.deliveries d on d.workspace_id = m.workspace_id
where d.delivery_id in (select delivery_id from found) order by d.channel_id, d.delivery_id
"""
_DELIVERIES = f"select {_COLUMNS} from autopost.deliveries d where d.workspace_id = %s"
_DELIVERY = f"""
select {_COLUMNS}, d.lease, d.claimed_at, d.claim_token, d.trace_id, d.template_version, d.rendered_text, d.render_meta
from autopost.deliveries d where d.workspace_id = %s and d.delivery_id = %s
"""
