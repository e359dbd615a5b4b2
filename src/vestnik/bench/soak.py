"""``soak``: the service as it ships under a steady load, minute after minute. Is it as good at the end as at the beginning?

Every second one post goes to many channels, and all of it must be out before the next: how fast a burst drains tells what the
service could do, at a load that never grows while its history does.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from vestnik.autopost.verbs import create_endpoint
from vestnik.bench.ground import BenchError, Ground
from vestnik.bench.http_client import Connection, connect, push_request
from vestnik.bench.latency import install_adapter
from vestnik.bench.report import Figures
from vestnik.bench.service_process import running
from vestnik.bench.workload import WORKSPACE, make_channels, make_workspace, post
from vestnik.db.pool import Pool, call, make_pool

AIMS = {"last_vs_first": ">= 0.9"}
SERVICE = ("vestnik", "run", "api", "dispatcher", "jobs")
WARM_UP = 10
PATIENCE = 30.0


@dataclass(frozen=True)
class Size:
    minutes: float = 10.0
    channels: int = 500
    pushes_per_s: float = 1.0


TINY = Size(minutes=0.05, channels=20, pushes_per_s=10.0)


async def run(ground: Ground, size: Size, turn: int) -> Figures:
    async with ground.database("soak") as url, make_pool(url, min_size=2, max_size=2) as pool:
        await make_workspace(pool)
        await make_channels(pool, size.channels)
        secret = await create_endpoint(pool, WORKSPACE, "bench", rps=size.pushes_per_s * 50)
        with tempfile.TemporaryDirectory(prefix="vestnik-bench-service-") as name:
            folder = Path(name)
            install_adapter(folder)
            async with running(SERVICE, url, folder, import_path=folder) as http_url:
                connection = await connect(http_url)
                await _push(ground, connection, secret, "warm-up", WARM_UP, size.pushes_per_s)
                await _all_sent(pool)
                before = await _stored(pool)
                watch = _Watch()
                watching = asyncio.create_task(watch.look(pool))
                pushes = max(10, round(size.minutes * 60 * size.pushes_per_s))
                await _push(ground, connection, secret, "push", pushes, size.pushes_per_s)
                connection.close()
                await _all_sent(pool)
                watching.cancel()
                await asyncio.wait([watching])
                stored = await _stored(pool) - before
        return await _figures(pool, pushes * size.channels) | {
            "machine_last_vs_first": watch.machine_last_vs_first(),
            "dead_tuples_max": max(watch.dead),
            "bytes_per_delivery": stored / (pushes * size.channels),
        }


class _Watch:
    """Twice a second: how many dead rows ``deliveries`` has, and how fast this machine is just now, whatever else it does."""

    def __init__(self) -> None:
        self.dead: list[float] = []
        self.took: list[float] = []

    async def look(self, pool: Pool) -> None:
        while True:
            began = time.perf_counter()
            await call(pool, "select sum(i) from generate_series(1, 50000) i")
            self.took.append(time.perf_counter() - began)
            self.dead.append(float((await call(pool, _DEAD))[0]["n"]))
            await asyncio.sleep(0.5)

    def machine_last_vs_first(self) -> float:
        tenth = max(1, len(self.took) // 10)
        return statistics.median(self.took[:tenth]) / statistics.median(self.took[-tenth:])


_DEAD = "select n_dead_tup as n from pg_stat_user_tables where relid = 'autopost.deliveries'::regclass"


async def _push(ground: Ground, connection: Connection, secret: str, what: str, count: int, per_s: float) -> None:
    """Each at its own moment, whether the one before was slow or not."""
    began = time.monotonic()
    for number in range(count):
        ground.say(f"{what} {number + 1} of {count}")
        await asyncio.sleep(began + number / per_s - time.monotonic())
        answer = await connection.ask(push_request(secret, {"text": post(f"{what} {number}")}))
        if answer.status != 202:
            raise BenchError(f"answer {answer.status}: {answer.body[:300].decode(errors='replace')}")


async def _all_sent(pool: Pool) -> None:
    deadline = time.monotonic() + PATIENCE
    while left := await call(
        pool, "select status, count(*) as n from autopost.deliveries where status <> 'sent' group by 1"
    ):
        if time.monotonic() > deadline:
            raise BenchError(f"after {PATIENCE:g} s these are not sent: {left}")
        await asyncio.sleep(0.05)


async def _stored(pool: Pool) -> int:
    return int((await call(pool, "select pg_database_size(current_database()) as bytes"))[0]["bytes"])


async def _figures(pool: Pool, deliveries: int) -> Figures:
    (row,) = await call(pool, _FIGURES)
    if row["sent"] != deliveries:
        raise BenchError(f"of {deliveries} deliveries {row['sent']} were sent")
    return {
        "last_vs_first": row["last"] / row["first"],
        "p50_ms": row["p50_ms"],
        "p99_ms": row["p99_ms"],
        "first_per_s": row["first"],
        "last_per_s": row["last"],
        "deliveries": float(deliveries),
    }


# A burst is all deliveries of one post. Throughput of a tenth: its deliveries by the time in which any of them was under way.
_FIGURES = """
with delivery as (
    select d.message_id, d.created_at, d.sent_at from autopost.deliveries d
    join autopost.messages m using (workspace_id, message_id) where m.payload ->> 'text' like 'Post number push%%'
), burst as (
    select min(created_at) as began, count(*) as n, extract(epoch from max(sent_at) - min(created_at))::float8 as took
    from delivery group by message_id
), tenth as (
    select ntile(10) over (order by began) as tenth, n, took from burst
), rate as (
    select tenth, (sum(n) / sum(took))::float8 as per_s from tenth group by tenth
)
select (select count(*) from delivery) as sent,
       (select per_s from rate where tenth = 1) as first,
       (select per_s from rate where tenth = 10) as last,
       (select percentile_cont(0.5) within group (order by extract(epoch from sent_at - created_at)) * 1000 from delivery) as p50_ms,
       (select percentile_cont(0.99) within group (order by extract(epoch from sent_at - created_at)) * 1000 from delivery) as p99_ms
"""
