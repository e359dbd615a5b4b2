"""Does the object store work? A few bytes go in and out again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

from vestnik.autopost.media.blobs import INCOMING
from vestnik.storage import ObjectStore


async def probe(store: ObjectStore) -> None:
    """Raises StorageError. What it leaves behind when it is cut short, the sweep of arrivals takes away."""
    name = f"{INCOMING}/probe-{uuid4().hex}"
    await store.put(name, _bytes())
    await store.delete(name)


async def _bytes() -> AsyncIterator[bytes]:
    yield b"vestnik"
