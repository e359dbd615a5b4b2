"""A real HTTP server of the test's own, on a database of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import aiohttp
import pytest
from api_rig import MEDIA_LIMIT, Api
from argon2 import PasswordHasher
from whole_rig import Whole, whole_api

from vestnik.adapters import registry
from vestnik.adapters.contract import Adapter, AdapterContext
from vestnik.api.app import create_app
from vestnik.api.server import http_server
from vestnik.autopost import verbs
from vestnik.autopost.alerting import AlertDesk
from vestnik.autopost.media.blobs import BlobStore
from vestnik.db.pool import Pool, call
from vestnik.ops import passwords
from vestnik.ops.alerts.notifier import Notifier
from vestnik.ops.secrets.box import SecretBox
from vestnik.ops.secrets.credentials import Credentials
from vestnik.settings import Settings
from vestnik.storage import open_store


@pytest.fixture
async def api(pool: Pool, tmp_path: Path) -> AsyncIterator[Api]:
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
    server = http_server(
        Settings(http_port=0),
        create_app(
            pool,
            adapters(),
            blobs=BlobStore(open_store((tmp_path / "objects").as_uri())),
            credentials=Credentials(pool, SecretBox.open(tmp_path, "a key of the tests")),
            desk=AlertDesk(pool, SecretBox.open(tmp_path, "a key of the tests"), Notifier(pool, {})),
            media_max_bytes=MEDIA_LIMIT,
            api_rps=1000.0,
        ),
    )
    serving = asyncio.create_task(server.serve())
    async with aiohttp.ClientSession() as http:
        yield Api(await server.address(serving), pool, http, secret)
    server.end()
    await serving


def adapters() -> Mapping[str, Adapter]:
    """For plans only: nothing here is sent, so there is nowhere to send it to."""

    async def no_secret(workspace_id: str, platform: str, auth_ref: str) -> str:
        raise AssertionError("a plan needs no secret")

    nowhere = "http://127.0.0.1:9"
    return registry.load(AdapterContext(secret=no_secret, base_urls={"telegram": nowhere, "max": nowhere}))


@pytest.fixture
async def whole(database: str, pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Whole]:
    """The API with everything that the service mounts; hashes of passwords cost nothing."""
    monkeypatch.setattr(passwords, "_hasher", PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    passwords._nobodys.cache_clear()
    async with whole_api(database, pool, tmp_path) as running:
        yield running
