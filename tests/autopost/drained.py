"""A drain by the real functions, each call at a moment of its own: whatever may go is taken, and each send is done at once."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conftest import Autopost

AWHILE = timedelta(milliseconds=200)


async def drain(
    workspace: Autopost, until: timedelta = timedelta(days=3), stops: Collection[datetime] = ()
) -> list[tuple[datetime, Any]]:
    """What began, and when. ``stops``: moments at which it looks, whatever it expects."""
    begun: list[tuple[datetime, Any]] = []
    ends = workspace.now + until
    while workspace.now < ends:
        rows = await workspace.take(1000)
        begun += [(workspace.now, row) for row in rows]
        if rows:
            await workspace.settle(*({"delivery_id": str(r["delivery_id"]), "lease": r["lease"]} for r in rows))
            continue
        if not set(await workspace.statuses()) & {"queued", "claimed", "retry"}:
            break
        workspace.now = min(await _next(workspace, ends), *(at for at in (*stops, ends) if at > workspace.now))
    return begun


async def _next(workspace: Autopost, ends: datetime) -> datetime:
    """When to look again: at the next slot, or when the first that has none yet may go. Where a horizon is full of slots, or
    what stands first is not what goes first, that is a little later."""
    heads = await workspace.sql(
        """select (autopost.why_delivery(d.workspace_id, d.delivery_id, %s)).earliest as at
           from (select distinct on (d.channel_id, d.status) d.* from autopost.deliveries d
                 where d.workspace_id = %s and d.status in ('queued', 'claimed', 'retry') and d.held_at is null
                 order by d.channel_id, d.status, greatest(d.not_before, d.next_retry_at), d.created_at) d""",
        workspace.now, workspace.workspace,
    )  # fmt: skip
    slot = await workspace.value("select autopost.next_begin_at(%s, %s)", workspace.workspace, workspace.now)
    found = [at for at in (slot, *(head["at"] for head in heads)) if at is not None]
    soonest = min(found, default=ends)
    return soonest if soonest > workspace.now else workspace.now + AWHILE
