"""What every command that talks to the database does first and last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import psycopg

from vestnik.db.home import database, database_url
from vestnik.db.migrate import check
from vestnik.db.pool import Pool, make_pool
from vestnik.log import configure
from vestnik.settings import Settings, load_settings

T = TypeVar("T")


@asynccontextmanager
async def open_pool(settings: Settings) -> AsyncIterator[Pool]:
    """The database in use, its schema checked; the embedded server runs for as long as the block lasts.

    None is made here: a folder without one is more likely a mistake than a wish.
    """
    configure("warning", settings.log_format)  # to stderr: what a command prints is its answer alone
    database_url(settings)
    async with database(settings) as url:
        await check(url)
        async with make_pool(url, max_size=4, name="vestnik cli") as pool:
            yield pool


def with_pool(work: Callable[[Pool], Awaitable[T]]) -> T:
    """Run one piece of work on the database in use."""

    async def run() -> T:
        try:
            async with open_pool(load_settings()) as pool:
                return await work(pool)
        except psycopg.Error:
            # Ctrl-C breaks off the query that is waited for, and now and then it is the query that says so first.
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise asyncio.CancelledError from None
            raise

    return asyncio.run(run())
