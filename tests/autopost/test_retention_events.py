"""Events go by whole days: a day is dropped when nobody keeps it any more; who keeps less than others loses rows."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.types.json import Jsonb

from vestnik.autopost import retention
from vestnik.autopost.retention import EventDays
from vestnik.db.pool import Pool
from vestnik.ops.retention import run, status
from vestnik.storage import ObjectStore, StorageError, open_store

if TYPE_CHECKING:
    from crowd import Crowd

    from conftest import Autopost


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(tmp_path.as_uri())


async def days(autopost: Autopost) -> list[str]:
    rows = await autopost.sql(
        "select inhrelid::regclass::text as name from pg_inherits where inhparent = 'autopost.events'::regclass order by 1"
    )
    return [row["name"].rpartition("_")[2] for row in rows]


async def note(autopost: Autopost, workspace: str, at: datetime, count: int = 1) -> None:
    await autopost.sql(
        "insert into autopost.events (workspace_id, id, ts, action, meta)"
        " select %s, gen_random_uuid(), %s, 'enqueue', jsonb_build_object('n', n) from generate_series(1, %s) n",
        workspace, at, count,
    )  # fmt: skip


async def kept(autopost: Autopost, workspace: str = "w") -> list[datetime]:
    rows = await autopost.sql("select ts from autopost.events where workspace_id = %s order by ts", workspace)
    return [row["ts"] for row in rows]


async def keep(autopost: Autopost, workspace: str, how_long: str | None, **options: Any) -> None:
    await autopost.sql(
        "insert into ops.retention (workspace_id, rule, keep, options) values (%s, 'events', %s, %s)",
        workspace, how_long, Jsonb(options),
    )  # fmt: skip


@pytest.fixture
async def month(autopost: Autopost) -> AsyncIterator[Autopost]:
    """Forty days, each with one event at noon."""
    for before in range(40):
        at = autopost.now - timedelta(days=before)
        await autopost.sql("select autopost.ensure_event_partitions(%s, 0)", at)
        await note(autopost, "w", at.replace(hour=12, minute=0))
    yield autopost


async def test_days_that_are_over_are_dropped_whole(month: Autopost, pool: Pool, store: ObjectStore) -> None:
    today = month.now.replace(hour=0, minute=0, second=0, microsecond=0)
    shown = await status(pool, [EventDays(store)], now=month.now)
    assert [(row["workspace_id"], row["going"]) for row in shown] == [("*", len(await days(month)) - 32), ("w", 9)]
    done = await run(pool, [EventDays(store)], now=month.now)
    assert done["removed"] == {"events": shown[0]["going"]}
    assert min(await kept(month)) == today - timedelta(days=30) + timedelta(hours=12)
    assert (await days(month))[0] == f"{today - timedelta(days=30):%Y%m%d}"
    assert (await run(pool, [EventDays(store)], now=month.now))["removed"] == {}
    assert await month.value("select ops.gone_before('*', 'events')") == today - timedelta(days=30)


async def test_a_day_that_somebody_keeps_stays_and_the_others_rows_of_it_go(
    month: Autopost, pool: Pool, store: ObjectStore
) -> None:
    await month.sql("insert into core.workspaces (workspace_id, name) values ('long', ''), ('short', '')")
    await keep(month, "long", "35 days")
    await keep(month, "short", "2 days")
    for workspace in ("long", "short"):
        for before in (1, 3, 33, 38):
            await note(month, workspace, month.now - timedelta(days=before), 700)
    await run(pool, [EventDays(store)], now=month.now)
    ages = {w: sorted({(month.now - at).days for at in await kept(month, w)}) for w in ("long", "short")}
    assert ages == {"long": [1, 3, 33], "short": [1]}
    assert max((month.now - at).days for at in await kept(month)) == 30, "the workspace that says nothing"
    assert (month.now - datetime.strptime(f"{(await days(month))[0]}+0000", "%Y%m%d%z")).days == 35


async def test_a_day_that_is_kept_cannot_be_dropped_by_mistake(month: Autopost) -> None:
    day = (month.now - timedelta(days=30)).date()
    with pytest.raises(Exception, match="are kept"):
        await month.sql("select autopost.drop_event_day(%s, %s)", day, month.now)


async def test_what_lies_in_the_default_partition_goes_row_by_row(
    autopost: Autopost, pool: Pool, store: ObjectStore
) -> None:
    for before in (10, 31, 400):
        await note(autopost, "w", autopost.now - timedelta(days=before), 600)
    assert await autopost.value("select count(*) from autopost.events_default") == 1800
    done = await run(pool, [EventDays(store)], now=autopost.now)
    assert done["removed"] == {"events": 1200}
    assert set(await kept(autopost)) == {autopost.now - timedelta(days=10)}


async def test_a_long_reader_holds_up_the_drop_and_nobody_else(
    month: Autopost, crowd: Crowd, pool: Pool, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "LOCK_TRIES", 2)
    (reader,) = await crowd.hands(1)
    before = await days(month)
    async with reader.connection.transaction():
        await reader.sql("select count(*) from autopost.events")
        done = await run(pool, [EventDays(store)], now=month.now)
        await note(month, "w", month.now)
        assert "lock timeout" in done["failed"]["*/events"]
        assert await days(month) == before
        shown = await status(pool, [EventDays(store)], now=month.now)
        assert "lock timeout" in shown[0]["last_error"]
    assert (await run(pool, [EventDays(store)], now=month.now))["removed"]
    assert (await status(pool, [EventDays(store)], now=month.now))[0]["last_error"] is None


async def test_days_are_archived_before_they_go_each_workspaces_own(
    month: Autopost, pool: Pool, store: ObjectStore, tmp_path: Path
) -> None:
    await month.sql("insert into core.workspaces (workspace_id, name) values ('other', '')")
    await keep(month, "w", None, archive=True)
    await note(month, "other", month.now - timedelta(days=35))
    await run(pool, [EventDays(store)], now=month.now)
    files = sorted(tmp_path.rglob("*.gz"))
    assert {file.parent.relative_to(tmp_path).as_posix() for file in files} == {"archive/w/events"}
    assert len(files) == 9
    (line,) = gzip.decompress(files[0].read_bytes()).decode().splitlines()
    event = json.loads(line)
    assert (event["workspace_id"], event["action"], event["meta"]) == ("w", "enqueue", {"n": 1})
    assert event["ts"].startswith(files[0].name[:10])


async def test_rows_are_archived_day_by_day_too(
    month: Autopost, pool: Pool, store: ObjectStore, tmp_path: Path
) -> None:
    await keep(month, "w", "2 days", archive=True)
    await month.sql("insert into core.workspaces (workspace_id, name) values ('long', '')")
    await keep(month, "long", "60 days")
    await note(month, "w", month.now - timedelta(days=5), 1234)
    done = await run(pool, [EventDays(store)], now=month.now)
    packed = {file.name[:10]: gzip.decompress(file.read_bytes()).count(b"\n") for file in tmp_path.rglob("*.gz")}
    assert sum(packed.values()) == done["removed"]["events"] == 1234 + 37
    assert packed[f"{month.now - timedelta(days=5):%Y-%m-%d}"] == 1235


async def test_what_cannot_be_archived_stays(month: Autopost, pool: Pool, store: ObjectStore) -> None:
    class Broken(ObjectStore):
        async def put(self, path: str, chunks: AsyncIterator[bytes]) -> None:
            raise StorageError("the disk is full")

    await keep(month, "w", None, archive=True)
    before = await kept(month)
    done = await run(pool, [EventDays(Broken(store._store))], now=month.now)
    assert done["failed"] == {"*/events": "the disk is full"}
    assert await kept(month) == before
    alert = "select subject, details ->> 'error' as error, cleared_at is null as is_on from ops.alerts"
    assert await month.sql(alert) == [{"subject": "events", "error": "StorageError", "is_on": True}]
    assert (await run(pool, [EventDays(store)], now=month.now))["removed"]
    assert [row["is_on"] for row in await month.sql(alert)] == [False]
