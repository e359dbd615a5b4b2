"""A running sandbox with a clock that the test moves, and a client that speaks to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from vestnik.sandbox.server import Sandbox, serve
from vestnik.sandbox.state import State

TOKEN = "42:TOKEN-of-the-bot"
CHAT = "-1001"


class ManualClock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Said:
    status: int
    body: Any
    headers: Any


class Client:
    def __init__(self, sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
        self.sandbox = sandbox
        self.session = session

    async def ask(self, method: str, path: str, json: Any = None, **how: Any) -> Said:
        async with self.session.request(method, self.sandbox.url + path, json=json, **how) as answer:
            body = await (answer.json() if answer.content_type == "application/json" else answer.text())
            return Said(answer.status, body, answer.headers)

    async def telegram(self, method: str, token: str = TOKEN, **params: Any) -> Said:
        return await self.ask("POST", f"/telegram/bot{token}/{method}", {"chat_id": CHAT, **params})

    async def max(self, text: str = "a", token: str = TOKEN, chat: str = CHAT, query: str = "", **body: Any) -> Said:
        path = f"/max/messages?chat_id={chat}{query}"
        return await self.ask("POST", path, {"text": text, **body}, headers={"Authorization": token})

    async def admin(self, method: str, path: str, json: Any = None) -> Any:
        return (await self.ask(method, f"/admin/{path}".rstrip("/"), json)).body

    async def posts(self, platform: str, chat: str = CHAT) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = await self.admin("GET", f"{platform}/chats/{chat}/posts")
        return found

    async def violations(self, platform: str) -> dict[str, int]:
        found: dict[str, int] = (await self.admin("GET", platform))["violations"]
        return found


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def sandbox(clock: ManualClock) -> AsyncIterator[Sandbox]:
    async with serve(state=State(clock=clock, ring=20)) as running:
        for platform in running.state.platforms.values():
            platform.add_token(TOKEN, "main")
            platform.add_chat(CHAT, title="News & co")
        yield running


@pytest.fixture
async def client(sandbox: Sandbox) -> AsyncIterator[Client]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
        yield Client(sandbox, session)
