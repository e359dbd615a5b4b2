"""Of all who want one file on one platform with one credential, one uploads it: also across processes."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from newsroom import Newsroom, named, picture

from vestnik.adapters.contract import Channel, MediaItem
from vestnik.autopost.media.depot import SqlDepot
from vestnik.db.pool import make_pool
from vestnik.storage import open_store

if TYPE_CHECKING:
    from crowd import Crowd

KEY = ("sha256:x", "telegram", "bot", "image")


async def take(hand: Any, token: Any, lease: str = "1 minute") -> tuple[str, str | None]:
    (row,) = await hand.sql(
        "select state, handle from autopost.take_upload(%s, %s, %s, %s, %s, %s, %s::interval, %s)",
        hand.workspace, *KEY, token, lease, hand.now,
    )  # fmt: skip
    return row["state"], row["handle"]


async def test_of_many_at_once_one_uploads(crowd: Crowd) -> None:
    async def ask(hand: Any) -> tuple[str, str | None]:
        return await take(hand, uuid4())

    told = await asyncio.gather(*map(ask, await crowd.hands(12)))
    assert sorted(state for state, _ in told) == ["wait"] * 11 + ["yours"]


@pytest.mark.pg16
async def test_the_others_get_its_handle_or_its_turn(workspace: Any) -> None:
    first, second, third = (uuid4() for _ in range(3))
    assert await take(workspace, first) == ("yours", None)
    assert await take(workspace, second) == ("wait", None)
    await workspace.sql("select autopost.drop_upload(%s, %s, %s, %s, %s, %s)", workspace.workspace, *KEY, first)
    assert await take(workspace, second) == ("yours", None)
    workspace.wait(seconds=59)
    assert await take(workspace, third) == ("wait", None)
    assert await take(workspace, second) == ("yours", None), "whoever is at it keeps its place"
    workspace.wait(seconds=61)
    assert await take(workspace, third) == ("yours", None), "a sender that died loses it"
    await workspace.sql("select autopost.put_upload(%s, %s, %s, %s, %s, 'H', null)", workspace.workspace, *KEY)
    assert await take(workspace, first) == ("ready", "H")
    await workspace.sql("select autopost.forget_upload(%s, %s, %s, %s, %s, 'OLD')", workspace.workspace, *KEY)
    assert await take(workspace, first) == ("ready", "H"), "only the handle that failed is forgotten"
    await workspace.sql("select autopost.forget_upload(%s, %s, %s, %s, %s, 'H')", workspace.workspace, *KEY)
    assert await take(workspace, first) == ("yours", None)


async def test_a_photo_and_a_document_of_one_file_are_two_uploads(newsroom: Newsroom) -> None:
    await newsroom.channels("telegram", 3)
    async with newsroom.open():
        await newsroom.push({"media": named("image", ["a"])}, a=picture())
        await newsroom.push({"media": named("file", ["a"])}, a=picture())
        await newsroom.settled()
    assert newsroom.uploads() == 2
    kinds = await newsroom.sql("select sent_as from autopost.media_blobs order by 1")
    assert [row["sent_as"] for row in kinds] == ["file", "image"]


@pytest.mark.parametrize("platform", ["telegram", "max"])
async def test_albums_with_the_same_pictures_in_another_order_do_not_wait_for_each_other(
    newsroom: Newsroom, platform: str
) -> None:
    await newsroom.channels(platform, 4)
    files = {"a": picture(1), "b": picture(2)}
    async with newsroom.open():
        await newsroom.push({"text": "1", "media": named("image", "ab")}, **files)
        await newsroom.push({"text": "2", "media": named("image", "ba")}, **files)
        await newsroom.settled()
        assert newsroom.uploads(platform) == 2
        # The same, when the platform no longer knows what it was given.
        newsroom.sandbox.state.platforms[platform].handles._all.clear()
        await newsroom.push({"text": "3", "media": named("image", "ab")}, **files)
        await newsroom.push({"text": "4", "media": named("image", "ba")}, **files)
        await newsroom.settled()
    assert len(newsroom.shown(platform)) == 4 * 4 * 2


def dispatcher(newsroom: Newsroom) -> subprocess.Popen[bytes]:
    """``vestnik run dispatcher`` in a process of its own."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("VESTNIK_")}
    ours = {
        "DATABASE_URL": newsroom.database,
        "DATA_DIR": str(newsroom.folder),
        "TELEGRAM_API_URL": newsroom.sandbox.telegram_url,
        "MAX_API_URL": newsroom.sandbox.max_url,
        "SEND_CONCURRENCY": "6",
        "LOG_LEVEL": "error",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "vestnik", "run", "dispatcher"],
        env=kept | {f"VESTNIK_{k}": v for k, v in ours.items()},
        cwd=newsroom.folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


