"""The whole API as the service runs it, over a workspace with one thing of each kind in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import aiohttp
from api_rig import Api

from vestnik.app import service
from vestnik.autopost import verbs
from vestnik.autopost.apply import apply
from vestnik.autopost.declaration import read_declaration
from vestnik.db.pool import Pool, call
from vestnik.ops import access, operators
from vestnik.ops.jobs.verbs import enqueue, put_schedule
from vestnik.ops.secrets.box import SecretBox
from vestnik.ops.secrets.credentials import Credentials
from vestnik.settings import Settings

OWNER = ("anna", "a password of the tests")
NOWHERE = "http://127.0.0.1:9"
DECLARATION = {
    "workspaces": [
        {
            "id": "shop",
            "credentials": [{"platform": "telegram", "auth_ref": "bot", "token": "1:A"}],
            "templates": [{"id": "card", "body": "{{text}}"}],
            "sources": [{"id": "feed", "kind": "rss", "every": "1h", "config": {"url": f"{NOWHERE}/feed.xml"}}],
            "endpoints": [{"id": "site", "ingress_rps": 100000, "secret": "a secret of the tests"}],
            "channels": [{"id": "news", "platform": "telegram", "target": "-1001", "auth_ref": "bot"}],
        },
        {"id": "other"},
    ]
}


@dataclass
class Whole:
    api: Api
    known: dict[str, str]  # what there is in the workspace shop, by the name of a path's parameter
    description: dict[str, Any]

    def operations(self) -> list[tuple[str, str, dict[str, Any]]]:
        return [
            (verb.upper(), path, operation)
            for path, operations in self.description["paths"].items()
            for verb, operation in operations.items()
        ]

    def path(self, template: str, workspace: str = "shop") -> str:
        """With something that is there for each parameter."""
        return template.format_map(_Known({**self.known, "ws": workspace}))


class _Known(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return str(UUID(int=0))


@asynccontextmanager
async def whole_api(database: str, pool: Pool, folder: Path) -> AsyncIterator[Whole]:
    settings = Settings(
        data_dir=folder, http_port=0, telegram_api_url=NOWHERE, max_api_url=NOWHERE, secret_key="tests", api_rps=100_000
    )
    async with service(settings, database, ["api"]) as running, aiohttp.ClientSession() as http:
        assert running.http_url is not None
        api = Api(running.http_url, pool, http, "a secret of the tests")
        known = await _one_of_each(pool, folder)
        yield Whole(api, known, (await api.get("/openapi.json"))[1])


async def _one_of_each(pool: Pool, folder: Path) -> dict[str, str]:
    credentials = Credentials(pool, SecretBox.open(folder, "tests"))
    await apply(pool, credentials, read_declaration(DECLARATION))
    await operators.add_operator(pool, *OWNER, actor="tests")
    for role in ("owner", "security"):
        await operators.grant(pool, operators.SERVICE, OWNER[0], role, actor="tests")  # type: ignore[arg-type]
    await operators.add_operator(pool, "boris", OWNER[1], actor="tests")
    await access.create_key(pool, "shop", "spare")
    message = await verbs.publish(pool, "shop", {"text": "Hello"})
    (delivery,) = await call(pool, "select delivery_id from autopost.deliveries where workspace_id = 'shop'")
    (key,) = await call(pool, "select key_id from core.api_keys")
    job = await enqueue(pool, "shop", "media.fetch", {"message_id": str(message["message_id"])})
    await put_schedule(pool, "shop", "nightly", "media.fetch", cron="0 3 * * *")
    return {
        "ws": "shop", "message_id": str(message["message_id"]), "delivery_id": str(delivery["delivery_id"]),
        "key_id": str(key["key_id"]), "job_id": str(job.job_id), "schedule_id": "nightly", "channel_id": "news",
        "endpoint_id": "site", "template_id": "card", "source_id": "feed", "platform": "telegram", "auth_ref": "bot",
        "rate_group": "bot", "login": "boris", "role": "viewer", "kind": "media.fetch",
        "deed": "requeue",
    }  # fmt: skip
