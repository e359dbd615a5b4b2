"""``ingest``: pushes over HTTP, beside a server that only inserts, and beside a bulk INSERT of the rows they become."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg

from vestnik.autopost.verbs import create_endpoint
from vestnik.bench import bare_server, rival_tables
from vestnik.bench.ground import BenchError, Ground
from vestnik.bench.http_load import Load, Order, push_hard
from vestnik.bench.report import Figures
from vestnik.bench.service_process import running
from vestnik.bench.workload import WORKSPACE, make_channels, make_workspace
from vestnik.db.pool import call, connection_arguments, make_pool

AIMS = {"vs_bare_insert": ">= 0.4", "rows_vs_plain_insert": ">= 0.25"}
SERVICE = ("vestnik", "run", "api")
BARE = (bare_server.__name__,)


@dataclass(frozen=True)
class Size:
    connections: int = 32
    seconds: float = 5.0
    warm_up: float = 1.0
    channels: int = 40
    ingress_rps: float = 100_000.0


TINY = Size(connections=4, seconds=0.2, warm_up=0.1, channels=3)


async def run(ground: Ground, size: Size, turn: int) -> Figures:
    parts = [_one_channel, _bare, _many_channels]
    figures: Figures = {}
    for part in parts if turn % 2 == 0 else parts[::-1]:
        figures |= await part(ground, size)
    return {
        "requests_per_s": figures["requests_per_s"],
        "p50_ms": figures["p50_ms"],
        "p99_ms": figures["p99_ms"],
        "vs_bare_insert": figures["requests_per_s"] / figures["bare_requests_per_s"],
        "rows_per_s": figures["rows_per_s"],
        "rows_vs_plain_insert": figures["rows_per_s"] / figures["plain_rows_per_s"],
        **figures,
    }


async def _one_channel(ground: Ground, size: Size) -> Figures:
    ground.say("pushes to one channel")
    async with ground.database("ingest") as url:
        load = await _push(url, size, SERVICE, channels=1)
        await _refuse_loss(url, load, channels=1)
    return {"requests_per_s": load.per_s, "p50_ms": load.p50_ms, "p99_ms": load.p99_ms}


async def _bare(ground: Ground, size: Size) -> Figures:
    ground.say("one INSERT per request")
    async with ground.database("ingest") as url:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            await connection.execute(bare_server.TABLE.encode())
        load = await _push(url, size, BARE, channels=1)
    return {"bare_requests_per_s": load.per_s}


async def _many_channels(ground: Ground, size: Size) -> Figures:
    ground.say(f"pushes to {size.channels} channels")
    async with ground.database("ingest") as url:
        load = await _push(url, size, SERVICE, channels=size.channels)
        await _refuse_loss(url, load, channels=size.channels)
        ground.say("a plain INSERT of the same rows")
        plain = await _plain_rows_per_s(ground, url)
    return {
        "rows_per_s": load.per_s * size.channels,
        "requests_per_s_of_many": load.per_s,
        "plain_rows_per_s": plain,
    }


async def _push(url: str, size: Size, command: Sequence[str], *, channels: int) -> Load:
    async with make_pool(url, max_size=1) as pool:
        await make_workspace(pool)
        await make_channels(pool, channels)
        await call(pool, "update autopost.channels set route_filter = null")
        secret = await create_endpoint(pool, WORKSPACE, "bench", rps=size.ingress_rps)
    with tempfile.TemporaryDirectory(prefix="vestnik-bench-service-") as folder:
        async with running(command, url, Path(folder)) as http_url:
            order = Order(http_url, secret, "load", size.connections, size.seconds, size.warm_up)
            return await push_hard(order)


async def _plain_rows_per_s(ground: Ground, url: str) -> float:
    """All the rows that the pushes have become, once more, in statements of ten thousand deliveries."""
    async with await psycopg.AsyncConnection.connect(url, **connection_arguments(url)) as connection:
        await rival_tables.create(connection)
        parts = await rival_tables.copy_in_parts(connection, 10_000)
        await ground.settle(url)
        began = time.perf_counter()
        for part in range(parts):
            await rival_tables.insert_part(connection, part)
        taken = time.perf_counter() - began
        return await rival_tables.count(connection) / taken


async def _refuse_loss(url: str, load: Load, *, channels: int) -> None:
    """Every answer that was counted must stand for rows in the tables."""
    async with make_pool(url, max_size=1) as pool:
        found = await call(
            pool,
            """select (select count(*) from autopost.messages) as messages,
                      (select count(*) from autopost.deliveries where status = 'queued') as deliveries,
                      (select count(*) from autopost.events where action = 'enqueue') as events""",
        )
    messages, deliveries, events = found[0].values()
    if messages < load.requests or deliveries != messages * channels or events != deliveries:
        raise BenchError(f"{load.requests} pushes were accepted, but there are {found[0]}")
