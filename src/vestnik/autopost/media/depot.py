"""The depot of the contract: files out of the object store, and the platforms' handles for them out of ``media_blobs``.

Of all senders that want one file on one platform with one credential, in whichever process, one uploads it and the
others wait for its handle. Inside this process they are told at once; across processes they look again and again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import psycopg
from psycopg_pool import PoolTimeout

from vestnik.adapters.contract import Channel, MediaItem, SendError
from vestnik.autopost.pulse import beat
from vestnik.db.pool import Pool, call
from vestnik.log import get_log
from vestnik.storage import ObjectNotFound, ObjectStore, StorageError

LEASE = timedelta(seconds=60)  # of an upload whose sender shows no sign of life
LOOK_AGAIN = 0.25
log = get_log()
Key = tuple[str, str, str, str, str]  # workspace, blob, platform, credential, what it is sent as


@dataclass(slots=True)
class _Item:
    """One item on its way; ``Resolved`` of the contract."""

    depot: SqlDepot
    key: Key
    item: MediaItem
    origin_url: str | None
    handle: str | None = None
    token: UUID = field(default_factory=uuid4)
    mine: bool = False
    siblings: Sequence[_Item] = ()  # of one call, in the order in which they are taken
    _extended: float = 0.0

    async def read(self) -> AsyncIterator[bytes]:
        if self.origin_url is None:
            raise _missing(self.item)
        try:
            async for chunk in self.depot.store.get(self.origin_url):
                await self._alive()
                yield chunk
        except ObjectNotFound:
            raise _missing(self.item) from None
        except StorageError as e:
            raise _unreadable(e) from e

    async def learned(self, handle: str, *, expires_in: float | None = None) -> None:
        self.handle = handle
        if self.item.blob_ref is not None:
            until = datetime.now(UTC) + timedelta(seconds=expires_in) if expires_in else None
            query = "select autopost.put_upload(%s, %s, %s, %s, %s, %s, %s, %s)"
            await call(self.depot.pool, query, (*self.key, handle, until, self.token))
        self._leave()

    async def forget(self) -> None:
        if self.handle is not None and self.item.blob_ref is not None:
            await call(
                self.depot.pool, "select autopost.forget_upload(%s, %s, %s, %s, %s, %s)", (*self.key, self.handle)
            )
            self.handle = None
            # Nobody waits for a file while holding a later one: whoever holds this one may want that next.
            later = [each for each in self.siblings if each.mine and each.key > self.key]
            for each in later:
                await each.drop()
            for each in (self, *later):
                await each.take()

    async def take(self) -> None:
        """Until the handle is known, or the upload is this sender's."""
        while True:
            state, handle = await self._ask()
            if state == "ready":
                self.handle = handle
                return
            if state == "yours":
                self.mine = True
                self._extended = asyncio.get_running_loop().time()
                self.depot.begun(self.key)
                return
            await beat()  # the file is moving, though not through this sender
            await self.depot.wait(self.key)

    async def drop(self) -> None:
        """It was this sender's to upload, and did not come about."""
        if self.mine:
            query = "select autopost.drop_upload(%s, %s, %s, %s, %s, %s)"
            try:
                await call(self.depot.pool, query, (*self.key, self.token))
            except (psycopg.Error, PoolTimeout) as e:
                # The platform may have shown it: a send does not fail for that. The place is free when its lease ends.
                log.warning("media.upload_not_dropped", workspace_id=self.key[0], error=str(e).strip())
            finally:
                self._leave()

    async def _ask(self) -> tuple[str, str | None]:
        query = "select state, handle from autopost.take_upload(%s, %s, %s, %s, %s, %s, %s)"
        row = (await call(self.depot.pool, query, (*self.key, self.token, LEASE)))[0]
        return row["state"], row["handle"]

    async def _alive(self) -> None:
        now = asyncio.get_running_loop().time()
        if self.mine and now - self._extended > LEASE.total_seconds() / 3:
            self._extended = now
            await self._ask()
        await beat()

    def _leave(self) -> None:
        if self.mine:
            self.mine = False
            self.depot.ended(self.key)


class SqlDepot:
    def __init__(self, pool: Pool, store: ObjectStore) -> None:
        self.pool, self.store = pool, store
        self._under_way: dict[Key, asyncio.Event] = {}

    @asynccontextmanager
    async def resolve(self, channel: Channel, items: Sequence[MediaItem]) -> AsyncIterator[Sequence[_Item]]:
        async with AsyncExitStack() as stack:
            try:
                found = await self._taken(channel, items, stack)
            except (psycopg.Error, PoolTimeout) as e:
                failure = _unavailable(e)
            else:
                yield found
                return
        raise failure

    async def _taken(self, channel: Channel, items: Sequence[MediaItem], stack: AsyncExitStack) -> list[_Item]:
        origins = await self._origins(channel.workspace_id, items)
        found = [self._item(channel, item, origins) for item in items]
        # In one order everywhere: two albums with the same two files never wait for each other.
        in_order = sorted(found, key=lambda each: each.key)
        for each in in_order:
            each.siblings = in_order
            if each.item.blob_ref is not None and each.handle is None:
                await each.take()
                stack.push_async_callback(each.drop)
        return found

    def begun(self, key: Key) -> None:
        self._under_way.setdefault(key, asyncio.Event())

    def ended(self, key: Key) -> None:
        event = self._under_way.pop(key, None)
        if event is not None:
            event.set()

    async def wait(self, key: Key) -> None:
        event = self._under_way.get(key)
        try:
            async with asyncio.timeout(LOOK_AGAIN if event is None else LEASE.total_seconds() / 4):
                await (event or asyncio.Event()).wait()
        except TimeoutError:
            pass

    async def _origins(self, workspace_id: str, items: Sequence[MediaItem]) -> dict[str, str]:
        refs = sorted({item.blob_ref for item in items if item.blob_ref is not None})
        if not refs:
            return {}
        rows = await call(
            self.pool,
            "select blob_ref, origin_url from autopost.media_origin"
            " where workspace_id = %s and blob_ref = any (%s) and deleted_at is null",
            (workspace_id, refs),
        )
        return {row["blob_ref"]: row["origin_url"] for row in rows}

    def _item(self, channel: Channel, item: MediaItem, origins: dict[str, str]) -> _Item:
        key = (channel.workspace_id, item.blob_ref or "", channel.platform, channel.auth_ref, item.type)
        handle = item.file_id or item.attachment_token
        return _Item(self, key, item, origins.get(item.blob_ref or ""), handle)


def _missing(item: MediaItem) -> SendError:
    return SendError(
        category="PERMANENT",
        scope="delivery",
        code="media_missing_origin",
        message=f"the file {item.blob_ref or item.url} is not in the object store (any more)",
        raw={"outcome": "not_sent"},
    )


def _unreadable(error: StorageError) -> SendError:
    return SendError(
        category="TRANSIENT",
        scope="delivery",
        code="object_store",
        message=f"the object store cannot be read: {error}",
        raw={"outcome": "not_sent"},
    )


def _unavailable(error: Exception) -> SendError:
    return SendError(
        category="TRANSIENT",
        scope="delivery",
        code="database_away",
        message=f"what is known of the files cannot be asked: {type(error).__name__}",
        raw={"outcome": "not_sent"},
    )
