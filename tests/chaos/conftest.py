from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from stormy import Server, Storm

from vestnik.app import prepare
from vestnik.db.embedded import EmbeddedServer
from vestnik.db.pool import make_pool
from vestnik.ops.secrets.box import SecretBox
from vestnik.ops.secrets.credentials import Credentials
from vestnik.sandbox.server import serve
from vestnik.sandbox.state import State

CHANNELS = 12


@pytest.fixture
async def storm(own_server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[Storm]:
    async with stormy_on(own_server, tmp_path) as storm:
        yield storm


@asynccontextmanager
async def stormy_on(server: Server, folder: Path) -> AsyncIterator[Storm]:
    """Twelve Telegram channels without a rate; a lost send comes back after two seconds."""
    await prepare(server.url)
    state = State(lenient=True, ring=2000)
    limits = state.platforms["telegram"].limits
    limits.chat_rps = limits.token_rps = None
    async with serve(state=state) as sandbox:
        storm = Storm(server, sandbox, folder, CHANNELS)
        await storm.sql("insert into core.workspaces (workspace_id, name) values ('w', 'W')")
        await storm.sql(
            "insert into autopost.policies (workspace_id, sending_lease, expired_send_backoff, max_attempts)"
            " values ('w', '2 seconds', '100 milliseconds', 50)"
        )
        await storm.sql(
            "insert into autopost.channels (workspace_id, channel_id, platform, target_id, auth_ref, rate_group, rate_rps,"
            " max_parallel) select 'w', 'c' || n, 'telegram', '-' || n, 'bot', 'bot', null, 2 from generate_series(1, %s) n",
            CHANNELS,
        )
        async with make_pool(server.url, max_size=1) as pool, pool.connection() as connection:
            credentials = Credentials(pool, SecretBox.open(folder, None))
            await credentials.store(connection, "w", "telegram", "bot", "1:TOKEN")
        try:
            yield storm
        finally:
            await storm.end()
