"""Many deliveries at once, chosen by what they have in common: counted first, then moved page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Literal, LiteralString

from vestnik.db.pool import Pool, call

Row = dict[str, Any]
Deed = Literal["requeue", "cancel"]
Status = Literal["dead", "failed_permanent", "queued", "retry"]
STATUSES: dict[Deed, tuple[Status, ...]] = {"requeue": ("dead", "failed_permanent"), "cancel": ("queued", "retry")}
PAGE = 1000  # rows that one transaction moves


@dataclass(frozen=True, slots=True)
class Selection:
    """Deliveries of one status; whatever is given must hold. ``since`` and ``until``: when it failed, or when it came in."""

    status: Status
    channels: Sequence[str] | None = None
    platform: str | None = None
    rate_group: str | None = None
    code: str | None = None
    category: str | None = None
    tag: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def arguments(self, workspace_id: str) -> Row:
        return asdict(self) | {"ws": workspace_id, "channels": list(self.channels) if self.channels else None}


async def count(pool: Pool, workspace_id: str, deed: Deed, selection: Selection) -> tuple[list[Row], Selection]:
    """How many deliveries of each channel would be moved, and how many of the selected would be refused; and the same
    selection as of now, so that what is moved next is what was counted."""
    await call(pool, "select autopost.require_workspace(%s)", (workspace_id,))
    now: datetime = (await call(pool, "select now() as now"))[0]["now"]
    counted = replace(selection, until=min(selection.until or now, now))
    return await call(pool, _COUNT[deed], counted.arguments(workspace_id)), counted


async def move_page(
    pool: Pool, workspace_id: str, deed: Deed, selection: Selection, *, operator: str, reason: str, limit: int = PAGE
) -> tuple[int, bool]:
    """Some of the selected, in one transaction: how many were moved, and whether there may be more. What was moved is not
    selected again, so this goes on where another call has stopped."""
    about = {"operator": operator, "reason": reason, "limit": limit}
    found = await call(pool, _MOVE[deed], selection.arguments(workspace_id) | about)
    return found[0]["moved"], found[0]["picked"] == limit


async def move_all(
    pool: Pool, workspace_id: str, deed: Deed, selections: Iterable[Selection], *, operator: str, reason: str
) -> AsyncIterator[int]:
    """Page by page until nothing selected is left; yields how many each page moved. Who stops listening stops it, and who
    calls it again goes on."""
    for selection in selections:
        more = True
        while more:
            moved, more = await move_page(pool, workspace_id, deed, selection, operator=operator, reason=reason)
            yield moved


_SELECTED: LiteralString = """autopost.select_deliveries(
    %(ws)s, %(status)s, %(channels)s, %(platform)s, %(rate_group)s, %(code)s, %(category)s, %(tag)s, %(since)s, %(until)s) d"""

_COUNT: dict[Deed, LiteralString] = {
    "requeue": f"""
        select d.channel_id, count(*) filter (where autopost.may_requeue(d.status, d.last_error)) as count,
               count(*) filter (where not autopost.may_requeue(d.status, d.last_error)) as refused, min(d.updated_at) as oldest
        from {_SELECTED} group by d.channel_id order by d.channel_id""",
    "cancel": f"""
        select d.channel_id, count(*) as count, 0 as refused, min(d.created_at) as oldest
        from {_SELECTED} group by d.channel_id order by d.channel_id""",
}

_PICKED: dict[Deed, LiteralString] = {
    "requeue": f"""
        select d.delivery_id from {_SELECTED} where autopost.may_requeue(d.status, d.last_error)
        order by d.updated_at limit %(limit)s""",
    "cancel": f"select d.delivery_id from {_SELECTED} limit %(limit)s",
}
_MOVED: dict[Deed, LiteralString] = {
    "requeue": "autopost.requeue_deliveries(%(ws)s, %(operator)s, %(reason)s, picked.ids)",
    "cancel": "autopost.cancel_deliveries(%(ws)s, %(operator)s, %(reason)s, null, picked.ids)",
}


def _page(deed: Deed) -> LiteralString:
    return (
        "with picked as materialized (select array_agg(x.delivery_id) as ids from (" + _PICKED[deed] + ") x), "
        "done as materialized (select r.outcome from picked, " + _MOVED[deed] + " r where picked.ids is not null), "
        "woken as materialized ("
        "select pg_notify('vestnik_wake', %(ws)s) from (select from done limit 1) any_row"
        ") select coalesce(cardinality(picked.ids), 0) as picked,"
        " (select count(*) from done where outcome in ('requeued', 'cancelled')) as moved"
        " from picked left join woken on true"
    )


_MOVE: dict[Deed, LiteralString] = {"requeue": _page("requeue"), "cancel": _page("cancel")}
