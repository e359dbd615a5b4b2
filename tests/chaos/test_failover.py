"""The primary is lost and its synchronous standby takes over: what a sender was told is taken, arrives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from pusher import Pusher
from standing_pair import Pair
from stormy import Storm, stormy_on

from vestnik.autopost.verbs import create_endpoint
from vestnik.db.pool import make_pool


@pytest.fixture
def pair(own_folder: Path, pg_version: int) -> Iterator[Pair]:
    pair = Pair(own_folder, pg_version)
    try:
        pair.start()
        yield pair
    finally:
        pair.end()


@pytest.fixture
async def storm(pair: Pair, tmp_path: Path) -> AsyncIterator[Storm]:
    async with stormy_on(pair, tmp_path) as storm:
        yield storm


async def test_no_acknowledged_push_is_lost_and_the_service_goes_on_by_itself(storm: Storm, pair: Pair) -> None:
    async with make_pool(pair.url, max_size=1) as pool:
        secret = await create_endpoint(pool, "w", "door", rps=1000)
    process = storm.run("api", "dispatcher")
    pusher = Pusher(await storm.http_url(), secret)
    enough = asyncio.Event()
    pushing = asyncio.create_task(pusher.push_until(enough))
    await storm.arrived_at_least(100)

    pair.cut_off_standby()

    async def commits_wait() -> bool:
        return await asyncio.to_thread(pair.commits_wait)

    await storm.until(commits_wait, "a commit that waits for the standby")
    before = len(pusher.taken)
    pair.kill_primary()
    await asyncio.to_thread(pair.promote)

    async def goes_on() -> bool:
        return len(pusher.taken) >= before + 10

    await storm.until(goes_on, "pushes are taken again")
    enough.set()
    await pushing
    await storm.all_sent()
    assert process.poll() is None, storm.log()
    assert len(pusher.taken) == len(set(pusher.taken))
    await storm.check(len(pusher.taken))
