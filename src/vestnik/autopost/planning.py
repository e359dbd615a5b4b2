"""What is planned and not yet claimed: withdraw it, move it, replace it; and posts that come too close to each other."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NoReturn
from uuid import UUID

from psycopg.types.json import Jsonb

from vestnik.db.pool import Pool, call
from vestnik.errors import NotFound

Row = dict[str, Any]


async def cancel(
    pool: Pool,
    workspace_id: str,
    message_id: UUID,
    *,
    operator: str,
    reason: str,
    channels: Sequence[str] | None = None,
) -> list[Row]:
    """What waits of a message is withdrawn; ``outcome`` is ``too_late`` where a send has begun or is about to.

    Raises NotFound when nothing of it waits."""
    query = "select * from autopost.cancel_deliveries(%s, %s, %s, %s, null, %s)"
    arguments = (workspace_id, operator, reason, message_id, _or_all(channels))
    return await call(pool, query, arguments) or await _nothing_waits(pool, workspace_id, message_id)


async def reschedule(
    pool: Pool,
    workspace_id: str,
    message_id: UUID,
    scheduled_for: datetime | None,
    *,
    operator: str,
    reason: str,
    channels: Sequence[str] | None = None,
) -> list[Row]:
    """Another moment for what waits of a message; without one, as soon as may be. ``outcome`` is ``held`` where the last
    attempt waits for a person's word. Raises NotFound when nothing of it waits."""
    query = """
        with moved as materialized (
            select * from autopost.reschedule_deliveries(%s, %s, %s, %s, %s, null, %s)
        ), woken as materialized (
            select pg_notify('vestnik_wake', %s) from (select from moved limit 1) any_row
        )
        select moved.* from moved left join woken on true"""
    arguments = (workspace_id, operator, reason, scheduled_for, message_id, _or_all(channels), workspace_id)
    return await call(pool, query, arguments) or await _nothing_waits(pool, workspace_id, message_id)


async def replace(pool: Pool, workspace_id: str, message_id: UUID, payload: Row, *, operator: str) -> Row:
    """Another post instead of one that waits, into the same channels, or those of them that it names; ``kept`` says which
    keep the old one, and why. Raises NotFound when nothing of it waits, InvalidPayload for what a push would refuse and
    for what no channel would get; then nothing has changed."""
    query = """
        with done as materialized (
            select * from autopost.replace_message(%s, %s, %s, %s)
        ), woken as materialized (
            select pg_notify('vestnik_wake', %s), pg_notify('vestnik_jobs', %s) from (select from done limit 1) any_row
        )
        select done.* from done left join woken on true"""
    arguments = (workspace_id, operator, message_id, Jsonb(payload), workspace_id, workspace_id)
    try:
        return (await call(pool, query, arguments))[0]
    except NotFound:
        await _nothing_waits(pool, workspace_id, message_id)
        raise


async def conflicts(
    pool: Pool, workspace_id: str, gap: timedelta | None = None, *, limit: int = 200
) -> tuple[list[Row], bool]:
    """Pairs of posts that one channel would show closer to each other than its minimum gap, or than ``gap``: the first of
    them, and whether there are more."""
    await call(pool, "select autopost.require_workspace(%s)", (workspace_id,))
    query = "select * from autopost.schedule_conflicts(%s, %s, p_limit => %s)"
    found = await call(pool, query, (workspace_id, gap, limit + 1))
    return found[:limit], len(found) > limit


async def planned(pool: Pool, workspace_id: str, *, channel_id: str | None = None, limit: int = 200) -> list[Row]:
    """What waits, in the order in which it goes."""
    await call(pool, "select autopost.require_workspace(%s)", (workspace_id,))
    query = "select * from autopost.planned_deliveries(%s, %s, %s)"
    return await call(pool, query, (workspace_id, channel_id, limit))


async def workspace_of_message(pool: Pool, message_id: UUID) -> str:
    found = await call(
        pool,
        "select m.workspace_id from core.workspaces w"
        " join autopost.messages m on m.workspace_id = w.workspace_id and m.message_id = %s",
        (message_id,),
    )
    if not found:
        raise NotFound(f"no message {message_id}")
    return str(found[0]["workspace_id"])


def _or_all(channels: Sequence[str] | None) -> list[str] | None:
    return list(channels) if channels else None


async def _nothing_waits(pool: Pool, workspace_id: str, message_id: UUID) -> NoReturn:
    known = await call(
        pool,
        "select 1 from autopost.messages where workspace_id = %s and message_id = %s",
        (workspace_id, message_id),
    )
    raise NotFound(f"nothing of message {message_id} waits to be sent" if known else f"no message {message_id}")
