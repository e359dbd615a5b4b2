"""What is needed shows signs of life: files that posts name, and uploads that go on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from psycopg.types.json import Jsonb

from vestnik.adapters.contract import Channel, MediaItem
from vestnik.autopost.media import depot
from vestnik.db.pool import make_pool
from vestnik.storage import open_store

REF = "sha256:x"


async def stored(workspace: Any) -> None:
    blob = {"blob_ref": REF, "origin_url": "x", "sha256": "x", "content_type": "image/png", "size_bytes": 6}
    await workspace.sql("select autopost.store_origin(%s, %s, %s)", workspace.workspace, Jsonb(blob), workspace.now)


async def test_a_post_that_names_a_file_keeps_it_in_use(workspace: Any) -> None:
    async def last_seen() -> Any:
        query = "select last_seen_at from autopost.media_origin where workspace_id = %s"
        return await workspace.value(query, workspace.workspace)

    await workspace.channel("c1")
    await stored(workspace)
    workspace.wait(days=1)
    await workspace.push({"text": "Look", "media": [{"type": "image", "blob_ref": REF}]})
    assert await last_seen() == workspace.now
    seen = workspace.now
    workspace.wait(days=1)
    await workspace.push({"text": "Another, without it"})
    assert await last_seen() == seen


async def test_an_upload_keeps_its_place_while_the_file_moves(
    workspace: Any, worker_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it takes: with every third of a lease it is taken anew."""
    store = open_store(tmp_path.as_uri())

    async def chunks() -> AsyncIterator[bytes]:
        yield b"a file"

    async def until() -> Any:
        query = "select taken_until from autopost.media_blobs where workspace_id = %s"
        return await workspace.value(query, workspace.workspace)

    await store.put("x", chunks())
    await stored(workspace)
    channel = Channel(workspace.workspace, "c1", "telegram", "@c1", "bot", "bot")
    monkeypatch.setattr(depot, "LEASE", timedelta(microseconds=1))
    async with make_pool(worker_database) as pool:
        resolving = depot.SqlDepot(pool, store).resolve(channel, [MediaItem("image", blob_ref=REF)])
        async with resolving as (item,):
            before = await until()
            monkeypatch.setattr(depot, "LEASE", timedelta(0))
            moved = [chunk async for chunk in item.read()]
            assert b"".join(moved) == b"a file"
            assert await until() > before
            assert await workspace.value(
                "select state from autopost.take_upload(%s, %s, 'telegram', 'bot', 'image', %s, '1 minute')",
                workspace.workspace, REF, uuid4(),
            ) == "yours", "and a lease that ended is another's"  # fmt: skip