async def end(*processes: subprocess.Popen[bytes]) -> None:
    for process in processes:
        process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(process.wait)


async def test_two_processes_upload_once(newsroom: Newsroom) -> None:
    await newsroom.channels("telegram", 12)
    async with newsroom.open("api"):
        await newsroom.push({"media": named("image", ["a"])}, a=picture(width=600, height=400))
    newsroom.fault("telegram", "slow", latency_ms=300, method="sendPhoto")
    await newsroom.sql("update core.workspaces set status = 'paused'")
    processes = dispatcher(newsroom), dispatcher(newsroom)

    async def both_listen() -> bool:
        there = "select 1 from pg_stat_activity where datname = current_database() and application_name = %s"
        return len(await newsroom.sql(there, "vestnik dispatcher listen")) == 2

    try:
        await newsroom.until(both_listen, "two dispatchers")
        await newsroom.sql("update core.workspaces set status = 'active'")
        await newsroom.settled()
    finally:
        await end(*processes)
    assert newsroom.uploads() == 1
    assert len(newsroom.posts()) == 12
    tokens = await newsroom.sql("select distinct meta ->> 'run_id' from autopost.events where action = 'send_attempt'")
    assert len(tokens) == 2, "both of them sent"


async def test_kill_9_in_the_middle_of_a_series_resumes_with_the_tail(newsroom: Newsroom) -> None:
    await newsroom.sql("update autopost.policies set sending_lease = '2 seconds'")
    await newsroom.channels("max")
    files = {f"f{n}": b"%PDF-1.7 number " + bytes([n]) for n in range(6)}
    async with newsroom.open("api"):
        await newsroom.push({"text": "Six files", "media": named("file", files)}, **files)
    newsroom.fault("max", "slow", latency_ms=400, method="messages")
    first = dispatcher(newsroom)

    async def in_the_third_message() -> bool:
        # Not in an upload: whoever dies in one keeps the others from it until its lease ends.
        done = "(select (render_meta #>> '{series_progress,calls}')::int from autopost.deliveries) = 2"
        return bool(await newsroom.sql(f"select 1 from autopost.media_blobs having count(file_id) = 3 and {done}"))

    await newsroom.until(in_the_third_message, "two of six, and the third under way")
    await end(first)
    before = len(newsroom.posts("max"))
    assert 2 <= before < 6
    newsroom.heal()
    second = dispatcher(newsroom)
    try:
        await newsroom.settled()
    finally:
        await end(second)
    names = [post.media[0].file.sha256 for post in newsroom.posts("max")]
    assert list(dict.fromkeys(names)) == [hashlib.sha256(data).hexdigest() for data in files.values()]
    # What was acknowledged is not sent again; the one call that was cut off may stand there twice.
    assert len(names) <= 7
    assert await newsroom.sql("select 1 from autopost.events where action = 'sending_lease_expired'")


async def test_who_holds_a_file_and_must_ask_anew_for_an_earlier_one_lets_it_go(
    workspace: Any, worker_database: str, tmp_path: Path
) -> None:
    """Else two albums wait for each other: one holds the second picture and waits for the first, one the other way."""
    channel = Channel(workspace.workspace, "c1", "telegram", "@c1", "bot", "bot")
    other = uuid4()

    async def take(ref: str) -> tuple[str, str | None]:
        query = "select state, handle from autopost.take_upload(%s, %s, 'telegram', 'bot', 'image', %s, '1 minute')"
        (row,) = await workspace.sql(query, workspace.workspace, ref, other)
        return row["state"], row["handle"]

    async def put(ref: str, handle: str) -> None:
        query = "select autopost.put_upload(%s, %s, 'telegram', 'bot', 'image', %s, null)"
        await workspace.sql(query, workspace.workspace, ref, handle)

    await put("sha256:a", "OLD")
    items = [MediaItem("image", blob_ref=f"sha256:{name}") for name in "ab"]
    async with make_pool(worker_database) as pool:
        depot = SqlDepot(pool, open_store(tmp_path.as_uri()))
        async with depot.resolve(channel, items) as (a, b):
            assert (a.handle, b.handle, await take("sha256:b")) == ("OLD", None, ("wait", None))
            query = "select autopost.forget_upload(%s, 'sha256:a', 'telegram', 'bot', 'image', 'OLD')"
            await workspace.sql(query, workspace.workspace)
            assert await take("sha256:a") == ("yours", None)
            asking = asyncio.ensure_future(a.forget())
            async with asyncio.timeout(20):
                while await take("sha256:b") != ("yours", None):
                    await asyncio.sleep(0.01)
            await put("sha256:a", "A")
            await put("sha256:b", "B")
            await asking
            assert (a.handle, b.handle) == ("A", "B")
