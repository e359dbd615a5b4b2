"""What an operator does by hand, each the specification's own operation with its event: what gave up goes once more, channels
stop and go on, what is stuck comes loose."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, LiteralString
from uuid import UUID

from vestnik.db.pool import Pool, call

Row = dict[str, Any]
RELEASED_AT_ONCE = 1000  # rows that one transaction moves


async def requeue(
    pool: Pool, workspace_id: str, delivery_ids: Sequence[UUID], *, operator: str, reason: str
) -> list[Row]:
    """One more try for each. ``outcome`` is ``refused``, with the ``detail``, where that would mend nothing."""
    query = _woken("select * from autopost.requeue_deliveries(%(ws)s, %(operator)s, %(reason)s, %(ids)s)")
    about = {"ws": workspace_id, "operator": operator, "reason": reason}
    return await call(pool, query, about | {"ids": list(delivery_ids)})


async def pause(
    pool: Pool, workspace_id: str, channel_id: str, duration: timedelta, *, operator: str, reason: str
) -> datetime:
    """Nothing of the channel begins before the moment that is returned. Raises NotFound."""
    query = "select autopost.pause_channel(%s, %s, %s, %s, %s) as until"
    until: datetime = (await call(pool, query, (workspace_id, operator, reason, channel_id, duration)))[0]["until"]
    return until


async def resume(pool: Pool, workspace_id: str, channel_id: str, *, operator: str, reason: str) -> list[str]:
    """Whatever stopped the channel is over. Raises NotFound."""
    query = "select c from autopost.resume_channel(%(ws)s, %(operator)s, %(reason)s, %(what)s) c"
    return await _switch(pool, query, workspace_id, operator, reason, channel_id)


async def disable(pool: Pool, workspace_id: str, channel_id: str, *, operator: str, reason: str) -> list[str]:
    """Until it is resumed. Raises NotFound."""
    query = "select c from autopost.disable_channel(%(ws)s, %(operator)s, %(reason)s, %(what)s) c"
    return await _switch(pool, query, workspace_id, operator, reason, channel_id)


async def disable_group(
    pool: Pool, workspace_id: str, rate_group: str, *, operator: str, reason: str, platform: str | None = None
) -> list[str]:
    """All channels of the group; returns which. Raises NotFound when there is none."""
    query = "select c from autopost.disable_group(%(ws)s, %(operator)s, %(reason)s, %(what)s, %(platform)s) c"
    return await _switch(pool, query, workspace_id, operator, reason, rate_group, platform)


async def enable_group(
    pool: Pool, workspace_id: str, rate_group: str, *, operator: str, reason: str, platform: str | None = None
) -> list[str]:
    """As ``resume``, for all channels of the group. Raises NotFound when there is none."""
    query = "select c from autopost.enable_group(%(ws)s, %(operator)s, %(reason)s, %(what)s, %(platform)s) c"
    return await _switch(pool, query, workspace_id, operator, reason, rate_group, platform)


async def release_stuck(
    pool: Pool, workspace_id: str, *, operator: str, older_than: timedelta = timedelta(minutes=10)
) -> list[Row]:
    """What has been claimed or sending for so long goes again in fifteen seconds, or is held where its channel wants no post
    twice."""
    await call(pool, "select autopost.require_workspace(%s)", (workspace_id,))
    query = _woken("select * from autopost.release_stuck(%(ws)s, %(operator)s, %(older_than)s, %(limit)s)")
    about = {"ws": workspace_id, "operator": operator, "older_than": older_than, "limit": RELEASED_AT_ONCE}
    released: list[Row] = []
    while page := await call(pool, query, about):
        released += page
        if len(page) < RELEASED_AT_ONCE:
            break
    return released


async def _switch(
    pool: Pool,
    query: LiteralString,
    workspace_id: str,
    operator: str,
    reason: str,
    what: str,
    platform: str | None = None,
) -> list[str]:
    about = {"ws": workspace_id, "operator": operator, "reason": reason, "what": what, "platform": platform}
    return [row["c"] for row in await call(pool, _woken(query), about)]


def _woken(query: LiteralString) -> LiteralString:
    """The same rows; where there are any, dispatchers look at once."""
    return (
        "with done as materialized (" + query + "), woken as materialized ("
        "select pg_notify('vestnik_wake', %(ws)s) from (select from done limit 1) any_row"
        ") select done.* from done left join woken on true"
    )
