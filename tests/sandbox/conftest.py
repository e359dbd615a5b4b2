"""A running sandbox with a clock that the test moves, and a client that speaks to it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest
from sandbox_client import CHAT, TOKEN, Client

from vestnik.sandbox.server import Sandbox, serve
from vestnik.sandbox.state import State


class ManualClock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


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
