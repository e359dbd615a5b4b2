"""Which database is used: the one that the settings name, or the embedded one in the data folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager

from vestnik.db.embedded import EmbeddedServer
from vestnik.errors import EmbeddedServerError
from vestnik.log import get_log
from vestnik.settings import Settings

LOOK_EVERY = 2.0
log = get_log()


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
    server = EmbeddedServer(settings.data_dir)
    running = server.running()
    entering = asyncio.ensure_future(asyncio.to_thread(running.__enter__))
    try:
        url = await asyncio.shield(entering)
        async with _kept_alive(server):
            yield url
    finally:
        # Shielded like the start: a cancelled program must not leave its server behind.
        await asyncio.shield(asyncio.ensure_future(_leave(running, entering)))


@asynccontextmanager
async def _kept_alive(server: EmbeddedServer) -> AsyncIterator[None]:
    keeping = asyncio.create_task(_keep_alive(server), name="embedded server")
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.wait([keeping])


async def _keep_alive(server: EmbeddedServer) -> None:
    """Whoever uses the server has it started again when it was killed: by hand, or for want of memory."""
    while True:
        await asyncio.sleep(LOOK_EVERY)
        try:
            if await asyncio.to_thread(server.revive):
                log.warning("database.revived")
        except EmbeddedServerError as e:
            log.warning("database.not_revived", error=str(e))


async def _leave(running: AbstractContextManager[str], entering: asyncio.Future[str]) -> None:
    await asyncio.wait({entering})
    if not entering.cancelled() and entering.exception() is None:
        await asyncio.to_thread(running.__exit__, None, None, None)
