"""``media``: one picture to many channels, and one large video, through the dispatcher as it ships.

The emulated platforms are a process of their own, without rates; so is each of the two senders whose memory is told:
one that has sent pictures, and one that has sent the video.
"""

from __future__ import annotations

import asyncio
import os
import struct
import tempfile
import zlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from vestnik.autopost import verbs
from vestnik.autopost.media.arrival import keep_origin
from vestnik.autopost.media.blobs import BlobStore
from vestnik.bench.ground import BenchError, Ground
from vestnik.bench.report import Figures
from vestnik.bench.service_process import ServiceProcess, started
from vestnik.bench.workload import WORKSPACE, make_channels, make_workspace, post
from vestnik.db.pool import Pool, call, make_pool
from vestnik.ops.secrets.box import SecretBox
from vestnik.ops.secrets.credentials import Credentials
from vestnik.storage import open_store

AIMS = {"uploads": "= 1", "large_above_mb": "<= 64"}
MB = 1024 * 1024
SANDBOX = ("vestnik", "sandbox", "--port", "0", "--lenient")
SENDER = ("vestnik", "run", "api", "dispatcher")  # the API for its address, which tells that it is up


@dataclass(frozen=True)
class Size:
    posts: int = 10
    channels: int = 100
    picture_mb: int = 5
    video_mb: int = 200


TINY = Size(posts=2, channels=3, picture_mb=1, video_mb=3)


@dataclass(frozen=True)
class Stage:
    ground: Ground
    url: str
    pool: Pool
    folder: Path
    sandbox: str
    http: aiohttp.ClientSession


async def run(ground: Ground, size: Size, turn: int) -> Figures:
    pictures = await _pictures(ground, size)
    large = await _video(ground, size)
    return pictures | {"peak_rss_mb_large": large, "large_above_mb": large - pictures["peak_rss_mb"]}


async def _pictures(ground: Ground, size: Size) -> Figures:
    async with _stage(ground) as stage:
        await _channels(stage, "telegram", size.channels)
        picture = await _stored(stage, _picture(size.picture_mb * MB), size.picture_mb * MB)
        ground.say(f"{size.posts} posts of one picture to {size.channels} channels")
        for number in range(size.posts):
            await _publish(stage, post(number), "image", picture)
        async with _sender(stage) as sender:
            await _all_sent(stage.pool, size.posts * size.channels)
            peak = sender.peak_rss_mb()
        uploads = (await _told(stage, "telegram"))["counters"].get("uploads", 0)
        return {"uploads": uploads, "deliveries_per_s": await _rate(stage.pool), "peak_rss_mb": peak}


async def _video(ground: Ground, size: Size) -> float:
    async with _stage(ground) as stage:
        await _channels(stage, "max", 1)
        video = await _stored(stage, _film(size.video_mb), size.video_mb * MB)
        ground.say(f"a video of {size.video_mb} MB")
        await _publish(stage, post("one"), "video", video)
        async with _sender(stage) as sender:
            await _all_sent(stage.pool, 1)
            return sender.peak_rss_mb()


@asynccontextmanager
async def _stage(ground: Ground) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(ground.database("media"))
        pool = await stack.enter_async_context(make_pool(url, max_size=2))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vestnik-bench-media-")))
        sandbox = await stack.enter_async_context(started(SANDBOX, url, folder, tells_on_stdout=True))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        await make_workspace(pool)
        yield Stage(ground, url, pool, folder, sandbox.url, http)


async def _channels(stage: Stage, platform: str, count: int) -> None:
    await make_channels(stage.pool, count)
    await call(
        stage.pool, "update autopost.channels set platform = %s, target_id = '-1' || right(channel_id, 6)", (platform,)
    )
    async with stage.pool.connection() as connection:
        credentials = Credentials(stage.pool, SecretBox.open(stage.folder, None))
        await credentials.store(connection, WORKSPACE, platform, "bot", "1000001:BENCH")
    limits = {"chat_rps": None, "token_rps": None}
    async with stage.http.put(f"{stage.sandbox}/admin/{platform}/settings", json=limits) as answer:
        if answer.status != 200:
            raise BenchError(f"the sandbox does not take its settings: {await answer.text()}")


@asynccontextmanager
async def _sender(stage: Stage) -> AsyncIterator[ServiceProcess]:
    settings = {
        "VESTNIK_TELEGRAM_API_URL": f"{stage.sandbox}/telegram",
        "VESTNIK_MAX_API_URL": f"{stage.sandbox}/max",
    }
    await stage.ground.settle(stage.url)
    async with started(SENDER, stage.url, stage.folder, settings=settings) as sender:
        yield sender


async def _stored(stage: Stage, chunks: AsyncIterator[bytes], size: int) -> str:
    blobs = BlobStore(open_store((stage.folder / "objects").as_uri()))
    return await keep_origin(stage.pool, WORKSPACE, await blobs.keep(WORKSPACE, chunks, None, max_bytes=size))


async def _publish(stage: Stage, text: str, kind: str, blob_ref: str) -> None:
    media = [{"type": kind, "blob_ref": blob_ref}]
    done = await verbs.publish(stage.pool, WORKSPACE, {"text": text, "media": media})
    if not done["enqueued"] or done["failed"]:
        raise BenchError(f"the post was not queued: {done}")


async def _all_sent(pool: Pool, count: int) -> None:
    for _ in range(3000):
        found = await call(pool, "select status, count(*) as n from autopost.deliveries group by 1")
        statuses = {row["status"]: row["n"] for row in found}
        if statuses == {"sent": count}:
            return
        if statuses.keys() & {"dead", "failed_permanent"}:
            break
        await asyncio.sleep(0.1)
    raise BenchError(f"not every delivery was sent within five minutes: {statuses}")


async def _rate(pool: Pool) -> float:
    """From the first begin until the last result was written."""
    query = """
        select count(*) filter (where action = 'sent') / extract(epoch from
               max(ts) filter (where action = 'sent') - min(ts) filter (where action = 'send_attempt'))::float8 as per_s
        from autopost.events"""
    return float((await call(pool, query))[0]["per_s"])


async def _told(stage: Stage, platform: str) -> Any:
    async with stage.http.get(f"{stage.sandbox}/admin/{platform}") as answer:
        return await answer.json()


async def _picture(size: int) -> AsyncIterator[bytes]:
    """A real one, of a usual size in points, and bytes behind its end up to the size wanted."""
    head = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in (
            (b"IHDR", struct.pack(">IIBBBBB", 1600, 1200, 8, 0, 0, 0, 0)),
            (b"IDAT", zlib.compress(bytes(1601 * 1200))),
            (b"IEND", b""),
        )
    )
    yield head
    yield os.urandom(size - len(head))


async def _film(megabytes: int) -> AsyncIterator[bytes]:
    yield (b"\x00\x00\x00\x18ftypmp42" + bytes(MB))[:MB]
    for _ in range(megabytes - 1):
        yield os.urandom(MB)
