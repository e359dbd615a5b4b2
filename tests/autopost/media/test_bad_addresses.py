"""Addresses that lead nowhere, or somewhere bad: a clear reason in every delivery, and nothing of it is kept or sent."""

from __future__ import annotations

import struct
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from newsroom import Newsroom, picture

MB = 1024 * 1024


@asynccontextmanager
async def answering(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/{any:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def refused(newsroom: Newsroom, url: str, kind: str = "image", **settings: object) -> str:
    """The reason that the deliveries give."""
    await newsroom.channels("telegram")
    await newsroom.channels("max")
    async with newsroom.open(**settings):
        answer = await newsroom.push({"text": "Look", "media": [{"type": kind, "url": url}]})
        assert (answer["status"], answer["media_pending"]) == (202, 2)
        await newsroom.settled("failed_permanent")
    error = await newsroom.error()
    assert (error["code"], error["category"], error["scope"]) == ("media_missing_origin", "PERMANENT", "delivery")
    objects = newsroom.folder / "objects"
    assert [path for path in objects.rglob("*") if path.is_file()] == []
    assert newsroom.posts() == newsroom.posts("max") == []
    noted = await newsroom.sql("select count(*) as n from autopost.events where action = 'failed_permanent'")
    assert noted[0]["n"] == 2
    assert await newsroom.sql("select 1 from ops.jobs where status = 'dead'")
    return str(error["message"])


async def test_a_redirect_into_a_private_network(newsroom: Newsroom) -> None:
    async def away(request: web.Request) -> web.Response:
        raise web.HTTPFound("http://169.254.169.254/latest/meta-data")

    async with answering(away) as url:
        said = await refused(newsroom, f"{url}/a.png")
    assert said == (
        "item 1 could not be fetched: the address leads into a private network,"
        " which is not fetched from unless VESTNIK_FETCH_ALLOW names it"
    )


async def test_a_private_address_that_nobody_has_allowed(newsroom: Newsroom) -> None:
    newsroom.fetch_allow = ""
    said = await refused(newsroom, newsroom.put_file("a.png", picture()))
    assert "private network" in said
    assert newsroom.fetches() == 0


async def test_ten_gigabytes_that_say_so(newsroom: Newsroom) -> None:
    async def large(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(10 * 1024 * MB)})
        await response.prepare(request)
        return response

    async with answering(large) as url:
        assert "larger than the 536870912 bytes allowed" in await refused(newsroom, f"{url}/a.png")


async def test_an_answer_without_end_is_cut_off(newsroom: Newsroom) -> None:
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        while True:
            await response.write(picture() + bytes(65536))
            sent += 65536

    async with answering(endless) as url:
        assert "larger than the 1048576 bytes allowed" in await refused(newsroom, f"{url}/a.png", media_max_bytes=MB)
    assert sent < 64 * MB


@pytest.mark.parametrize(
    ("data", "content_type", "says"),
    [
        (b"<!DOCTYPE html><h1>Log in</h1>", "image/png", "it should be an image, and is text/html"),
        (b"just some words", "image/jpeg", "it should be an image, and is text/plain"),
        (b"\x00\x00\x00\x18ftypmp42" + bytes(99), "image/png", "it should be an image, and is video/mp4"),
        (b"\xff\xd8\xff\xe0 not at all", "image/jpeg", "it begins like a picture, and is none"),
        (b"", "image/png", "it is empty"),
    ],
)
async def test_a_content_type_that_lies(newsroom: Newsroom, data: bytes, content_type: str, says: str) -> None:
    said = await refused(newsroom, newsroom.put_file("a.png", data, content_type))
    assert said == f"item 1 could not be fetched: {says}"


def bomb_png(side: int = 60_000) -> bytes:
    """Few bytes, thousands of millions of points."""
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(bytes(100_000))), (b"IEND", b"")]
    body = b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body


def bomb_gif() -> bytes:
    return (
        b"GIF89a"
        + struct.pack("<HHBBB", 65535, 65535, 0, 0, 0)
        + b","
        + struct.pack("<HHHHB", 0, 0, 65535, 65535, 0)
        + b"\2\0;"
    )


