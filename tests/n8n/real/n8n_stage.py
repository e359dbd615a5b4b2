"""What the tests see of it all: the webhook, the tables, the readers of the channels."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from email.message import Message
from typing import Any

import psycopg
from peer import N8n, http
from psycopg.rows import dict_row

from vestnik.sandbox.faults import parse_faults
from vestnik.sandbox.server import Sandbox

PATIENCE = 120.0
SECRET = "the-secret-of-the-endpoint"
SLOW_SECRET = "the-secret-of-a-slow-endpoint"
OPERATORS = "-1002"
CHATS = {"telegram": "-1001", "max": "-7001"}


@dataclass
class Stage:
    n8n: N8n
    sandbox: Sandbox
    database: str
    api_pid: int

    async def push(self, body: Any, secret: str = SECRET, **headers: str) -> tuple[int, Any, Message]:
        url = f"{self.n8n.url}/webhook/vestnik-push"
        return await asyncio.to_thread(http, url, body, **(headers or {"Authorization": f"Bearer {secret}"}))

    async def execute(self, workflow: str) -> None:
        """Once, as a person would: from its manual trigger."""
        await asyncio.to_thread(self.n8n.cli, "execute", "--id", workflow)

    async def sql(self, query: Any, *arguments: Any, database: str | None = None) -> list[dict[str, Any]]:
        url = self.database.replace("/vestnik?", f"/{database}?") if database else self.database
        async with await psycopg.AsyncConnection.connect(url, autocommit=True, row_factory=dict_row) as db:
            cursor = await db.execute(query, arguments)
            return await cursor.fetchall() if cursor.description else []

    def seen(self, platform: str, chat: str | None = None) -> list[str]:
        """What the readers of a chat read."""
        posts = self.sandbox.state.platforms[platform].chats[chat or CHATS[platform]].posts
        return [post.as_json()["visible"] for post in posts]

    async def quiet(self) -> None:
        """Returns when nothing waits: a fault that is set now meets what is pushed after it."""

        async def nothing_waits() -> bool:
            waiting = (
                "select 1 from autopost.deliveries where status in ('queued', 'claimed', 'sending', 'retry') limit 1"
            )
            return not await self.sql(waiting)

        await self.until(nothing_waits, "what waited is sent")

    async def fault(self, platform: str, **fault: Any) -> None:
        await self.quiet()
        self.sandbox.state.platforms[platform].faults[:] = parse_faults(fault)

    async def add_item(self, feed: str, **item: str) -> None:
        status, _, _ = await asyncio.to_thread(http, f"{self.sandbox.url}/admin/feeds/{feed}/items", item)
        assert status < 300

    async def statuses(self, text: str) -> list[str]:
        """Of the deliveries of one post."""
        rows = await self.sql(
            "select d.status from autopost.deliveries d where d.rendered_text like %s order by d.channel_id",
            f"%{text}%",
        )
        return [row["status"] for row in rows]

    async def events(self, text: str) -> list[str]:
        rows = await self.sql(
            "select e.action from autopost.events e join autopost.deliveries d using (workspace_id, delivery_id)"
            " where d.rendered_text like %s and d.channel_id = 'telegram' order by e.ts, e.id",
            f"%{text}%",
        )
        return [row["action"] for row in rows]

    async def refused(self, text: str, code: str) -> bool:
        """Whether each of its deliveries has met this error, and waits for another try."""
        rows = await self.sql(
            "select d.status, d.last_error ->> 'code' as code from autopost.deliveries d where d.rendered_text like %s",
            f"%{text}%",
        )
        return len(rows) == len(CHATS) and all((row["status"], row["code"]) == ("retry", code) for row in rows)

    async def until(self, look: Callable[[], Awaitable[bool]], what: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                while not await look():
                    await asyncio.sleep(0.1)
        except TimeoutError:
            log = (self.n8n.folder / "n8n.log").read_text(errors="replace")[-4000:]
            raise AssertionError(f"{what}: not within {PATIENCE:g} s; n8n said:\n{log}") from None

    async def failed_executions(self) -> list[dict[str, Any]]:
        query = 'select "workflowId", status from execution_entity where status not in (%s, %s, %s)'
        return await self.sql(query, "success", "running", "new", database="n8n")
