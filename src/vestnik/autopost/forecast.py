"""When would a post leave, channel by channel, at today's rates and behind what waits today? Nothing is kept."""

from __future__ import annotations

from typing import Any

from psycopg.types.json import Jsonb

from vestnik.db.pool import Pool, call

Row = dict[str, Any]
MOST_CHANNELS = 500


async def forecast(pool: Pool, workspace_id: str, payload: Row) -> Row:
    """Raises InvalidPayload for what a push would refuse. ``first_at`` and ``last_at`` are of all channels; of very many,
    those that would get it come first, and ``total`` is how many there are."""
    rows = await call(pool, _FORECAST, (workspace_id, Jsonb(payload)))
    counts = rows[0] if rows else {}
    return {
        "channels": [{key: row[key] for key in _SHOWN} for row in rows],
        "first_at": counts.get("first_at"),
        "last_at": counts.get("last_at"),
        "leaving": counts.get("leaving", 0),
        "never": counts.get("never", 0),
        "total": counts.get("total", 0),
    }


_SHOWN = (
    "channel_id", "title", "platform", "rate_group", "outcome", "reason", "ahead", "goes_at", "leaves_at", "media_pending",
)  # fmt: skip
_FORECAST = f"""
select f.*, min(f.leaves_at) over () as first_at, max(f.leaves_at) over () as last_at,
       count(*) filter (where f.outcome = 'enqueued') over () as leaving,
       count(*) filter (where f.outcome = 'never') over () as never, count(*) over () as total
from autopost.forecast(%s, %s) f
limit {MOST_CHANNELS}
"""
