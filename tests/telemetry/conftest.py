from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from vestnik.autopost.verbs import create_endpoint
from vestnik.db.pool import Pool, call
from vestnik.ops.secrets.box import SecretBox
from vestnik.sandbox.server import Sandbox, serve

TOKEN = "1:TOKEN-of-the-bot"


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with serve() as running:
        running.state.platforms["telegram"].add_token(TOKEN, "bot")
        yield running


@pytest.fixture
async def secret(pool: Pool, sandbox: Sandbox, tmp_path: Path) -> str:
    """Of a door of the workspace ``shop`` with two channels: ``good``, and ``odd``, whose chat nobody knows."""
    sealed = SecretBox.open(tmp_path / "data", None).lock(TOKEN)
    sandbox.state.platforms["telegram"].add_chat("-1")
    await call(pool, "insert into core.workspaces (workspace_id, name) values ('shop', 'Shop')")
    await call(
        pool,
        "insert into core.credential_bindings (workspace_id, platform, auth_ref, secret) values ('shop', 'telegram', 'bot', %s)",
        (sealed,),
    )
    for channel_id, target_id in (("good", "-1"), ("odd", "-2")):
        await call(
            pool,
            "insert into autopost.channels (workspace_id, channel_id, platform, target_id, auth_ref, rate_group, rate_rps)"
            " values ('shop', %s, 'telegram', %s, 'bot', 'bot', null)",
            (channel_id, target_id),
        )
    return await create_endpoint(pool, "shop", "site", rps=1000)
