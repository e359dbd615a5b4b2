"""Platforms inside the test: adapters of the contract that take, refuse, hang or break as they are told."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from vestnik.adapters.contract import Channel, MediaItem, SendMeta, Sent

Answer = Callable[[Channel], Awaitable[Any]]


async def taken(channel: Channel) -> Sent:
    return Sent("m1", {"message_id": 1})


class Platform:
    """Remembers what came in, and how many sends it had under way at once."""

    media = False

    def __init__(self, platform: str = "telegram", answer: Answer = taken) -> None:
        self.platform = platform
        self.answer = answer
        self.keys: Counter[str | None] = Counter()
        self.channels: list[str] = []
        self.under_way: Counter[str] = Counter()
        self.most_at_once = 0
        self.most_in_channel: Counter[str] = Counter()

    async def send_text(self, channel: Channel, text: str, meta: SendMeta) -> Sent:
        self.keys[meta.idempotency_key] += 1
        self.channels.append(channel.channel_id)
        self.under_way[channel.channel_id] += 1
        self.most_at_once = max(self.most_at_once, self.under_way.total())
        self.most_in_channel |= self.under_way
        try:
            sent: Sent = await self.answer(channel)
            return sent
        finally:
            self.under_way[channel.channel_id] -= 1

    async def send_media(
        self, channel: Channel, media: Sequence[MediaItem], text: str | None, links: Sequence[str], meta: SendMeta
    ) -> Sent:
        raise NotImplementedError

    async def close(self) -> None: ...

    async def until(self, sends: int) -> None:
        """Until that many sends have come in."""
        async with asyncio.timeout(10):
            while len(self.channels) < sends:
                await asyncio.sleep(0.005)


class Door:
    """An answer that waits until somebody opens."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()

    async def __call__(self, channel: Channel) -> Sent:
        await self.opened.wait()
        return await taken(channel)
