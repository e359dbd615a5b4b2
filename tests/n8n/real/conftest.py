"""The whole way once: sandbox, database, Vestnik's API, and n8n with the three workflows in it.

Only in `make test-n8n`, which installs n8n first and names its folder in ``VESTNIK_TEST_N8N``.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import psycopg
import pytest
import pytest_asyncio
from n8n_stage import CHATS, OPERATORS, SECRET, SLOW_SECRET, Stage
from peer import N8n, free_port
from psycopg import sql

from vestnik.app import prepare
from vestnik.autopost.apply import apply
from vestnik.autopost.declaration import read_declaration
from vestnik.bench.service_process import started
from vestnik.db.embedded import EmbeddedServer
from vestnik.db.embedded.product import create_database
from vestnik.db.pool import make_pool
from vestnik.ops.access import create_key
from vestnik.ops.secrets.box import SecretBox
from vestnik.ops.secrets.credentials import Credentials
from vestnik.sandbox.server import Sandbox, serve

INSTALLED = os.environ.get("VESTNIK_TEST_N8N")
WORKFLOWS = Path(__file__).parents[3] / "workflows"
TOKENS = {"telegram": "7000000001:TOKEN-of-the-test", "max": "a-token-of-the-test"}
ACTIVE = ("vestnik01ingest", "vestnik02dispatch")  # 03_monitor is executed when a test wants it

if INSTALLED is None:
    collect_ignore_glob = ["test_*.py"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(run_folder: Path, pg_version: int, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    assert INSTALLED is not None
    folder = tmp_path_factory.mktemp("n8n")
    with _server(run_folder, pg_version) as server:
        await prepare(server.url)
        async with serve() as sandbox:
            key = await _furnish(server.url, sandbox, folder)
            settings = {"VESTNIK_TELEGRAM_API_URL": sandbox.telegram_url, "VESTNIK_MAX_API_URL": sandbox.max_url}
            # No dispatcher and no jobs: what is sent, n8n has sent.
            async with started(("vestnik", "run", "api"), server.url, folder, settings=settings) as api:
                n8n = N8n(Path(INSTALLED), folder, _own_tables(server), free_port())
                _import(n8n, _connection(server.url), api.url, key)
                with n8n.running(*ACTIVE):
                    yield Stage(n8n, sandbox, server.url, api.pid)


@contextmanager
def _server(run_folder: Path, pg_version: int) -> Iterator[EmbeddedServer]:
    folder = run_folder / "for-n8n"
    folder.mkdir()
    folder.chmod(0o755)
    server = EmbeddedServer(folder, pg_version, durability=False)
    with server.running():
        yield server


async def _furnish(url: str, sandbox: Sandbox, folder: Path) -> str:
    """One workspace with a channel on each platform; returns its API key."""
    channels = [
        {"id": p, "platform": p, "target": CHATS[p], "auth_ref": "bot", "rate_rps": 0, "max_parallel": 5} for p in CHATS
    ]
    document = {
        "id": "shop",
        "policy": {"backoff_base": "PT0.1S", "backoff_jitter": 0},
        "credentials": [{"platform": p, "auth_ref": "bot", "token": TOKENS[p]} for p in CHATS],
        "endpoints": [
            {"id": "main", "secret": SECRET, "ingress_rps": 100, "max_payload_bytes": 20_000},
            {"id": "slow", "secret": SLOW_SECRET, "ingress_rps": 0.01},
        ],
        "channels": channels,
    }
    for platform, chat in CHATS.items():
        sandbox.state.platforms[platform].add_token(TOKENS[platform], "bot")
        sandbox.state.platforms[platform].add_chat(chat, title="News")
    sandbox.state.platforms["telegram"].add_chat(OPERATORS, title="Operators")
    async with make_pool(url, max_size=2) as pool:
        await apply(pool, Credentials(pool, SecretBox.open(folder, None)), read_declaration({"workspaces": [document]}))
        return await create_key(pool, "shop", "n8n", "full")


def _own_tables(server: EmbeddedServer) -> dict[str, str]:
    with psycopg.connect(server.superuser_url, autocommit=True) as admin:
        create_database(admin, "n8n")
        role = urlsplit(server.url).username or ""
        admin.execute(sql.SQL("alter database n8n owner to {}").format(sql.Identifier(role)))
    return _connection(server.url) | {"database": "n8n"}


def _connection(url: str) -> dict[str, str]:
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    return {
        "host": query["host"][0],
        "port": query["port"][0],
        "database": parts.path[1:],
        "user": parts.username or "",
        "password": unquote(parts.password or ""),
    }


def _import(n8n: N8n, database: dict[str, str], api_url: str, key: str) -> None:
    """As docs/howto/n8n.md tells to: credentials, the workflows with this place's settings, and all of it switched on."""
    credentials = [
        {"id": "vestnikPostgres", "name": "Vestnik PostgreSQL", "type": "postgres",
         "data": database | {"port": int(database["port"]), "ssl": "disable"}},
        {"id": "vestnikApi", "name": "Vestnik API", "type": "httpHeaderAuth",
         "data": {"name": "Authorization", "value": f"Bearer {key}"}},
    ]  # fmt: skip
    (n8n.folder / "credentials.json").write_text(json.dumps(credentials))
    n8n.cli("import:credentials", "--input", "credentials.json")
    (n8n.folder / "workflows").mkdir()
    for file in sorted(WORKFLOWS.glob("*.json")):
        workflow = json.loads(file.read_text().replace("http://127.0.0.1:8080", api_url))
        for node in workflow["nodes"]:
            if node["type"].endswith("scheduleTrigger"):
                node["parameters"]["rule"]["interval"] = [{"field": "seconds", "secondsInterval": 2}]
        (n8n.folder / "workflows" / file.name).write_text(json.dumps(workflow))
    n8n.cli("import:workflow", "--separate", "--input", "workflows")
    for workflow in ACTIVE:
        n8n.cli("publish:workflow", "--id", workflow)
