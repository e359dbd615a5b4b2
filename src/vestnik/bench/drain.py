"""``drain``: a full queue through the shipped dispatcher, beside procrastinate, and with a backlog in front."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from psycopg.types.json import Jsonb

from vestnik.autopost.dispatcher import Dispatcher
from vestnik.bench import procrastinate_peer
from vestnik.bench.ground import BenchError, Ground
from vestnik.bench.report import Figures
from vestnik.bench.workload import PLATFORM, WORKSPACE, InstantAdapter, make_channels, make_workspace, post
from vestnik.db.pool import Pool, call, make_pool
from vestnik.settings import Settings

AIMS = {"vs_procrastinate": ">= 40", "wal_bytes_per_delivery": "<= 2500", "with_blocked_backlog": ">= 0.9"}
POOL_SIZE = (2, 16)  # as in vestnik.app


@dataclass(frozen=True)
class Size:
    deliveries: int = 20_000
    channels: int = 200
    max_parallel: int = 100
    backlog: int = 100_000
    procrastinate_jobs: int = 2_000


TINY = Size(deliveries=60, channels=6, max_parallel=5, backlog=100, procrastinate_jobs=20)


@dataclass(frozen=True)
class _Drained:
    per_s: float
    wal_bytes: float
    python_us: float


async def run(ground: Ground, size: Size, turn: int) -> Figures:
    procrastinate_peer.require()
    parts = [_ours, _behind_backlog, _one_at_a_time, _peer]
    figures: Figures = {}
    for part in parts if turn % 2 == 0 else parts[::-1]:
        figures |= await part(ground, size)
    behind = figures.pop("behind_backlog")
    return {
        "deliveries_per_s": figures["deliveries_per_s"],
        "wal_bytes_per_delivery": figures["wal_bytes_per_delivery"],
        "vs_procrastinate": figures["deliveries_per_s"] / figures["procrastinate_per_s"],
        "with_blocked_backlog": behind / figures["deliveries_per_s"],
        **figures,
    }


async def _ours(ground: Ground, size: Size) -> Figures:
    drained = await _drain(ground, size, "the drain", max_parallel=size.max_parallel)
    return {
        "deliveries_per_s": drained.per_s,
        "wal_bytes_per_delivery": drained.wal_bytes,
        "python_us_per_delivery": drained.python_us,
    }


async def _behind_backlog(ground: Ground, size: Size) -> Figures:
    what = f"the drain behind {size.backlog} of a paused channel"
    drained = await _drain(ground, size, what, max_parallel=size.max_parallel, backlog=size.backlog)
    return {"behind_backlog": drained.per_s}


async def _one_at_a_time(ground: Ground, size: Size) -> Figures:
    drained = await _drain(ground, size, "the drain, one send at a time per channel", max_parallel=1)
    return {"one_at_a_time_per_s": drained.per_s}


async def _peer(ground: Ground, size: Size) -> Figures:
    best = 0.0
    for concurrency in (1, 10, 50):
        ground.say(f"procrastinate, concurrency {concurrency}")
        async with ground.database("procrastinate", "template0") as url:
            rate = await procrastinate_peer.drain(ground, url, size.procrastinate_jobs, concurrency)
        best = max(best, rate)
    return {"procrastinate_per_s": best}


async def _drain(ground: Ground, size: Size, what: str, *, max_parallel: int, backlog: int = 0) -> _Drained:
    ground.say(f"{what}: filling")
    async with ground.database("drain") as url, make_pool(url, min_size=POOL_SIZE[0], max_size=POOL_SIZE[1]) as pool:
        await make_workspace(pool)
        if backlog:
            await _make_backlog(pool, backlog)
        await make_channels(pool, size.channels, max_parallel=max_parallel)
        await _fill(pool, size)
        await ground.settle(url)
        ground.say(what)
        return await _measure(ground, pool, url, size)


async def _fill(pool: Pool, size: Size) -> None:
    posts, rest = divmod(size.deliveries, size.channels)
    if rest:
        raise BenchError("every channel gets the same number of deliveries")
    for number in range(posts):
        query = "select enqueued from autopost.enqueue_messages_and_deliveries(%s, null, 'webhook_push', %s)"
        await call(pool, query, (WORKSPACE, Jsonb({"text": post(number)})))


async def _make_backlog(pool: Pool, count: int) -> None:
    """Older than everything else, in a channel that comes before all others, and paused."""
    await make_channels(pool, 1, prefix="a-paused-one")
    await call(pool, "update autopost.channels set paused_until = 'infinity', route_filter = null")
    await call(pool, _BACKLOG_MESSAGES, (WORKSPACE, count))
    await call(pool, _BACKLOG_DELIVERIES)
    # Only the backlog is its own; what comes later goes to the others.
    await call(pool, """update autopost.channels set route_filter = '{"include_all": ["nothing has this tag"]}'""")


async def _measure(ground: Ground, pool: Pool, url: str, size: Size) -> _Drained:
    """From the dispatcher's start until the last result is written and it has stopped."""
    settings = Settings(database_url=url)
    adapter = InstantAdapter()
    dispatcher = Dispatcher(
        url, pool, {PLATFORM: adapter}, concurrency=settings.send_concurrency, poll=settings.dispatch_poll
    )
    before, began, cpu = await ground.wal_position(), time.perf_counter(), time.process_time()
    running = asyncio.create_task(dispatcher.run())
    while adapter.sent < size.deliveries and not running.done():
        await asyncio.sleep(0.005)
        if time.perf_counter() - began > 300:
            raise BenchError(f"after five minutes only {adapter.sent} of {size.deliveries} deliveries are sent")
    dispatcher.stop()
    await running
    taken, cpu = time.perf_counter() - began, time.process_time() - cpu
    wal = await ground.wal_position() - before
    await _refuse_unfinished(pool, size)
    return _Drained(size.deliveries / taken, wal / size.deliveries, cpu / size.deliveries * 1e6)


async def _refuse_unfinished(pool: Pool, size: Size) -> None:
    found = await call(
        pool,
        """select (select count(*) from autopost.deliveries where status = 'sent') as sent,
                  (select count(*) from autopost.events where action = 'send_attempt') as attempts,
                  (select count(*) from autopost.events where action = 'sent') as confirmed""",
    )
    if set(found[0].values()) != {size.deliveries}:
        raise BenchError(f"not every delivery was sent once with its events: {found[0]}")


_BACKLOG_MESSAGES = """
insert into autopost.messages (workspace_id, message_id, content_hash, payload, first_seen_trace_id,
    first_ingest_run_id, last_seen_at, last_ingest_run_id, created_at)
select %s, uuidv, md5(n::text), jsonb_build_object('type', 'text', 'text', 'Waiting post number ' || n), uuidv, uuidv,
       now() - interval '1 hour', uuidv, now() - interval '1 hour'
from generate_series(1, %s) n, lateral (select core.uuid7(now() - interval '1 hour' + n * interval '1 ms') as uuidv) ids
"""
_BACKLOG_DELIVERIES = """
insert into autopost.deliveries (workspace_id, delivery_id, message_id, channel_id, content_hash, created_at, trace_id,
    enqueue_batch_id, rendered_text, render_meta, not_before)
select m.workspace_id, m.message_id, m.message_id, c.channel_id, m.content_hash, m.created_at, m.message_id, m.message_id,
       m.payload ->> 'text', '{"converter": 1, "parse_mode": "None", "disable_preview": false}', m.created_at
from autopost.messages m, autopost.channels c
"""
