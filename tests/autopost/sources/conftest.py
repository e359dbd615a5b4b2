"""Sources of a workspace with one channel, on a real web server and the database that the tests of a worker share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from sources_rig import Site, Sources

from vestnik.db.pool import Pool, make_pool


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    app = web.Application()
    app.router.add_route("*", "/{any:.*}", site.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    site.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield site
    await runner.cleanup()


@pytest.fixture
async def shared_pool(worker_database: str) -> AsyncIterator[Pool]:
    async with make_pool(worker_database, max_size=8) as pool:
        yield pool


@pytest.fixture
async def sources(workspace: Any, shared_pool: Pool, site: Site) -> AsyncIterator[Sources]:
    await workspace.channel()
    sources = Sources(workspace, shared_pool, site)
    yield sources
    await sources.downloader.close()
