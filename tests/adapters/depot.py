"""A depot and a series as the contract wants them, in memory: they stand for the contract, not for our SQL."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from vestnik.adapters.contract import Channel, MediaItem, SendError

Bytes = Callable[[], AsyncIterator[bytes]]
Key = tuple[str, str, str, str | None]


class MemoryDepot:
    """Blobs by name, and one handle for each credential, blob and type."""

    def __init__(self) -> None:
        self.blobs: dict[str, Bytes] = {}
        self.handles: dict[Key, str] = {}
        self.expires: dict[Key, float | None] = {}
        self.reads: Counter[str] = Counter()
        self.forgotten: Counter[str] = Counter()
        self.unwritable = False
        self._locks: defaultdict[Key, asyncio.Lock] = defaultdict(asyncio.Lock)

    def put(self, name: str, *chunks: bytes, fails: Exception | None = None) -> str:
        async def read() -> AsyncIterator[bytes]:
            for chunk in chunks:
                yield chunk
            if fails is not None:
                raise fails

        self.blobs[name] = read
        return name

    @asynccontextmanager
    async def resolve(self, channel: Channel, items: Sequence[MediaItem]) -> AsyncIterator[Sequence[_Resolved]]:
        keys = [(channel.platform, channel.auth_ref, item.type, item.blob_ref or item.url) for item in items]
        assert len(set(keys)) == len(keys), "an item was named twice"
        async with AsyncExitStack() as held:
            found = {}
            for key, item in sorted(zip(keys, items, strict=True), key=lambda pair: str(pair[0])):
                found[key] = _Resolved(self, key, item, held)
                await found[key].claim()
            yield [found[key] for key in keys]


class _Resolved:
    def __init__(self, depot: MemoryDepot, key: Key, item: MediaItem, held: AsyncExitStack) -> None:
        self._depot, self._key, self.item, self._held = depot, key, item, held
        self._lock: asyncio.Lock | None = None

    @property
    def handle(self) -> str | None:
        return self._depot.handles.get(self._key)

    async def claim(self) -> None:
        lock = self._depot._locks[self._key]
        await lock.acquire()
        if self.handle is not None:
            lock.release()
        else:
            self._lock = lock
            self._held.callback(self._release)

    def read(self) -> AsyncIterator[bytes]:
        name = str(self._key[3])
        if name not in self._depot.blobs:
            raise missing_origin()
        self._depot.reads[name] += 1
        return self._depot.blobs[name]()

    async def learned(self, handle: str, *, expires_in: float | None = None) -> None:
        if self._depot.unwritable:
            raise OSError("the depot cannot write")
        self._depot.handles[self._key] = handle
        self._depot.expires[self._key] = expires_in
        self._release()

    async def forget(self) -> None:
        self._depot.forgotten[str(self._key[3])] += 1
        self._depot.handles.pop(self._key, None)
        await self.claim()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None


class MemorySeries:
    """What the engine keeps of a delivery in several calls."""

    def __init__(self, *, stolen_after: int | None = None) -> None:
        self.done = 0
        self.message_ids: list[str] = []
        self.items: list[int] = []
        self.turns: list[int] = []
        self.stolen_after = stolen_after

    async def turn(self) -> None:
        self.turns.append(self.done)

    async def acknowledge(self, message_ids: Sequence[str], items: Sequence[int]) -> None:
        if self.done == self.stolen_after:
            raise SendError(category="TRANSIENT", scope="delivery", code="lease_lost", message="somebody else's")
        self.done += 1
        self.message_ids += message_ids
        self.items += items


def missing_origin() -> SendError:
    return SendError(category="PERMANENT", scope="delivery", code="media_missing_origin", message="the file is gone")
