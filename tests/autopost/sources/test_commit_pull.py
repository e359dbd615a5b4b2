"""The place in a source moves with its items or not at all, and each item is taken once, whoever reads beside."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import closing
from sqlite3 import connect
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

from vestnik.autopost.sources.pull import PAGE, Puller
from vestnik.db.pool import make_pool
from vestnik.db.refusals import refusals_as_errors
from vestnik.download import Downloader
from vestnik.errors import NotFound

if TYPE_CHECKING:
    from crowd import Crowd

    from conftest import Autopost

pytestmark = pytest.mark.pg16
Row = dict[str, Any]


async def source(workspace: Autopost, source_id: str = "s", **columns: Any) -> str:
    row = {"workspace_id": workspace.workspace, "source_id": source_id, "kind": "rss"} | columns
    names, places = ", ".join(row), ", ".join(["%s"] * len(row))
    await workspace.sql(f"insert into autopost.pull_sources ({names}) values ({places})", *row.values())
    return source_id


async def begin(workspace: Autopost, source_id: str = "s") -> Row:
    (run,) = await workspace.sql(
        "select * from autopost.begin_pull(%s, %s, %s)", workspace.workspace, source_id, workspace.now
    )
    return dict(run)


async def commit(
    workspace: Autopost,
    run_id: UUID,
    items: list[Row],
    cursor: Row | None,
    *,
    first: bool = False,
    source_id: str = "s",
) -> list[Row]:
    with refusals_as_errors():
        return [
            dict(row)
            for row in await workspace.sql(
                "select * from autopost.commit_pull(%s, %s, %s, %s, %s, '[]', %s, %s)",
                workspace.workspace, source_id, run_id, Jsonb(items), Jsonb(cursor) if cursor is not None else None,
                workspace.now, first,
            )
        ]  # fmt: skip


async def end(workspace: Autopost, run_id: UUID, outcome: str = "ok", error: Row | None = None) -> Row:
    return await workspace.value(
        "select autopost.end_pull(%s, 's', %s, %s, %s, %s)",
        workspace.workspace, run_id, outcome, Jsonb(error) if error else None, workspace.now,
    )  # fmt: skip


async def cursor(workspace: Autopost, source_id: str = "s") -> Row:
    return await workspace.value("select autopost.pull_cursor(%s, %s)", workspace.workspace, source_id)


async def run_row(workspace: Autopost, run_id: UUID) -> Row:
    (row,) = await workspace.sql(
        "select * from autopost.ingest_runs where workspace_id = %s and run_id = %s", workspace.workspace, run_id
    )
    return dict(row)


def items(*numbers: int) -> list[Row]:
    return [{"key": f"k{n}", "payload": {"text": f"Item {n}"}} for n in numbers]


async def test_a_page_becomes_posts_in_its_order_and_the_cursor_moves(workspace: Autopost) -> None:
    await workspace.channel()
    await source(workspace)
    run = await begin(workspace)
    done = await commit(workspace, run["run_id"], items(2, 1, 3), {"at": 3})
    assert [(row["key"], row["outcome"], row["enqueued"]) for row in done] == [
        (k, "taken", 1) for k in ("k2", "k1", "k3")
    ]
    rows = await workspace.deliveries()
    assert [row["rendered_text"] for row in rows] == ["Item 2", "Item 1", "Item 3"]
    assert [row["message_id"] for row in rows] == [row["message_id"] for row in done]
    assert await cursor(workspace) == {"at": 3}
    known = await workspace.sql(
        "select outcome, message_id from autopost.pull_items where workspace_id = %s", workspace.workspace
    )
    assert {(row["outcome"], row["message_id"]) for row in known} == {("taken", row["message_id"]) for row in done}


async def test_a_key_is_taken_once_also_within_a_page_and_with_another_text(workspace: Autopost) -> None:
    await workspace.channel()
    await source(workspace)
    run = await begin(workspace)
    await commit(workspace, run["run_id"], [*items(1), {"key": "k1", "payload": {"text": "Changed"}}], {"at": 1})
    workspace.wait(seconds=1)
    again = await commit(workspace, run["run_id"], [{"key": "k1", "payload": {"text": "Later"}}, *items(2)], {"at": 2})
    assert [row["key"] for row in again] == ["k2"]
    assert [row["rendered_text"] for row in await workspace.deliveries()] == ["Item 1", "Item 2"]


async def test_the_same_key_of_another_source_is_another_item(workspace: Autopost) -> None:
    await workspace.channel()
    for name in ("s", "t"):
        await source(workspace, name)
        run = await begin(workspace, name)
        (row,) = await commit(workspace, run["run_id"], items(1), {"at": 1}, source_id=name)
        assert row["outcome"] == "taken"
    assert (await workspace.statuses()) == {"queued": 1, "deduped": 1}, "the same content, as of any two pushes"


async def test_what_is_skipped_or_wrong_is_noted_and_known_from_then_on(workspace: Autopost) -> None:
    await workspace.channel()
    await source(workspace)
    run = await begin(workspace)
    page = [
        *items(1),
        {"key": "old", "skip": "too old"},
        {"key": "bad", "problem": "no title"},
        {"key": "worse", "payload": {"text": 5}},
    ]
    done = await commit(workspace, run["run_id"], page, {"at": 1})
    assert [(row["key"], row["outcome"]) for row in done] == [
        ("k1", "taken"), ("old", "skipped"), ("bad", "invalid"), ("worse", "invalid"),
    ]  # fmt: skip
    assert (
        await commit(
            workspace, run["run_id"], [{"key": k, "payload": {"text": k}} for k in ("old", "bad", "worse")], {"at": 2}
        )
        == []
    )
    stats = (await run_row(workspace, run["run_id"]))["stats_json"]
    counts = {name: stats[name] for name in ("read", "new", "taken", "skipped", "invalid", "enqueued")}
    assert counts == {"read": 7, "new": 4, "taken": 1, "skipped": 1, "invalid": 2, "enqueued": 1}
    assert stats["why_skipped"] == {"too old": 1}
    assert [reason["key"] for reason in stats["reasons"]] == ["bad", "worse"]
    assert "text" in stats["reasons"][1]["reason"]


async def test_counts_and_reasons_add_up_over_the_pages_of_a_run(workspace: Autopost) -> None:
    await workspace.channel()
    await source(workspace)
    run = await begin(workspace)
    for n in range(3):
        page = [*items(n), *({"key": f"s{n}-{i}", "skip": "too old"} for i in range(2))]
        page += [{"key": f"b{n}-{i}", "problem": "no title"} for i in range(30)]
        await commit(workspace, run["run_id"], page, {"at": n})
    stats = await end(workspace, run["run_id"])
    assert (stats["read"], stats["taken"], stats["invalid"], stats["outcome"]) == (99, 3, 90, "ok")
    assert stats["why_skipped"] == {"too old": 6}
    assert len(stats["reasons"]) == 50


async def test_a_part_of_a_page_leaves_the_cursor_where_it_is(workspace: Autopost) -> None:
    await source(workspace)
    run = await begin(workspace)
    await commit(workspace, run["run_id"], items(1), {"at": 1})
    await commit(workspace, run["run_id"], items(2), None)
    assert await cursor(workspace) == {"at": 1}


async def test_a_run_is_on_record_from_its_first_moment_to_its_end(workspace: Autopost) -> None:
    await source(workspace)
    run = await begin(workspace)
    row = await run_row(workspace, run["run_id"])
    assert (row["started_at"], row["finished_at"]) == (workspace.now, None)
    assert row["stats_json"] == {"source_id": "s", "outcome": "running"}
    began = workspace.now
    workspace.wait(seconds=3)
    await end(workspace, run["run_id"], "failed", {"code": "x", "message": "no", "permanent": True})
    row = await run_row(workspace, run["run_id"])
    assert (row["started_at"], row["finished_at"], row["kind"]) == (began, workspace.now, "pull")
    assert row["stats_json"]["error"]["code"] == "x"


async def test_failures_count_until_a_run_goes_well(workspace: Autopost) -> None:
    await source(workspace)
    error = {"code": "x", "message": "no", "permanent": False}
    for outcome, given, failures in (("failed", error, 1), ("failed", error, 2), ("ok", None, 0)):
        run = await begin(workspace)
        await end(workspace, run["run_id"], outcome, given)
        (row,) = await workspace.sql("select * from autopost.pull_sources where workspace_id = %s", workspace.workspace)
        assert (row["failures"], row["last_error"], row["last_run_at"]) == (failures, given, workspace.now)


async def test_only_an_enabled_source_of_a_working_workspace_is_begun(workspace: Autopost) -> None:
    await source(workspace, enabled=False)
    begun = "select * from autopost.begin_pull(%s, %s)"
    assert await workspace.sql(begun, workspace.workspace, "s") == []
    with pytest.raises(NotFound, match="no source nowhere"), refusals_as_errors():
        await workspace.sql(begun, workspace.workspace, "nowhere")
    await source(workspace, "t")
    await workspace.sql("update core.workspaces set status = 'disabled' where workspace_id = %s", workspace.workspace)
    with pytest.raises(NotFound, match="disabled"), refusals_as_errors():
        await workspace.sql(begun, workspace.workspace, "t")
    assert await workspace.sql("select 1 from autopost.ingest_runs where workspace_id = %s", workspace.workspace) == []


async def test_a_removed_source_leaves_no_schedule_and_takes_nothing_more(workspace: Autopost) -> None:
    await source(workspace)
    run = await begin(workspace)
    await commit(workspace, run["run_id"], items(1), {"at": 1})
    await workspace.sql(
        'select ops.put_schedule(%s, \'source:s\', \'{"kind": "source.pull", "every": 60}\', now())',
        workspace.workspace,
    )
    removed = "select autopost.remove_source(%s, 's')"
    assert await workspace.value(removed, workspace.workspace) is True
    assert await workspace.value(removed, workspace.workspace) is False
    for table in ("ops.schedules", "autopost.pull_items", "autopost.pull_cursors"):
        assert await workspace.sql(f"select 1 from {table} where workspace_id = %s", workspace.workspace) == []
    with pytest.raises(NotFound):
        await commit(workspace, run["run_id"], items(2), {"at": 2})


async def test_two_runs_of_one_source_take_each_item_once(crowd: Crowd, autopost: Autopost) -> None:
    await autopost.channel()
    await source(autopost)
    hands = await crowd.hands(4)
    runs = [await begin(hand) for hand in hands]
    for page in range(5):
        numbers = range(page * 20, page * 20 + 20)
        done = await asyncio.gather(
            *(commit(hand, run["run_id"], items(*numbers), {"at": page}) for hand, run in zip(hands, runs, strict=True))
        )
        assert sorted(row["key"] for rows in done for row in rows) == sorted(f"k{n}" for n in numbers)
    assert await autopost.statuses() == {"queued": 100}


async def test_a_run_that_met_another_waits_for_it_and_finds_its_items_taken(crowd: Crowd, autopost: Autopost) -> None:
    await autopost.channel()
    await source(autopost)
    one, two = await crowd.hands(2)
    first, second = await begin(one), await begin(two)
    async with one.connection.transaction():
        await commit(one, first["run_id"], items(1, 2), {"at": 2})
        waiting = await crowd.blocked(two, commit(two, second["run_id"], items(1, 2, 3), {"at": 3}))
    assert [row["key"] for row in await waiting] == ["k3"]
    assert await autopost.statuses() == {"queued": 3}


async def test_the_second_of_two_first_runs_marks_nothing_as_old(crowd: Crowd, autopost: Autopost) -> None:
    """What came between the two readings is old for the second one only, and would be lost."""
    await source(autopost)
    one, two = await crowd.hands(2)
    first, second = await begin(one), await begin(two)
    await commit(one, first["run_id"], items(1), {"at": 1}, first=True)
    late = [{"key": "k2", "skip": "it was there before the first run"}, *items(3)]
    assert await commit(two, second["run_id"], late, {"at": 3}, first=True) == []
    assert await cursor(autopost) == {"at": 1}
    assert [row["key"] for row in await commit(two, second["run_id"], items(1, 2, 3), {"at": 3})] == ["k2", "k3"]


async def test_nothing_of_a_page_stays_when_its_session_dies_before_the_commit(
    crowd: Crowd, autopost: Autopost
) -> None:
    await autopost.channel()
    await source(autopost)
    (hand,) = await crowd.hands(1)
    run = await begin(hand)
    await commit(hand, run["run_id"], items(1), {"at": 1})
    with pytest.raises(psycopg.OperationalError):
        async with hand.connection.transaction():
            await commit(hand, run["run_id"], items(2), {"at": 2})
            await autopost.value("select pg_terminate_backend(%s)", hand.connection.info.backend_pid)
            await hand.sql("select 1")
    assert (await cursor(autopost), await autopost.statuses()) == ({"at": 1}, {"queued": 1})
    again = await begin(autopost)
    assert again["cursor"] == {"at": 1}
    assert [row["key"] for row in await commit(autopost, again["run_id"], items(2), {"at": 2})] == ["k2"]


KILLED = """
import asyncio, sys
from vestnik.autopost.sources.pull import Puller
from vestnik.db.pool import make_pool
from vestnik.download import Downloader

