"""What every store promises: whole or not at all, streaming, and words that a person understands."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from s3_server import S3Server

from vestnik.storage import ObjectNotFound, ObjectStore, StorageError, open_store
from vestnik.storage.store import PART

MB = 1 << 20


async def stream(data: bytes, step: int = 300_000) -> AsyncIterator[bytes]:
    for at in range(0, len(data), step):
        yield data[at : at + step]


async def content(store: ObjectStore, path: str) -> bytes:
    return b"".join([chunk async for chunk in store.get(path)])


async def names(store: ObjectStore, prefix: str) -> list[str]:
    return sorted([each.path async for each in store.list(prefix)])


@pytest.mark.parametrize("size", [0, 1, PART - 1, PART, PART + 1, 2 * PART, 3 * PART + 7])
async def test_what_goes_in_comes_out(store: ObjectStore, size: int) -> None:
    data = random.Random(size).randbytes(size)
    await store.put("a/b", stream(data))

    assert await content(store, "a/b") == data
    assert (await store.head("a/b")).size == size
    assert abs((await store.head("a/b")).modified - datetime.now(UTC)) < timedelta(minutes=5)


async def test_a_second_put_replaces(store: ObjectStore) -> None:
    await store.put("a", stream(b"x" * (PART + 1)))
    await store.put("a", stream(b"short"))
    assert await content(store, "a") == b"short"


async def test_what_is_not_there(store: ObjectStore) -> None:
    assert not await store.exists("a/b")
    await store.delete("a/b")
    for attempt in (content(store, "a/b"), store.head("a/b"), store.rename("a/b", "c")):
        with pytest.raises(ObjectNotFound) as caught:
            await attempt
        assert caught.value.permanent
        assert str(caught.value) == "the object store has no a/b"


async def test_a_name_moves_with_its_bytes(store: ObjectStore) -> None:
    await store.put("incoming/1", stream(b"new"))
    await store.put("blobs/x", stream(b"old"))
    await store.rename("incoming/1", "blobs/x")
    assert await content(store, "blobs/x") == b"new"
    assert not await store.exists("incoming/1")


async def test_lists_what_is_in_a_folder(store: ObjectStore) -> None:
    for name in ("a/1", "a/b/2", "ab/3"):
        await store.put(name, stream(b"x"))
    assert await names(store, "a") == ["a/1", "a/b/2"]
    assert await names(store, "none") == []
    await store.delete("a/1")
    assert await names(store, "a") == ["a/b/2"]


async def test_sweeps_what_is_older(store: ObjectStore) -> None:
    await store.put("incoming/1", stream(b"x"))
    await store.put("blobs/1", stream(b"x"))
    now = datetime.now(UTC)
    assert await store.sweep("incoming", now - timedelta(hours=1)) == 0
    assert await store.sweep("incoming", now + timedelta(hours=1)) == 1
    assert await store.exists("blobs/1")
    assert not await store.exists("incoming/1")


class Broken(Exception):
    pass


@pytest.mark.parametrize("after", [0, 1000, PART + 1, 3 * PART])
async def test_a_source_that_breaks_leaves_nothing(s3: S3Server, tmp_path: Path, after: int) -> None:
    async def breaking() -> AsyncIterator[bytes]:
        async for chunk in stream(bytes(after)):
            yield chunk
        raise Broken

    bucket = s3.new_bucket()
    for store in (open_store(tmp_path.as_uri()), open_store(s3.url(bucket))):
        with pytest.raises(Broken):
            await store.put("a", breaking())
        assert not await store.exists("a")
    assert s3.unfinished_uploads(bucket) == 0
    assert list(tmp_path.rglob("*")) == []


async def test_a_put_that_is_cancelled_leaves_nothing(s3: S3Server, tmp_path: Path) -> None:
    bucket = s3.new_bucket()
    for store in (open_store(tmp_path.as_uri()), open_store(s3.url(bucket))):
        waiting = asyncio.Event()

        async def stuck(waiting: asyncio.Event = waiting) -> AsyncIterator[bytes]:
            yield bytes(PART + 1)
            yield bytes(PART + 1)
            waiting.set()
            await asyncio.Event().wait()

        putting = asyncio.create_task(store.put("a", stuck()))
        await waiting.wait()
        putting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await putting
        assert not await store.exists("a")
    assert s3.unfinished_uploads(bucket) == 0
    assert list(tmp_path.rglob("*")) == []


async def test_an_earlier_object_survives_a_put_that_breaks(store: ObjectStore) -> None:
    async def breaking() -> AsyncIterator[bytes]:
        yield bytes(2 * PART)
        raise Broken

    await store.put("a", stream(b"good"))
    with pytest.raises(Broken):
        await store.put("a", breaking())
    assert await content(store, "a") == b"good"


async def test_a_server_that_dies_in_the_middle(tmp_path: Path) -> None:
    with S3Server.running() as server:
        store = open_store(server.url(server.new_bucket()))

        async def dying() -> AsyncIterator[bytes]:
            yield bytes(2 * PART)
            server.process.kill()
            server.process.wait()
            while True:
                yield bytes(PART)

        with pytest.raises(StorageError, match=r"^the object store cannot be reached, or broke off$") as caught:
            await store.put("a", dying())
    assert not caught.value.permanent


async def test_a_reader_hears_that_the_server_died() -> None:
    with S3Server.running() as server:
        store = open_store(server.url(server.new_bucket()))
        await store.put("a", stream(bytes(30 * MB)))
        with pytest.raises(StorageError) as caught:
            async for _ in store.get("a"):
                if server.process.poll() is None:
                    server.process.kill()
                    server.process.wait()
    assert not caught.value.permanent


async def test_a_missing_bucket_is_not_a_missing_object(s3: S3Server) -> None:
    store = open_store(s3.url("never-made"))
    for attempt in (content(store, "a"), store.head("a"), store.exists("a"), store.put("a", stream(b"x"))):
        with pytest.raises(StorageError, match="the bucket of the object store does not exist") as caught:
            await attempt
        assert not caught.value.permanent


async def test_a_missing_folder_is_not_a_missing_object(tmp_path: Path) -> None:
    store = open_store((tmp_path / "disk").as_uri())
    (tmp_path / "disk").rmdir()
    for attempt in (content(store, "a"), store.exists("a")):
        with pytest.raises(StorageError, match="folder for objects is gone") as caught:
            await attempt
        assert not caught.value.permanent


async def test_a_missing_folder_is_not_made_anew(tmp_path: Path) -> None:
    """It would hide the disk that comes back, and what it held with it."""
    store = open_store((tmp_path / "objects").as_uri())
    (tmp_path / "objects").rename(tmp_path / "unplugged")
    with pytest.raises(StorageError, match="is gone"):
        await store.put("a", stream(b"x"))
    (tmp_path / "unplugged").rename(tmp_path / "objects")
    await store.put("a", stream(b"x"))


async def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    (tmp_path / "a").write_bytes(b"a file where a folder should be")
    with pytest.raises(StorageError, match=r"^the object store failed: ") as caught:
        await store.put("a/b", stream(b"x"))
    assert not caught.value.permanent


@pytest.mark.parametrize("path", ["../a", "a/../../b", "a/./b", "a//b"])
async def test_no_way_out_of_the_store(store: ObjectStore, path: str) -> None:
    with pytest.raises(StorageError) as caught:
        await store.put(path, stream(b"x"))
    assert caught.value.permanent


async def test_what_a_killed_process_left_in_a_folder_is_swept(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    await store.put("incoming/a", stream(b"x"))
    half = tmp_path / "incoming" / "b#1"
    half.write_bytes(b"half")
    assert await names(store, "incoming") == ["incoming/a"]
    assert await store.sweep("incoming", datetime.now(UTC) - timedelta(hours=1)) == 0
    assert half.exists()
    os.utime(half, (0, 0))
    assert await store.sweep("incoming", datetime.now(UTC) - timedelta(hours=1)) == 1
    assert not half.exists()


async def test_many_at_once(store: ObjectStore) -> None:
    bodies = {f"m/{i}": random.Random(i).randbytes(PART // 2 + i * PART // 4) for i in range(8)}
    await asyncio.gather(*(store.put(name, stream(body)) for name, body in bodies.items()))
    for name, body in bodies.items():
        assert hashlib.sha256(await content(store, name)).digest() == hashlib.sha256(body).digest()
