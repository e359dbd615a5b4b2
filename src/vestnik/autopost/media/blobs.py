"""A file becomes a blob: its bytes in the object store under their hash, and what is known of them."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from urllib.parse import quote
from uuid import uuid4

from vestnik.adapters.contract import MediaType
from vestnik.autopost.media.inspect import HEAD, MediaRefused, inspected
from vestnik.storage import ObjectStore, StorageError

INCOMING = "incoming"  # unfinished ones, each under a name of its own
KEPT = "media"
LONGEST_NAME = 120


@dataclass(frozen=True, slots=True)
class Blob:
    """``blob_ref`` is by what posts name it: the hash of its bytes. ``store`` is where its copy lies, under ``path``."""

    blob_ref: str
    path: str
    sha256: str
    content_type: str
    size_bytes: int
    file_name: str | None = None
    width: int | None = None
    height: int | None = None
    store: ObjectStore | None = field(default=None, repr=False, compare=False)


class FileTooLarge(MediaRefused):
    def __init__(self, limit: int) -> None:
        super().__init__(f"it is larger than the {limit} bytes allowed")
        self.limit = limit


class BlobStore:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    @property
    def store(self) -> ObjectStore:
        return self._store

    async def keep(
        self,
        workspace_id: str,
        chunks: AsyncIterator[bytes],
        wanted: MediaType | None,
        *,
        declared: str = "",
        name: str | None = None,
        max_bytes: int,
    ) -> Blob:
        """Everything that comes, or nothing. MediaRefused for what it must not be, StorageError when the store fails."""
        arriving = f"{INCOMING}/{uuid4().hex}"
        seen = _Seen(chunks, max_bytes)
        try:
            await self._store.put(arriving, seen.passed_on())
            kind = inspected(bytes(seen.head), wanted, declared, name or "")
            sha256 = seen.digest.hexdigest()
            blob_ref = f"sha256:{sha256}"
            path = f"{folder_of(workspace_id, sha256[:2])}/{sha256}.{uuid4().hex[:16]}"
            await self._store.rename(arriving, path)
        except BaseException:
            with suppress(StorageError):
                await self._store.delete(arriving)
            raise
        return Blob(
            blob_ref, path, sha256, kind.content_type, seen.size, file_name(name), kind.width, kind.height, self._store
        )  # fmt: skip

    async def sweep(self, older_than: timedelta) -> int:
        """What processes that died while something came in have left behind. How much there was."""
        return await self._store.sweep(INCOMING, datetime.now(UTC) - older_than)


def folder_of(workspace_id: str, shard: str = "") -> str:
    """Each workspace's own: what one of them forgets, no other loses. Every copy in it has a name of its own, so that one
    which comes in is never the one that is just being deleted."""
    return f"{KEPT}/{quote(workspace_id, safe='')}" + (f"/{shard}" if shard else "")


def file_name(name: str | None) -> str | None:
    """Without its folders, and not without end."""
    last = (name or "").replace("\\", "/").rpartition("/")[2].strip()
    shown = "".join(c for c in last if c.isprintable())
    return shown[-LONGEST_NAME:] or None


class _Seen:
    """Looks at what passes: its beginning, its hash, its size."""

    def __init__(self, chunks: AsyncIterator[bytes], max_bytes: int) -> None:
        self._chunks, self._max_bytes = chunks, max_bytes
        self.head, self.size, self.digest = bytearray(), 0, hashlib.sha256()

    async def passed_on(self) -> AsyncIterator[bytes]:
        async for chunk in self._chunks:
            self.size += len(chunk)
            if self.size > self._max_bytes:
                raise FileTooLarge(self._max_bytes)
            self.head += chunk[: max(0, HEAD - len(self.head))]
            self.digest.update(chunk)
            yield chunk
