"""Outcomes that nobody knows: a channel with ``on_unknown: hold`` keeps such a delivery until a person has looked."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, LiteralString
from uuid import UUID

from vestnik.db.pool import Pool, call
from vestnik.errors import NotFound

PAGE = 500
Row = dict[str, Any]


async def held(pool: Pool, workspace_id: str, *, channel_id: str | None = None, limit: int = 200) -> list[Row]:
    """What is held, the oldest first; ``total`` is how many there are."""
    await call(pool, "select autopost.require_workspace(%s)", (workspace_id,))
    query = "select * from autopost.unknown_deliveries(%s, %s, %s)"
    return await call(pool, query, (workspace_id, channel_id, limit))


async def confirm(
    pool: Pool,
    workspace_id: str,
    delivery_id: UUID,
    *,
    operator: str,
    reason: str,
    provider_message_id: str | None = None,
) -> str:
    """Somebody saw the post: it is sent. Raises NotFound, and IllegalMove when it is not held (any more)."""
    query = "select autopost.confirm_delivery(%s, %s, %s, %s, %s) as outcome"
    found = await call(pool, query, (workspace_id, operator, reason, delivery_id, provider_message_id))
    return str(found[0]["outcome"])


async def resend(pool: Pool, workspace_id: str, delivery_id: UUID, *, operator: str, reason: str) -> str:
    """It goes again, as soon as its gates let it. Raises like ``confirm``."""
    query = """
        with done as materialized (
            select autopost.resend_delivery(%s, %s, %s, %s) as outcome
        )
        select done.outcome, pg_notify('vestnik_wake', %s) from done"""
    found = await call(pool, query, (workspace_id, operator, reason, delivery_id, workspace_id))
    return str(found[0]["outcome"])


async def confirm_channel(
    pool: Pool, workspace_id: str, channel_id: str, *, operator: str, reason: str, until: datetime | None = None
) -> list[Row]:
    """All that a channel holds, or held ``until`` then."""
    query = "select * from autopost.confirm_deliveries(%s, %s, %s, null, %s, %s, %s)"
    return await _page_by_page(pool, query, workspace_id, channel_id, operator, reason, until)


async def resend_channel(
    pool: Pool, workspace_id: str, channel_id: str, *, operator: str, reason: str, until: datetime | None = None
) -> list[Row]:
    query = "select * from autopost.resend_deliveries(%s, %s, %s, null, %s, %s, %s)"
    done = await _page_by_page(pool, query, workspace_id, channel_id, operator, reason, until)
    if done:
        await call(pool, "select pg_notify('vestnik_wake', %s)", (workspace_id,))
    return done


async def _page_by_page(
    pool: Pool,
    query: LiteralString,
    workspace_id: str,
    channel_id: str,
    operator: str,
    reason: str,
    until: datetime | None,
) -> list[Row]:
    """In many short transactions: late results of the same deliveries must not wait for the whole channel."""
    known = "select now() as now from autopost.channels where workspace_id = %s and channel_id = %s"
    found = await call(pool, known, (workspace_id, channel_id))
    if not found:
        raise NotFound(f"no channel {channel_id} in workspace {workspace_id}")
    upto = until or found[0]["now"]
    done: list[Row] = []
    page: Sequence[Row] = await call(pool, query, (workspace_id, operator, reason, channel_id, upto, PAGE))
    while page:
        done += [row for row in page if row["outcome"] != "not_held"]
        page = await call(pool, query, (workspace_id, operator, reason, channel_id, upto, PAGE))
    return done
