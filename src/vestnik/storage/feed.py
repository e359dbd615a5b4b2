"""A stream that is pushed, for an upload that pulls.

The chunks are read in the caller's task, where its deadlines and its cancellation reach them; the upload runs beside
it and always comes to an end of its own, so that it can take back what it has begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

from vestnik.errors import VestnikError


class Feed:
    """One upload under way."""

    def __init__(self, upload: Callable[[AsyncIterator[bytes]], Awaitable[None]]) -> None:
        self._queue: asyncio.Queue[bytes | _Abandoned | None] = asyncio.Queue()
        self._upload = asyncio.ensure_future(upload(self._parts()))

    async def send(self, chunk: bytes) -> None:
        """Returns when the upload asks for more, so that a fast source waits for a slow store."""
        self._queue.put_nowait(chunk)
        taken = asyncio.ensure_future(self._queue.join())
        try:
            await asyncio.wait({taken, self._upload}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            taken.cancel()
        if self._upload.done():
            self._upload.result()

    async def finish(self) -> None:
        self._queue.put_nowait(None)
        await asyncio.shield(self._upload)

    async def abandon(self) -> None:
        self._queue.put_nowait(_Abandoned())
        with suppress(_Abandoned, VestnikError):
            await asyncio.shield(self._upload)

    async def _parts(self) -> AsyncIterator[bytes]:
        while True:
            chunk = await self._queue.get()
            if isinstance(chunk, _Abandoned):
                raise chunk
            if chunk is None:
                return
            yield chunk
            self._queue.task_done()


class _Abandoned(Exception):
    """There is no more to come, and what came is not wanted."""


async def gather(chunks: AsyncIterator[bytes], enough: int) -> tuple[bytes, bool]:
    """(what came first, whether there may be more): stops once it has more than ``enough``."""
    held = bytearray()
    async for chunk in chunks:
        held += chunk
        if len(held) > enough:
            return bytes(held), True
    return bytes(held), False