class Slow(Puller):
    async def _commit(self, run, items, reading):
        done = await super()._commit(run, items, reading)
        print("committed", flush=True)
        await asyncio.sleep(60)
        return done

async def main():
    async with make_pool(sys.argv[1]) as pool:
        await Slow(pool, Downloader(), lambda _: None).pull("w", "s")

asyncio.run(main())
"""


async def test_a_puller_that_is_killed_between_two_pages_is_followed_by_one_that_goes_on(
    database: str, autopost: Autopost, tmp_path: Any
) -> None:
    rows = PAGE + 10
    with closing(connect(tmp_path / "shop.db")) as db:
        db.execute("create table news (id integer, title text)")
        db.executemany("insert into news values (?, ?)", [(n, f"Item {n}") for n in range(rows)])
        db.commit()
    config = {
        "dsn": f"sqlite://{tmp_path}/shop.db", "key": "id", "watermark": {"column": "id", "start": 0},
        "query": "select * from news where id >= :watermark order by id limit :limit", "mapping": {"text": "{title}"},
    }  # fmt: skip
    await autopost.channel()
    await source(autopost, kind="db", config_json=Jsonb(config))
    child = subprocess.Popen([sys.executable, "-c", KILLED, database], stdout=subprocess.PIPE, text=True)
    assert child.stdout and child.stdout.readline() == "committed\n"
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    assert await autopost.statuses() == {"queued": PAGE}
    (killed,) = await autopost.sql("select * from autopost.ingest_runs")
    assert (killed["stats_json"]["outcome"], killed["stats_json"]["taken"]) == ("running", PAGE)
    async with make_pool(database) as pool:
        stats = await Puller(pool, Downloader(), lambda _: lambda name: asyncio.sleep(0, name)).pull("w", "s")
    assert stats["taken"] == 10
    texts = [row["rendered_text"] for row in await autopost.deliveries()]
    assert texts == [f"Item {n}" for n in range(rows)]
