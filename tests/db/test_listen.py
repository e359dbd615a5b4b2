"""The listener hears, comes back by itself, and says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import pytest

from vestnik.db.embedded import EmbeddedServer
from vestnik.db.listen import Wake, listen

Ask = Callable[[str, str], Any]
Wakes = AsyncGenerator[Wake, None]


@pytest.fixture
async def wakes(database: str) -> AsyncIterator[Wakes]:
    async with aclosing(listen(database, "posts", "Odd name", name="ear")) as wakes:
        assert (await anext(wakes)).connected
        yield wakes


async def test_hears_its_channels(wakes: Wakes, database: str, ask: Ask) -> None:
    ask(database, "select pg_notify('other', 'x'), pg_notify('posts', 'shop')")
    ask(database, "select pg_notify('Odd name', '')")
    assert await anext(wakes) == Wake("posts", "shop")
    assert await anext(wakes) == Wake("Odd name", "")


async def test_comes_back_after_its_connection_was_terminated(wakes: Wakes, database: str, ask: Ask) -> None:
    hearing = asyncio.ensure_future(anext(wakes))
    end = "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'ear'"
    assert ask(database, end) == 1
    assert (await hearing).connected
    ask(database, "select pg_notify('posts', 'again')")
    assert await anext(wakes) == Wake("posts", "again")


async def test_comes_back_after_a_restart_of_the_server(own_server: EmbeddedServer, ask: Ask) -> None:
    async with aclosing(listen(own_server.url, "posts")) as wakes:
        assert (await anext(wakes)).connected
        hearing = asyncio.ensure_future(anext(wakes))
        await asyncio.to_thread(own_server.stop, force=True)
        await asyncio.to_thread(own_server.start)
        assert (await hearing).connected
        ask(own_server.url, "select pg_notify('posts', 'again')")
        assert await anext(wakes) == Wake("posts", "again")


async def test_lets_go_of_its_connection_when_closed(database: str, ask: Ask) -> None:
    async with aclosing(listen(database, "posts", name="short")) as wakes:
        await anext(wakes)
        waiting = asyncio.ensure_future(anext(wakes))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
    left = "select count(*) from pg_stat_activity where application_name = 'short'"
    while ask(database, left):
        pass
