"""``pull``: a feed of 5,000 items into one channel, beside a plain INSERT of the very rows that it makes."""

from __future__ import annotations

import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import psycopg
from aiohttp import web
from psycopg.types.json import Jsonb

from vestnik.autopost.sources.pull import PAGE, Puller
from vestnik.bench import rival_tables
from vestnik.bench.ground import BenchError, Ground
from vestnik.bench.report import Figures
from vestnik.bench.workload import WORKSPACE, make_channels, make_workspace, post
from vestnik.db.pool import Connection, Pool, call, connection_arguments, make_pool
from vestnik.download import Downloader, parse_networks
from vestnik.errors import NotFound

AIMS: dict[str, str] = {}
TABLES = ("messages", "deliveries", "events", "pull_items")


@dataclass(frozen=True)
class Size:
    items: int = 5_000
    feeds: int = 3


TINY = Size(items=30, feeds=1)


async def run(ground: Ground, size: Size, turn: int) -> Figures:
    downloader = Downloader(allow=parse_networks("127.0.0.1/32"))
    async with ground.database("pull") as url, make_pool(url, max_size=4) as pool, _served(size) as site:
        await make_workspace(pool)
        await make_channels(pool, 1)
        puller = Puller(pool, downloader, lambda _: _no_secret)
        try:
            async with await psycopg.AsyncConnection.connect(url, **connection_arguments(url)) as connection:
                ground.say("writing the rows once, to have them for the plain INSERT")
                await _make_rival(connection, puller, site, size)
                await ground.settle(url)
                return await _measure(ground, connection, puller, size, turn)
        finally:
            await downloader.close()


@asynccontextmanager
async def _served(size: Size) -> AsyncIterator[str]:
    """A feed for each number, over HTTP on this machine."""
    feeds = {str(number): _feed(size, number) for number in range(size.feeds + 1)}

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=feeds[request.match_info["number"]], content_type="application/rss+xml")

    app = web.Application()
    app.add_routes([web.get("/{number}", answer)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def _feed(size: Size, number: int) -> bytes:
    """The newest first, as feeds have it."""
    items = "".join(
        f"<item><guid>https://example.org/{number}/{n}</guid><title>Item {n}</title><link>https://example.org/{number}/{n}</link>"
        f"<description>{post(f'{number}-{n}')}</description></item>"
        for n in reversed(range(size.items))
    )
    return f'<?xml version="1.0"?><rss version="2.0"><channel><title>Feed</title>{items}</channel></rss>'.encode()


async def _make_rival(connection: Connection, puller: Puller, site: str, size: Size) -> None:
    """Each feed is read once, its rows copied in the pages in which they were written, and all of it forgotten."""
    await rival_tables.create(connection)
    await connection.execute("create unlogged table public.pages (number integer, message_id uuid, page bigint)")
    for table in ("messages", "pull_items"):
        await connection.execute(f"create table public.plain_{table} (like autopost.{table} including all)".encode())
    for number in range(size.feeds + 1):
        await _declare(puller.pool, site, number)
        await _pull(puller, size, number)
        await connection.execute(_PAGES.encode(), (number, PAGE))
        for table in TABLES:
            query = _COPY.format(number=number, table=table, pages=_pages(size))
            await connection.execute(query.encode())
        await connection.execute(
            "truncate autopost.messages, autopost.deliveries, autopost.events, autopost.pull_items, autopost.pull_cursors"
        )


async def _measure(ground: Ground, connection: Connection, puller: Puller, size: Size, turn: int) -> Figures:
    """One after the other, first one first, then the other: both fill their tables at the same pace."""
    ours, plain = [], []
    for number in range(size.feeds + 1):
        ground.say(f"feed {number + 1} of {size.feeds + 1}")
        if (number + turn) % 2:
            ours.append(await _pull(puller, size, number))
            plain.append(await _insert(connection, size, number))
        else:
            plain.append(await _insert(connection, size, number))
            ours.append(await _pull(puller, size, number))
    await _refuse_difference(connection)
    # Feed 0 is for warming up only: the first call in a session plans, the real ones work.
    seconds, plain_seconds = statistics.median(ours[1:]), statistics.median(plain[1:])
    return {
        "items_per_s": size.items / seconds,
        "vs_plain_insert": plain_seconds / seconds,
        "plain_items_per_s": size.items / plain_seconds,
        "feed_ms": seconds * 1000,
    }


async def _pull(puller: Puller, size: Size, number: int) -> float:
    """From the request to the end of the run."""
    began = time.perf_counter()
    stats = await puller.pull(WORKSPACE, str(number))
    taken = time.perf_counter() - began
    if (stats["taken"], stats["enqueued"]) != (size.items, size.items):
        raise BenchError(f"the items did not all reach their channel: {stats}")
    return taken


async def _insert(connection: Connection, size: Size, number: int) -> float:
    began = time.perf_counter()
    for page in range(_pages(size)):
        async with connection.transaction():
            for table in TABLES:
                query = f"insert into public.plain_{table} select * from public.{table}_{number}_{page}"
                await connection.execute(query.encode())
    return time.perf_counter() - began


async def _declare(pool: Pool, site: str, number: int) -> None:
    config = Jsonb({"url": f"{site}/{number}", "tags": ["news"]})
    await call(
        pool,
        "insert into autopost.pull_sources (workspace_id, source_id, kind, config_json) values (%s, %s, 'rss', %s)",
        (WORKSPACE, str(number), config),
    )


async def _refuse_difference(connection: Connection) -> None:
    for table in TABLES:
        query = f"select (select count(*) from autopost.{table}) as ours, (select count(*) from public.plain_{table}) as plain"
        row = await (await connection.execute(query.encode())).fetchone()
        if row is None or row["ours"] != row["plain"]:
            raise BenchError(f"the two sides did not write the same number of {table}: {row}")


def _pages(size: Size) -> int:
    return -(-size.items // PAGE)


async def _no_secret(name: str) -> str:
    raise NotFound(f"no secret {name}")


_PAGES = """
insert into public.pages
select %s, message_id, (row_number() over (order by created_at) - 1) / %s from autopost.deliveries
"""
_COPY = """
do $$ begin
    for page in 0 .. {pages} - 1 loop
        execute format('create unlogged table public.{table}_{number}_%s as select t.* from autopost.{table} t
                        join public.pages p using (message_id) where p.number = {number} and p.page = %s', page, page);
    end loop;
end $$
"""
