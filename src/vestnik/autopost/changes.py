"""Who did what: the record of changes, and those events that an operator has caused."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from vestnik.db.pool import Pool, call

Row = dict[str, Any]
MANUAL = (
    *("manual_requeue", "channel_paused", "channel_disabled", "channel_enabled", "auth_rotated", "confirmed"),
    *("cancelled", "rescheduled", "held"),
)


async def list_changes(
    pool: Pool,
    workspace_id: str,
    *,
    actor: str | None = None,
    before: datetime | None = None,
    since: timedelta = timedelta(days=30),
    limit: int = 50,
) -> list[Row]:
    """The newest first, those older than ``before``. What was done at one moment comes together, beyond ``limit`` too, and
    what was done to many deliveries at once is one line."""
    asked = {
        "ws": workspace_id, "actor": actor, "before": before, "since": since, "limit": limit, "manual": list(MANUAL),
    }  # fmt: skip
    return await call(pool, _CHANGES, asked)


_CHANGES = """
with asked as (
    select coalesce(%(before)s::timestamptz, 'infinity') as before,
           least(coalesce(%(before)s::timestamptz, now()), now()) - %(since)s::interval as since
), noted as (
    select c.ts, c.actor, c.action, c.subject, c.details from core.changes c, asked a
    where c.workspace_id = %(ws)s and c.ts < a.before and c.ts >= a.since
      and (%(actor)s::text is null or c.actor = %(actor)s)
    order by c.ts desc fetch first %(limit)s rows with ties
), done as (
    select e.ts, e.meta ->> 'operator' as actor, e.action,
           case when count(*) > 1 and min(e.delivery_id::text) is not null then count(*) || ' deliveries'
                when count(*) > 1 then count(*) || ' channels'
                when min(e.delivery_id::text) is not null then 'delivery ' || min(e.delivery_id::text)
                else 'channel ' || min(e.channel_id) end as subject,
           jsonb_strip_nulls(jsonb_build_object('reason', e.meta ->> 'reason', 'channels',
               to_jsonb((array_agg(distinct e.channel_id))[1:20]))) as details
    from autopost.events e, asked a
    where e.workspace_id = %(ws)s and e.action = any (%(manual)s) and e.ts < a.before and e.ts >= a.since
      and e.meta ? 'operator' and (%(actor)s::text is null or e.meta ->> 'operator' = %(actor)s)
    group by e.ts, e.meta ->> 'operator', e.action, e.meta ->> 'reason'
    order by e.ts desc fetch first %(limit)s rows with ties
)
select * from (select * from noted union all select * from done) x
order by x.ts desc fetch first %(limit)s rows with ties
"""
