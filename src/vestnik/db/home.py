"""Which database is used: the one that the settings name, or the embedded one in the data folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager

from vestnik.db.embedded import EmbeddedServer
from vestnik.settings import Settings


def database_url(settings: Settings) -> str:
    """The address in use. Starts nothing; raises when there is no embedded database yet."""
    return settings.database_url or EmbeddedServer(settings.data_dir).url


@asynccontextmanager
async def database(settings: Settings) -> AsyncIterator[str]:
    """The address of a database that runs for as long as the block lasts.

    The embedded server is started when it does not run, and stopped at the end unless somebody else still
    uses it or ``vestnik db start`` was told to keep it.
    """
    if settings.database_url:
        yield settings.database_url
        return
    running = EmbeddedServer(settings.data_dir).running()
    entering = asyncio.ensure_future(asyncio.to_thread(running.__enter__))
    try:
        yield await asyncio.shield(entering)
    finally:
        # Shielded like the start: a cancelled program must not leave its server behind.
        await asyncio.shield(asyncio.ensure_future(_leave(running, entering)))


async def _leave(running: AbstractContextManager[str], entering: asyncio.Future[str]) -> None:
    await asyncio.wait({entering})
    if not entering.cancelled() and entering.exception() is None:
        await asyncio.to_thread(running.__exit__, None, None, None)
