"""One interface before every store. Objects come and go whole, and nothing of them is ever in memory as a whole."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import obstore
from obstore.store import LocalStore, S3Store

from vestnik.storage.failures import ObjectNotFound, StorageError, told_clearly
from vestnik.storage.feed import Feed, gather

PART = 5 * 1024 * 1024  # the smallest that S3 takes as a part; what is not larger goes in one request
PARTS_UNDER_WAY = 3
READ = 1024 * 1024
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stat:
    path: str
    size: int
    modified: datetime


class ObjectStore:
    """``root``: the folder, when the store is one."""

    def __init__(self, store: LocalStore | S3Store, *, root: Path | None = None) -> None:
        self._store = store
        self._root = root

    @property
    def folder(self) -> Path | None:
        """Where it lies on this machine, if it does."""
        return self._root

    @property
    def folders(self) -> dict[str, Path]:
        """What needs room on this machine: nothing, when the store is elsewhere."""
        return {"objects": self._root} if self._root is not None else {}

    async def put(self, path: str, chunks: AsyncIterator[bytes]) -> None:
        """Writes what comes, or nothing: whatever breaks on the way, also the caller's own chunks, leaves no object."""
        self._refuse_without_root()
        first, more = await gather(chunks, PART)
        if more:
            await self._put_parts(path, first, chunks)
        else:
            with told_clearly(path):
                await obstore.put_async(self._store, path, first, use_multipart=False)
        await self._make_durable(path)

    async def get(self, path: str) -> AsyncIterator[bytes]:
        """ObjectNotFound before the first chunk; StorageError when the store breaks off."""
        stream = (await self._found(path, lambda: obstore.get_async(self._store, path))).stream(READ)
        while True:
            with told_clearly(path):
                chunk = await anext(stream, None)
            if chunk is None:
                return
            yield bytes(chunk)

    async def head(self, path: str) -> Stat:
        meta = await self._found(path, lambda: obstore.head_async(self._store, path))
        return Stat(path, meta["size"], meta["last_modified"])

    async def exists(self, path: str) -> bool:
        try:
            await self.head(path)
        except ObjectNotFound:
            return False
        return True

    async def delete(self, path: str) -> None:
        """Also of what is gone already."""
        with suppress(ObjectNotFound), told_clearly(path):
            await obstore.delete_async(self._store, path)

    async def rename(self, source: str, target: str) -> None:
        """Replaces the target as a whole."""
        with told_clearly(source):
            await obstore.rename_async(self._store, source, target)
        await self._make_durable(target)

    async def list(self, prefix: str) -> AsyncGenerator[Stat]:
        """In no order. ``prefix`` is a folder: ``a`` finds ``a/b``, not ``ab``."""
        with told_clearly(prefix):
            stream = obstore.list(self._store, prefix, chunk_size=1000)
        while True:
            with told_clearly(prefix):
                page = await anext(stream, None)
            if page is None:
                return
            for meta in page:
                yield Stat(meta["path"], meta["size"], meta["last_modified"])

    async def sweep(self, prefix: str, before: datetime) -> int:
        """Removes what was written under a folder before a moment: what dead processes left. How many there were."""
        old = [each.path async for each in self.list(prefix) if each.modified < before]
        for path in old:
            await self.delete(path)
        return len(old) + await self.sweep_unfinished(prefix, before)

    async def sweep_unfinished(self, prefix: str, before: datetime) -> int:
        """What broke off while it was written, and was never an object."""
        return await asyncio.to_thread(self._sweep_unfinished, prefix, before)

    async def _put_parts(self, path: str, first: bytes, chunks: AsyncIterator[bytes]) -> None:
        feed = Feed(lambda parts: self._upload(path, parts))
        try:
            await feed.send(first)
            async for chunk in chunks:
                await feed.send(chunk)
            await feed.finish()
        except BaseException:
            # The library aborts an upload whose source fails; one that is cancelled it would leave in the bucket.
            await feed.abandon()
            raise

    async def _upload(self, path: str, parts: AsyncIterator[bytes]) -> None:
        with told_clearly(path):
            await obstore.put_async(
                self._store, path, parts, use_multipart=True, chunk_size=PART, max_concurrency=PARTS_UNDER_WAY
            )

    async def _found(self, path: str, ask: Callable[[], Awaitable[T]]) -> T:
        try:
            with told_clearly(path):
                return await ask()
        except ObjectNotFound:
            await self._must_be_there()
        # Once more: the store may have come back between the two looks.
        with told_clearly(path):
            return await ask()

    async def _must_be_there(self) -> None:
        """StorageError when not the object but the whole store is missing: that must not be taken for a lost object."""
        if self._root is None:
            async for _ in self.list("vestnik-is-it-there"):
                return
        else:
            self._refuse_without_root()

    def _refuse_without_root(self) -> None:
        """A folder that is gone must not be made anew: it would hide the disk that comes back."""
        if self._root is not None and not self._root.is_dir():
            raise StorageError(f"the folder for objects is gone: {self._root}", hint="is its disk mounted?")

    async def _make_durable(self, path: str) -> None:
        """Through a loss of power: a bucket sees to it itself, in a folder it is ours."""
        if self._root is not None:
            with told_clearly(path):
                await asyncio.to_thread(_sync, self._root, self._root / path)

    def _sweep_unfinished(self, prefix: str, before: datetime) -> int:
        """A folder keeps unfinished objects beside the finished, as ``name#1``, and does not list them."""
        if self._root is None:
            return 0
        old = [
            each
            for each in (self._root / prefix).rglob("*#*")
            if datetime.fromtimestamp(each.stat().st_mtime, UTC) < before
        ]
        for each in old:
            each.unlink(missing_ok=True)
        return len(old)


def _sync(root: Path, file: Path) -> None:
    """The file, and every folder that its name stands in."""
    for each in [file, *(folder for folder in file.parents if folder.is_relative_to(root))]:
        opened = os.open(each, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
