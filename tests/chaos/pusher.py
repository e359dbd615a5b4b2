"""A sender as it should be: it pushes a post again until somebody has taken it, and knows what was taken."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import aiohttp


@dataclass
class Pusher:
    http_url: str
    secret: str
    taken: list[str] = field(default_factory=list)

    async def push(self, text: str) -> None:
        """Until it is acknowledged; a repetition of what was taken without our hearing of it is one post still."""
        headers = {"Authorization": f"Bearer {self.secret}"}
        async with aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=20)) as session:
            while True:
                try:
                    async with session.post(f"{self.http_url}/v1/push", json={"text": text}) as answer:
                        if answer.status in (200, 202):
                            self.taken.append(text)
                            return
                        assert answer.status in (429, 500, 503), (answer.status, await answer.text())
                except (aiohttp.ClientError, TimeoutError):
                    pass
                await asyncio.sleep(0.1)

    async def push_until(self, enough: asyncio.Event) -> None:
        while not enough.is_set():
            await self.push(f"post {len(self.taken)}")
