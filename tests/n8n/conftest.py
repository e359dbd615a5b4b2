from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from by_hand import ByHand
from psycopg import AsyncConnection
from psycopg.rows import DictRow

from vestnik.app import service
from vestnik.autopost.apply import apply
from vestnik.autopost.declaration import read_declaration
from vestnik.db.pool import Pool
from vestnik.ops.access import create_key
from vestnik.ops.secrets.box import SecretBox
from vestnik.ops.secrets.credentials import Credentials
from vestnik.sandbox.server import serve
from vestnik.settings import Settings

TOKEN = "1000001:SECRET-token_of_the_bot"
SHOP = {
    "id": "shop",
    "policy": {"backoff_base": "PT0.001S", "backoff_jitter": 0},
    "credentials": [{"platform": "telegram", "auth_ref": "bot", "token": TOKEN}],
    "endpoints": [
        {"id": "main", "secret": "the-main-secret-of-the-test", "max_payload_bytes": 2000},
        {"id": "slow", "secret": "the-slow-secret-of-the-test", "ingress_rps": 0.001},
    ],
    "channels": [{"id": "news", "platform": "telegram", "target": "-1001", "auth_ref": "bot", "rate_rps": 0}],
    "limits": [{"platform": "telegram", "rate_group": "bot", "rate_rps": 0}],
}


@pytest.fixture
async def by_hand(database: str, db: AsyncConnection[DictRow], pool: Pool, tmp_path: Path) -> AsyncIterator[ByHand]:
    """The API and a sandbox, both real, and nobody else who sends."""
    await apply(pool, Credentials(pool, SecretBox.open(tmp_path, None)), read_declaration({"workspaces": [SHOP]}))
    key = await create_key(pool, "shop", "n8n", "full")
    async with serve() as sandbox, aiohttp.ClientSession() as http:
        telegram = sandbox.state.platforms["telegram"]
        telegram.add_token(TOKEN, "bot")
        for chat in ("-1001", "-1002"):
            telegram.add_chat(chat, title="News")
        settings = Settings(data_dir=tmp_path, http_port=0, telegram_api_url=sandbox.telegram_url)
        async with service(settings, database, ("api",)) as running:
            assert running.http_url is not None
            yield ByHand(db, http, running.http_url, key, sandbox)
