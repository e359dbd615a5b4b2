"""A patient for the doctor: a workspace on a real database, adapters on a real sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from psycopg.types.json import Jsonb

from vestnik.adapters import registry
from vestnik.adapters.contract import Adapter, AdapterContext
from vestnik.db.pool import Pool, call
from vestnik.doctor.examination import examine
from vestnik.doctor.findings import Check, Finding, Patient
from vestnik.errors import NotFound
from vestnik.sandbox.server import Sandbox

TOKEN = "1000001:SECRET-token_of_the_bot"
ROOMS = {"telegram": "-1001", "max": "-701"}


@dataclass
class Clinic:
    pool: Pool
    sandbox: Sandbox
    tokens: dict[str, str] = field(default_factory=lambda: {"bot": TOKEN})
    adapters: Mapping[str, Adapter] = field(default_factory=dict)

    async def sql(self, query: str, *arguments: Any) -> list[dict[str, Any]]:
        return await call(self.pool, query, arguments)

    async def workspace(self, workspace_id: str = "shop") -> None:
        await self.sql("insert into core.workspaces (workspace_id, name) values (%s, %s)", workspace_id, workspace_id)

    async def channel(self, channel_id: str, platform: str = "telegram", **columns: Any) -> None:
        row = {"workspace_id": "shop", "channel_id": channel_id, "platform": platform, "target_id": ROOMS.get(platform)}
        row |= {"auth_ref": "bot", "rate_group": "bot", "rate_rps": None} | columns
        names, places = ", ".join(row), ", ".join(["%s"] * len(row))
        await self.sql(f"insert into autopost.channels ({names}) values ({places})", *row.values())

    def room(
        self, platform: str, chat_id: str | None = None, bot: str = "administrator", kind: str = "channel"
    ) -> None:
        self.sandbox.state.platforms[platform].add_chat(chat_id or ROOMS[platform], kind=kind).bot = bot

    async def push(self, text: str = "News", **payload: Any) -> None:

        query = "select autopost.enqueue_messages_and_deliveries('shop', null, 'webhook_push', %s)"
        await self.sql(query, Jsonb({"text": text, **payload}))

    def patient(self, workspace_id: str | None = None, **more: Any) -> Patient:
        return Patient(self.pool, self.adapters, workspace_id, **more)

    async def look(self, checks: tuple[Check, ...], name: str, **more: Any) -> list[Finding]:
        return await examine(self.patient(**more), [check for check in checks if check.name == name])

    async def one(self, checks: tuple[Check, ...], name: str, **more: Any) -> Finding:
        (found,) = await self.look(checks, name, **more)
        return found

    async def secret(self, workspace_id: str, platform: str, auth_ref: str) -> str:
        if auth_ref not in self.tokens:
            raise NotFound(f"no {platform} credential {auth_ref!r} in workspace {workspace_id!r}")
        return self.tokens[auth_ref]

    def load(self) -> None:
        urls = {"telegram": self.sandbox.telegram_url, "max": self.sandbox.max_url}
        self.adapters = registry.load(AdapterContext(secret=self.secret, base_urls=urls, timeout=2.0))
