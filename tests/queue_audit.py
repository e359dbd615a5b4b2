"""Says from the tables alone what is wrong with a queue: its deliveries held against their events.

By the functions of the live proof and of the integrity job, over everything that a workspace has. They know nothing of the
functions that moved the rows, so they may judge any run: with many hands, with kills, with operators in between.
"""

from __future__ import annotations

from psycopg import AsyncConnection
from psycopg.rows import DictRow

_TROUBLES = b"""
with every as materialized (
    select array(select d.delivery_id from autopost.deliveries d where d.workspace_id = %(w)s) as ids
)
select format('%%s: %%s %%s', x.kind, x.delivery_id, x.says) as says
from every, autopost.contradictions(%(w)s, every.ids) x
union all
select format('%%s: %%s %%s', x.kind, x.delivery_id, x.says) from every, autopost.doubled_posts(%(w)s, every.ids) x
union all
select format('%%s: %%s', x.stray ->> 'kind', x.stray ->> 'subject')
from (select jsonb_array_elements(s.troubles) as stray
      from autopost.stray_events(%(w)s, null, 'infinity', 10000000, '-infinity') s) x
"""


async def violations(connection: AsyncConnection[DictRow], workspace_id: str) -> list[str]:
    """Every broken promise in words; an empty list is a good queue."""
    found = await connection.execute(_TROUBLES, {"w": workspace_id})
    return [row["says"] for row in await found.fetchall()]
