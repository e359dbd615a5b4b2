"""What waits in the database, for a scrape: read seldom, within a time limit, and what was known last where it fails."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from psycopg_pool import PoolTimeout

from vestnik.db.pool import Connection, Pool, retrying
from vestnik.log import get_log
from vestnik.telemetry.exposition import gauge
from vestnik.telemetry.instruments import workspaces

KNOWN_FOR = 10.0  # seconds that an answer is good
SHARE = 0.05  # of the time that the database may spend on this
LIMIT = 2.0  # seconds for one look
log = get_log()


@dataclass(slots=True)
class Backlog:
    """``retrying`` is not needed for a read, but its transaction is: the limit holds for that alone."""

    pool: Pool
    clock: Callable[[], float] = time.monotonic
    _rows: list[dict[str, Any]] = field(default_factory=list)
    _read_at: float = float("-inf")
    _ask_at: float = float("-inf")
    _well: bool = False
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def families(self) -> list[Metric]:
        if self._looking.locked():
            return self._shown()  # somebody looks already: a second scrape does not wait for it
        async with self._looking:
            if self.clock() >= self._ask_at:
                await self._look()
        return self._shown()

    async def _look(self) -> None:
        began = self.clock()
        try:
            async with asyncio.timeout(2 * LIMIT):
                self._rows = await retrying(self.pool, _read)
            self._well, self._read_at = True, self.clock()
        except (psycopg.Error, PoolTimeout, TimeoutError) as e:
            self._well = False
            log.warning("metrics.database_not_read", error_type=type(e).__name__)
        self._ask_at = self.clock() + max(KNOWN_FOR, (self.clock() - began) / SHARE)

    def _shown(self) -> list[Metric]:
        up = gauge("vestnik_scrape_database_up", "Whether the last look into the database succeeded.")
        up.add_metric([], int(self._well))
        age = gauge("vestnik_scrape_database_age_seconds", "How old the figures from the database are.")
        if self._read_at > float("-inf"):
            age.add_metric([], self.clock() - self._read_at)
        return [up, age, *_families(self._rows)]


async def _read(connection: Connection) -> list[dict[str, Any]]:
    await connection.execute("select set_config('statement_timeout', %s, true)", (f"{round(LIMIT * 1000)}ms",))
    rows = []
    for query in _QUERIES:
        rows += await (await connection.execute(query)).fetchall()
    return rows


def _families(rows: list[dict[str, Any]]) -> list[Metric]:
    """Rows are (what, workspace_id, name, n, age). Workspaces beyond the bound are one: numbers add up, of ages the greatest
    counts."""
    counts: Counter[tuple[str, str, str]] = Counter()
    ages: dict[tuple[str, str, str], float] = defaultdict(float)
    for row in rows:
        key = (row["what"], workspaces(row["workspace_id"]), row["name"])
        counts[key] += row["n"] or 0
        if row["age"] is not None:
            ages[key] = max(ages[key], row["age"])
    shown = _Shown()
    for (what, workspace_id, name), n in counts.items():
        shown.add(what, workspace_id, name, n, ages.get((what, workspace_id, name)))
    return shown.families()


class _Shown:
    def __init__(self) -> None:
        self.deliveries = gauge(
            "vestnik_queue_deliveries", "Deliveries that wait or are sent now.", "workspace", "status"
        )
        self.age = gauge(
            "vestnik_queue_oldest_seconds", "How long the oldest has been due, or under way.", "workspace", "status"
        )
        self.channels = gauge("vestnik_channels", "Channels: open, paused, cooling or disabled.", "workspace", "state")
        self.slots = gauge(
            "vestnik_rate_gate_wait_seconds", "How far ahead the next free slot is, at most.", "workspace", "gate"
        )
        self.jobs = gauge("vestnik_jobs", "Jobs that wait, run or were given up.", "workspace", "status")
        self.alerts = gauge("vestnik_alerts_on", "Alerts that are on.", "workspace", "severity")
        self.raised = CounterMetricFamily(
            "vestnik_alerts_raised", "How often alerts were raised.", labels=["workspace", "severity"]
        )

    def add(self, what: str, workspace_id: str, name: str, n: float, age: float | None) -> None:
        counted: dict[str, GaugeMetricFamily | CounterMetricFamily] = {
            "delivery": self.deliveries, "channel": self.channels, "job": self.jobs, "alert": self.alerts,
            "raised": self.raised,
        }  # fmt: skip
        if what in counted:
            counted[what].add_metric([workspace_id, name], n)
        if age is not None:
            (self.slots if what == "gate" else self.age).add_metric([workspace_id, name], max(age, 0.0))

    def families(self) -> list[Metric]:
        return [self.deliveries, self.age, self.channels, self.slots, self.jobs, self.alerts, self.raised]


# Each from an index that holds the whole answer. An age counts from when something could go: what is planned is not late.
_DELIVERIES = """
select 'delivery' as what, w.workspace_id, d.name, d.n, d.age
from core.workspaces w cross join lateral (
    select 'queued' as name, count(*) as n, extract(epoch from now() - least(min(x.not_before), now()))::float8 as age
    from autopost.deliveries x where x.workspace_id = w.workspace_id and x.status = 'queued'
    union all
    select 'retry', count(*), extract(epoch from now() - least(min(x.next_retry_at), now()))::float8
    from autopost.deliveries x where x.workspace_id = w.workspace_id and x.status = 'retry'
    union all
    select 'claimed', count(*), extract(epoch from now() - least(min(x.not_before), now()))::float8
    from autopost.deliveries x where x.workspace_id = w.workspace_id and x.status = 'claimed'
    union all
    select 'sending', count(*), extract(epoch from now() - least(min(x.sending_started_at), now()))::float8
    from autopost.deliveries x where x.workspace_id = w.workspace_id and x.status = 'sending') d
"""

_CHANNELS = """
select 'channel' as what, c.workspace_id, s.state as name, count(*) as n, null::float8 as age
from autopost.channels c cross join lateral (
    select case when not c.enabled then 'disabled' when c.paused_until > now() then 'paused'
                when c.cooldown_until > now() then 'cooling' else 'open' end as state) s
group by 2, 3
union all
select 'gate', c.workspace_id, 'channel', null, extract(epoch from max(c.next_allowed_at) - now())::float8
from autopost.channels c where c.rate_rps > 0 and c.next_allowed_at < 'infinity' group by 2
union all
select 'gate', g.workspace_id, 'group', null, extract(epoch from max(g.next_allowed_at) - now())::float8
from autopost.platform_limits g where g.rate_rps > 0 and g.next_allowed_at < 'infinity' group by 2
"""

_JOBS = """
select 'job' as what, w.workspace_id, j.name, j.n, null::float8 as age
from (select workspace_id from core.workspaces union all select '*') w cross join lateral (
    select 'waiting' as name, count(*) as n from ops.jobs x
    where x.workspace_id = w.workspace_id and x.status in ('waiting', 'retry')
    union all
    select 'running', count(*) from ops.jobs x where x.workspace_id = w.workspace_id and x.status = 'running'
    union all
    select 'dead', count(*) from ops.jobs x where x.workspace_id = w.workspace_id and x.status = 'dead') j
"""

_ALERTS = """
select 'alert' as what, a.workspace_id, a.severity as name, count(*) filter (where a.cleared_at is null) as n, null::float8 as age
from ops.alerts a group by 2, 3
union all
select 'raised', a.workspace_id, a.severity, sum(a.raises), null from ops.alerts a group by 2, 3
"""

_QUERIES = (_DELIVERIES, _CHANNELS, _JOBS, _ALERTS)
