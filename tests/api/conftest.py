"""A real HTTP server of the test's own, on a database of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from api_rig import Api

from vestnik.app import http_server
from vestnik.autopost import verbs
from vestnik.db.pool import Pool, call
from vestnik.settings import Settings


@pytest.fixture
async def api(pool: Pool) -> AsyncIterator[Api]:
    """Workspace ``shop`` with one Telegram and one MAX channel and a fast endpoint."""
    await call(pool, "insert into core.workspaces (workspace_id, name) values ('shop', 'Shop')")
    for platform in ("telegram", "max"):
        await call(
            pool,
            "insert into autopost.channels (workspace_id, channel_id, platform, target_id, auth_ref, rate_group)"
            " values ('shop', %s, %s, '1', 'bot', 'bot')",
            (platform, platform),
        )
    secret = await verbs.create_endpoint(pool, "shop", "site", rps=1000)
    server = http_server(Settings(http_port=0), pool)
    serving = asyncio.create_task(server.serve())
    async with aiohttp.ClientSession() as http:
        yield Api(await server.address(serving), pool, http, secret)
    server.end()
    await serving