@pytest.mark.parametrize(
    ("bomb", "kind"),
    [(bomb_png(), "image"), (bomb_png(14_143), "file"), (bomb_gif(), "animation"), (bomb_gif(), "file")],
)
async def test_a_picture_that_would_burst_whoever_unpacks_it(newsroom: Newsroom, bomb: bytes, kind: str) -> None:
    said = await refused(newsroom, newsroom.put_file("a.png", bomb), kind)
    assert said == "item 1 could not be fetched: a picture of more than 200000000 points is not taken"


async def test_a_picture_of_as_many_points_as_may_be_is_taken(newsroom: Newsroom) -> None:
    async with newsroom.open("api"):
        answer = await newsroom.push({"media": [{"type": "file", "upload": "a"}]}, a=bomb_png(14_142))
    assert answer["status"] == 202, answer


async def test_an_address_that_is_dead(newsroom: Newsroom) -> None:
    said = await refused(newsroom, f"{newsroom.sandbox.url}/files/nothing.png")
    assert said == "item 1 could not be fetched: the server answered 404"


async def test_a_password_in_an_address_is_told_to_that_server_and_to_nobody_else(newsroom: Newsroom) -> None:
    asked: list[str | None] = []

    async def guarded(request: web.Request) -> web.Response:
        asked.append(request.headers.get("Authorization"))
        return web.Response(status=403)

    async with answering(guarded) as url:
        said = await refused(newsroom, url.replace("http://", "http://smm:s3cret@") + "/a.png?key=s3cret")
    assert [header is not None for header in asked] == [True]
    told = await newsroom.sql(
        "select j::text as told from ops.jobs j union all select r::text from ops.job_runs r"
        " union all select e::text from ops.errors e union all select e::text from autopost.events e"
    )
    assert "s3cret" not in said + "".join(row["told"] for row in told)


async def test_a_download_that_breaks_off_is_tried_again_and_nothing_half_is_sent(newsroom: Newsroom) -> None:
    await newsroom.channels("telegram")
    url = newsroom.put_file("a.png", picture(width=400, height=300))
    newsroom.fault("site", "cut", times=1)
    async with newsroom.open():
        await newsroom.push({"media": [{"type": "image", "url": url}]})
        await newsroom.until(lambda: newsroom.sql("select 1 from ops.jobs where status = 'retry'"), "a retry")
        assert await newsroom.gate() == "media_pending"
        await newsroom.sql("update ops.jobs set run_at = now() where status = 'retry'")
        await newsroom.settled()
    assert newsroom.fetches() == 2
    assert [media.file.width for post in newsroom.posts() for media in post.media] == [400]


async def test_what_came_is_not_fetched_again_when_another_item_fails(newsroom: Newsroom) -> None:
    await newsroom.channels("telegram")
    urls = [newsroom.put_file(f"{n}.png", picture(n)) for n in range(3)]
    newsroom.fault("site", "503", method="files/2.png", times=1)
    async with newsroom.open():
        await newsroom.push({"media": [{"type": "image", "url": url} for url in urls]})
        await newsroom.until(lambda: newsroom.sql("select 1 from ops.jobs where status = 'retry'"), "a retry")
        await newsroom.sql("update ops.jobs set run_at = now() where status = 'retry'")
        await newsroom.settled()
    assert newsroom.fetches() == 4
    assert len(newsroom.posts()) == 3


async def test_a_picture_that_came_is_too_large_for_one_platform_alone(newsroom: Newsroom) -> None:
    await newsroom.channels("telegram")
    await newsroom.channels("telegram", large_image="document")
    await newsroom.channels("max")
    async with newsroom.open():
        await newsroom.push(
            {
                "text": "Wide",
                "media": [{"type": "image", "url": newsroom.put_file("w.png", picture(width=2500, height=100))}],
            }
        )
        await newsroom.settled("sent", "failed_permanent")
    error = await newsroom.error()
    assert (error["code"], error["message"]) == (
        "validation_failed",
        "item 1: Telegram shows no picture of 2500 x 100 points; send it as a file, or set large_image: document",
    )
    assert [post.media[0].type for post in newsroom.posts()] == ["document"]
    assert len(newsroom.posts("max")) == 1
