"""A platform took the file, and then the database was away: what was sent stays sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from vestnik.adapters.contract import Channel, MediaItem, SendError
from vestnik.adapters.resolving import learn
from vestnik.autopost.media.depot import SqlDepot
from vestnik.db.pool import make_pool
from vestnik.storage import open_store


async def test_a_send_does_not_fail_because_nobody_could_write_down_its_handle(
    workspace: Any, worker_database: str, tmp_path: Path
) -> None:
    """It would be sent again, and stand there twice."""
    channel = Channel(workspace.workspace, "c1", "telegram", "@c1", "bot", "bot")
    pool = make_pool(worker_database)
    await pool.open()
    depot = SqlDepot(pool, open_store(tmp_path.as_uri()))
    async with depot.resolve(channel, [MediaItem("image", blob_ref="sha256:x")]) as (item,):
        assert item.handle is None, "it is ours to upload"
        await pool.close()
        await learn(channel, item, "HANDLE")
    states = [
        await workspace.value(
            "select state from autopost.take_upload(%s, 'sha256:x', 'telegram', 'bot', 'image', %s, '1 minute',"
            " now() + %s::interval)", workspace.workspace, uuid4(), wait,
        )
        for wait in ("0", "2 minutes")
    ]  # fmt: skip
    assert states == ["wait", "yours"], "the next one's turn comes when the time of this one is over"


async def test_a_send_whose_files_nobody_can_ask_about_was_not_sent(worker_database: str, tmp_path: Path) -> None:
    channel = Channel("w", "c1", "telegram", "@c1", "bot", "bot")
    pool = make_pool(worker_database)
    await pool.open()
    await pool.close()
    depot = SqlDepot(pool, open_store(tmp_path.as_uri()))
    with pytest.raises(SendError) as caught:
        async with depot.resolve(channel, [MediaItem("image", blob_ref="sha256:x")]):
            pytest.fail("there is nothing to send with")
    assert (caught.value.category, caught.value.code, caught.value.raw["outcome"]) == (
        "TRANSIENT",
        "database_away",
        "not_sent",
    )
