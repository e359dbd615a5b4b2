"""An object store that fails half-way: the post waits or is tried again, nothing is lost, nothing is posted twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from newsroom import Newsroom, named, picture


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("broken", ["incoming", "media"])
async def test_a_fetch_that_cannot_be_stored_is_tried_again(newsroom: Newsroom, broken: str) -> None:
    """``incoming``: the put fails; ``media``: the rename that follows it."""
    await newsroom.channels("telegram")
    objects = newsroom.folder / "objects"
    objects.mkdir()
    (objects / broken).write_text("in the way of a folder")
    async with newsroom.open():
        await newsroom.push({"media": [{"type": "image", "url": newsroom.put_file("a.png", picture())}]})
        await newsroom.until(lambda: newsroom.sql("select 1 from ops.jobs where status = 'retry'"), "a retry")
        assert await newsroom.gate() == "media_pending"
        (job,) = await newsroom.sql("select last_error from ops.jobs")
        assert job["last_error"]["code"] == "object_store"
        assert files_in(objects) == [objects / broken], "nothing half is left"
        (objects / broken).unlink()
        await newsroom.sql("update ops.jobs set run_at = now() where status = 'retry'")
        await newsroom.settled()
    assert len(newsroom.posts()) == 1


@pytest.mark.parametrize("platform", ["telegram", "max"])
async def test_a_file_that_breaks_off_on_its_way_to_the_platform_is_sent_once_when_it_is_whole(
    newsroom: Newsroom, platform: str
) -> None:
    await newsroom.channels(platform)
    await newsroom.sql("update autopost.policies set max_attempts = 500")
    data = b"%PDF-1.7 " + bytes(3_000_000)
    async with newsroom.open("api"):
        await newsroom.push({"text": "A file", "media": named("file", ["f"])}, f=data)
    (kept,) = files_in(newsroom.folder / "objects" / "media")
    kept.write_bytes(data[:1_000_000])
    async with newsroom.open("dispatcher"):

        async def tried() -> bool:
            return bool(await newsroom.sql("select 1 from autopost.events where error ->> 'code' = 'media_unreadable'"))

        await newsroom.until(tried, "an attempt that broke off")
        assert newsroom.posts(platform) == []
        kept.write_bytes(data)
        await newsroom.settled()
    assert [media.file.size for post in newsroom.posts(platform) for media in post.media] == [len(data)]
    assert newsroom.uploads(platform) == 1


async def test_a_whole_store_that_is_gone_is_waited_for_and_is_no_lost_file(newsroom: Newsroom) -> None:
    await newsroom.channels("telegram", 3)
    await newsroom.sql("update autopost.policies set max_attempts = 500")
    async with newsroom.open("api"):
        await newsroom.push({"media": named("image", ["a"])}, a=picture())
    objects = newsroom.folder / "objects"
    await newsroom.sql("update autopost.channels set paused_until = now() + interval '1 hour'")
    async with newsroom.open("dispatcher"):
        objects.rename(newsroom.folder / "unplugged")
        await newsroom.sql("update autopost.channels set paused_until = null")

        async def noticed() -> bool:
            return bool(await newsroom.sql("select 1 from autopost.events where error ->> 'code' = 'object_store'"))

        await newsroom.until(noticed, "an attempt")
        assert newsroom.posts() == []
        (newsroom.folder / "unplugged").rename(objects)
        await newsroom.settled()
    assert len(newsroom.posts()) == 3
    assert newsroom.uploads() == 1
