"""The garbage collection beside those who bring or name the same file: what somebody relies on is there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from test_gc import files, forget, post

from vestnik.autopost.media.arrival import keep_origin
from vestnik.autopost.media.blobs import Blob, BlobStore
from vestnik.autopost.media.gc import GRACE, Files, Strays
from vestnik.db.pool import Pool
from vestnik.ops.retention import Rule, run, status
from vestnik.storage import ObjectStore, StorageError, open_store

if TYPE_CHECKING:
    from crowd import Crowd

    from conftest import Autopost

LATER = timedelta(days=31)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(tmp_path.as_uri())


async def bring(store: ObjectStore) -> Blob:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"a file, no matter which"

    return await BlobStore(store).keep("w", chunks(), "file", max_bytes=1000)


async def collect(pool: Pool, rule: Rule, autopost: Autopost) -> dict[str, Any]:
    return await run(pool, [rule], now=autopost.now)


async def is_whole(autopost: Autopost, store: ObjectStore) -> bool:
    """Every row of a file names an object that is there."""
    rows = await autopost.sql("select origin_url from autopost.media_origin")
    return all([await store.exists(row["origin_url"]) for row in rows])


async def test_a_copy_that_comes_in_while_its_file_goes_is_a_file_of_its_own(
    autopost: Autopost, crowd: Crowd, pool: Pool, store: ObjectStore
) -> None:
    """The object of the new copy lies there before the old row is looked at, and its row comes after that is gone."""
    await keep_origin(pool, "w", await bring(store))
    autopost.now += LATER
    (collector,) = await crowd.hands(1)
    async with collector.connection.transaction():
        again = await bring(store)
        paths = await forget(collector)
        keeping = asyncio.ensure_future(keep_origin(pool, "w", again))
        async with asyncio.timeout(10):
            while not await autopost.value(
                "select exists (select from pg_stat_activity where wait_event_type = 'Lock')"
            ):
                await asyncio.sleep(0.005)
    ref = await keeping
    for path in paths:
        await store.delete(path)
    assert len(paths) == 1
    assert paths != [again.path]
    assert await files(autopost) == [ref]
    assert await is_whole(autopost, store)


async def test_a_file_that_a_post_is_just_naming_is_passed_by(
    autopost: Autopost, crowd: Crowd, pool: Pool, store: ObjectStore
) -> None:
    await autopost.channel()
    ref = await keep_origin(pool, "w", await bring(store))
    autopost.now += LATER
    pusher, collector = await crowd.hands(2)
    async with pusher.connection.transaction():
        assert (await pusher.push(post(ref, kind="file")))["enqueued"] == 1
        assert await forget(collector) == [], "and it did not wait"
    assert await forget(collector) == []
    assert await is_whole(autopost, store)


async def test_a_file_that_a_post_named_between_the_look_and_the_lock_stays(
    autopost: Autopost, crowd: Crowd, pool: Pool, store: ObjectStore
) -> None:
    """The first look is held up until the post is there, which it does not see; the one under the lock does."""
    await autopost.channel()
    ref = await keep_origin(pool, "w", await bring(store))
    autopost.now += LATER
    await autopost.sql(
        """alter function autopost.file_is_needed(text, text, boolean) rename to file_is_really_needed;
           create function autopost.file_is_needed(p_ws text, p_ref text, p_large boolean) returns boolean
           language plpgsql stable as $$ begin
               perform pg_advisory_xact_lock_shared(7);
               return autopost.file_is_really_needed(p_ws, p_ref, p_large);
           end $$"""
    )
    holder, pusher, collector = await crowd.hands(3)
    async with holder.connection.transaction():
        await holder.sql("select pg_advisory_xact_lock(7)")
        collecting = await crowd.blocked(collector, forget(collector))
        assert (await pusher.push(post(ref, kind="file")))["enqueued"] == 1
    assert await collecting == []
    assert await files(autopost) == [ref]


async def test_a_post_that_names_a_file_while_it_goes_is_told_so(
    autopost: Autopost, crowd: Crowd, pool: Pool, store: ObjectStore
) -> None:
    """Not by silence: its deliveries fail with the reason."""
    await autopost.channel()
    ref = await keep_origin(pool, "w", await bring(store))
    autopost.now += LATER
    pusher, collector = await crowd.hands(2)
    async with collector.connection.transaction():
        assert len(await forget(collector)) == 1
        pushing = await crowd.blocked(pusher, pusher.push(post(ref, kind="file")))
    assert (await pushing)["failed"] == 1
    (delivery,) = await autopost.deliveries()
    assert delivery["last_error"]["code"] == "media_missing_origin"


async def test_a_post_that_names_a_file_whose_removal_breaks_off_goes_out(
    autopost: Autopost, crowd: Crowd, pool: Pool, store: ObjectStore
) -> None:
    await autopost.channel()
    ref = await keep_origin(pool, "w", await bring(store))
    autopost.now += LATER
    pusher, collector = await crowd.hands(2)
    with pytest.raises(asyncio.CancelledError):
        async with collector.connection.transaction():
            await forget(collector)
            pushing = await crowd.blocked(pusher, pusher.push(post(ref, kind="file")))
            raise asyncio.CancelledError
    assert (await pushing)["enqueued"] == 1
    assert await is_whole(autopost, store)


async def test_files_come_and_go_at_the_same_time_and_none_is_lost(
    autopost: Autopost, crowd: Crowd, pool: Pool, store: ObjectStore
) -> None:
    """For the collector everything is old and nothing is named: it takes whatever it may take."""
    late = autopost.on((await crowd.hand()).connection)
    late.now += timedelta(days=3650)
    done = asyncio.Event()

    async def collecting() -> int:
        removed = 0
        while not done.is_set():
            for path in await forget(late):
                await store.delete(path)
                removed += 1
            await asyncio.sleep(0)
        return removed

    async def bringing() -> None:
        for _ in range(40):
            await keep_origin(pool, "w", await bring(store))

    task = asyncio.ensure_future(collecting())
    await asyncio.gather(*(bringing() for _ in range(3)))
    done.set()
    assert await task > 0
    assert await is_whole(autopost, store)


async def test_a_second_copy_of_a_file_does_not_stay(autopost: Autopost, pool: Pool, store: ObjectStore) -> None:
    first, second = await bring(store), await bring(store)
    await keep_origin(pool, "w", first)
    await keep_origin(pool, "w", second)
    assert (await store.exists(first.path), await store.exists(second.path)) == (True, False)


async def test_a_copy_takes_the_place_of_one_that_is_lost(autopost: Autopost, pool: Pool, store: ObjectStore) -> None:
    await keep_origin(pool, "w", first := await bring(store))
    await store.delete(first.path)
    await keep_origin(pool, "w", await bring(store))
    assert await is_whole(autopost, store)


async def test_objects_that_no_row_names_are_found_after_a_grace(
    autopost: Autopost, pool: Pool, store: ObjectStore, tmp_path: Path
) -> None:
    await keep_origin(pool, "w", named := await bring(store))
    stray = await bring(store)
    just_now = await bring(store)
    for each in (named, stray):
        long_ago = (tmp_path / each.path).stat().st_mtime - GRACE.total_seconds() - 60
        os.utime(tmp_path / each.path, (long_ago, long_ago))
    (shown,) = await status(pool, [Strays(store)])
    assert shown["going"] == 1
    assert (await run(pool, [Strays(store)]))["removed"] == {"objects": 1}
    assert [await store.exists(each.path) for each in (named, stray, just_now)] == [True, False, True]


async def test_what_is_left_between_the_row_and_its_object_is_such_a_stray(
    autopost: Autopost, pool: Pool, store: ObjectStore, tmp_path: Path
) -> None:
    class Failing(ObjectStore):
        async def delete(self, path: str) -> None:
            raise StorageError("the store is away")

    await keep_origin(pool, "w", blob := await bring(store))
    autopost.now += LATER
    done = await collect(pool, Files(Failing(store._store, root=tmp_path)), autopost)
    assert done["failed"] == {"w/media": "the store is away"}
    assert await files(autopost) == []
    assert await store.exists(blob.path)
    await collect(pool, Strays(store), autopost)
    assert not await store.exists(blob.path)
