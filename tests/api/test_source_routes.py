"""Sources over HTTP: a look at them for every key of the workspace, trying and reading for one that may change things."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from api_rig import Api
from psycopg.types.json import Jsonb

from vestnik.adapters import registry
from vestnik.adapters.contract import AdapterContext
from vestnik.api.app import create_app
from vestnik.api.server import http_server
from vestnik.autopost.media.blobs import BlobStore
from vestnik.autopost.sources.pull import Puller
from vestnik.download import Downloader
from vestnik.ops import access
from vestnik.settings import Settings
from vestnik.storage import open_store

SOURCES = "/v1/workspaces/shop/sources"


async def no_secret(*_: str) -> str:
    raise AssertionError("nothing here needs a secret")


@pytest.fixture
async def reading(api: Api, tmp_path: Path) -> AsyncIterator[Api]:
    """The same with a puller, as the service has it, and a source ``goods`` of two rows."""
    with closing(sqlite3.connect(tmp_path / "shop.db")) as db:
        db.execute("create table goods (id integer, title text)")
        db.executemany("insert into goods values (?, ?)", [(1, "tea"), (2, None)])
        db.commit()
    config = {
        "dsn": f"sqlite://{tmp_path}/shop.db", "key": "id", "watermark": {"column": "id", "start": 0},
        "query": "select * from goods where id >= :watermark order by id limit :limit", "mapping": {"text": "{title}"},
    }  # fmt: skip
    await api.sql(
        "insert into autopost.pull_sources (workspace_id, source_id, kind, config_json) values ('shop', 'goods', 'db', %s)",
        Jsonb(config),
    )
    puller = Puller(api.pool, Downloader(), lambda _: no_secret)
    urls = dict.fromkeys(("telegram", "max"), "http://127.0.0.1:9")
    adapters = registry.load(AdapterContext(secret=no_secret, base_urls=urls))
    blobs = BlobStore(open_store((tmp_path / "more").as_uri()))
    server = http_server(Settings(http_port=0), create_app(api.pool, adapters, blobs=blobs, puller=puller))
    serving = asyncio.create_task(server.serve())
    yield replace(api, url=await server.address(serving))
    server.end()
    await serving


async def post(api: Api, path: str, key: str) -> tuple[int, Any]:
    async with api.http.post(api.url + path, headers={"Authorization": f"Bearer {key}"}) as response:
        return response.status, await response.json(content_type=None)


async def test_trying_shows_what_would_be_taken_and_takes_nothing(reading: Api) -> None:
    key = await access.create_key(reading.pool, "shop", "tests", "full")
    status, found = await post(reading, f"{SOURCES}/goods/try?limit=5", key)
    assert (status, found["take"], found["invalid"]) == (200, 1, 1)
    good, bad = found["items"]
    assert {channel["channel_id"]: channel["outcome"] for channel in good["channels"]} == {
        "telegram": "enqueued",
        "max": "enqueued",
    }
    assert bad["reason"] == "title is missing; write {title?} if it may be"
    assert await reading.traces() == {"messages": 0, "deliveries": 0, "ingress_receipts": 0}


async def test_sources_and_their_runs_are_listed(reading: Api) -> None:
    key = await access.create_key(reading.pool, "shop", "tests")
    await Puller(reading.pool, Downloader(), lambda _: no_secret).pull("shop", "goods")
    status, (source,) = await reading.get(SOURCES, key)
    assert (status, source["source_id"], source["failures"], "config_json" in source) == (200, "goods", 0, False)
    status, (run,) = await reading.get(f"{SOURCES}/goods/runs", key)
    assert (status, run["outcome"], run["stats"]["taken"]) == (200, "ok", 1)
    assert (await reading.get(f"{SOURCES}/nowhere/runs", key))[0] == 404


async def test_running_is_a_job(reading: Api) -> None:
    key = await access.create_key(reading.pool, "shop", "tests", "full")
    status, asked = await post(reading, f"{SOURCES}/goods/run", key)
    (job,) = await reading.sql("select job_id::text as id, kind, payload from ops.jobs")
    assert (status, asked["job_id"]) == (202, job["id"])
    assert (job["kind"], job["payload"]) == ("source.pull", {"source_id": "goods"})


async def test_a_key_that_may_only_read_starts_nothing(reading: Api) -> None:
    key = await access.create_key(reading.pool, "shop", "tests")
    for what in ("try", "run"):
        assert (await post(reading, f"{SOURCES}/goods/{what}", key))[0] == 403
    assert await reading.sql("select 1 from ops.jobs") == []


async def test_what_is_not_there_or_cannot_be_read_is_told(reading: Api, tmp_path: Path) -> None:
    key = await access.create_key(reading.pool, "shop", "tests", "full")
    for what in ("try", "run"):
        assert (await post(reading, f"{SOURCES}/nowhere/{what}", key))[0] == 404
    (tmp_path / "shop.db").write_text("nothing")
    status, problem = await post(reading, f"{SOURCES}/goods/try", key)
    assert status == 424 and "no SQLite database" in problem["detail"]
