"""Many deliveries at once: what a selection means, what a count promises, and pages that may break off at any place."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from crowd import Crowd, until

from queue_audit import violations
from vestnik.autopost import bulk
from vestnik.autopost.bulk import Selection
from vestnik.db.pool import Pool, make_pool
from vestnik.errors import NotFound

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16
DEAD = Selection("dead")
BY = {"operator": "olga", "reason": "drill"}


@pytest.fixture
async def shop(autopost: Autopost) -> Autopost:
    """In each of four channels one delivery died of 500 and one, tagged ``promo``, failed with 400, an hour apart."""
    autopost.now = datetime.now(UTC) - timedelta(hours=3)
    await autopost.policy(max_attempts=1)
    for channel_id, platform, group in (
        ("a", "telegram", "red"),
        ("b", "telegram", "blue"),
        ("c", "max", "red"),
        ("d", "max", "blue"),
    ):
        await autopost.channel(channel_id, platform=platform, rate_group=group)
    await autopost.push("news")
    for row in await autopost.take():
        await autopost.retry(row["delivery_id"], {"code": "500", "scope": "platform"}, row["lease"])
    autopost.wait(hours=1)
    await autopost.push({"text": "sale", "tags": ["promo"]})
    for row in await autopost.take():
        scope = "channel" if row["channel_id"] == "d" else "delivery"
        await autopost.fail(row["delivery_id"], {"code": "400", "scope": scope}, row["lease"])
    return autopost


async def counted(pool: Pool, selection: Selection, deed: bulk.Deed = "requeue") -> dict[str, int]:
    rows, _ = await bulk.count(pool, "w", deed, selection)
    return {row["channel_id"]: row["count"] for row in rows}


@pytest.mark.parametrize(
    ("selection", "channels"),
    [
        ({}, "abcd"), ({"channels": ["a", "d", "x"]}, "ad"), ({"platform": "max"}, "cd"), ({"rate_group": "red"}, "ac"),
        ({"platform": "max", "rate_group": "red"}, "c"), ({"code": "500"}, "abcd"), ({"code": "400"}, ""),
        ({"category": "TRANSIENT"}, "abcd"), ({"category": "PERMANENT"}, ""), ({"tag": "promo"}, ""),
    ],
)  # fmt: skip
async def test_whatever_is_given_must_hold(shop: Autopost, pool: Pool, selection: Any, channels: str) -> None:
    assert await counted(pool, Selection("dead", **selection)) == dict.fromkeys(channels, 1)


async def test_what_failed_is_selected_by_when_it_did_and_what_waits_by_when_it_came(
    shop: Autopost, pool: Pool
) -> None:
    between = shop.now - timedelta(minutes=30)
    assert await counted(pool, Selection("dead", since=between)) == {}
    assert len(await counted(pool, Selection("dead", until=between))) == 4
    assert len(await counted(pool, Selection("failed_permanent", since=between, tag="promo"))) == 4
    await shop.push("waiting")
    assert len(await counted(pool, Selection("queued", since=between), "cancel")) == 4
    assert await counted(pool, Selection("queued", until=between), "cancel") == {}


async def test_what_would_be_refused_is_counted_apart_and_stands_in_no_ones_way(shop: Autopost, pool: Pool) -> None:
    failed = Selection("failed_permanent")
    rows, _ = await bulk.count(pool, "w", "requeue", failed)
    assert {row["channel_id"]: (row["count"], row["refused"]) for row in rows} == {
        "a": (1, 0), "b": (1, 0), "c": (1, 0), "d": (0, 1),
    }  # fmt: skip
    pages = [await bulk.move_page(pool, "w", "requeue", failed, limit=2, **BY) for _ in range(3)]
    assert pages == [(2, True), (1, False), (0, False)]


async def test_what_somebody_withdrew_comes_back_only_by_its_code(shop: Autopost, pool: Pool) -> None:
    """An edited post is withdrawn too: both texts would be shown."""
    await shop.push("wrong price")
    moved, _ = await bulk.move_page(pool, "w", "cancel", Selection("queued"), **BY)
    assert moved == 4
    assert sum((await counted(pool, Selection("failed_permanent"))).values()) == 3
    assert sum((await counted(pool, Selection("failed_permanent", code="cancelled"))).values()) == 4


async def test_what_comes_after_the_count_is_not_moved(shop: Autopost, pool: Pool) -> None:
    _, upto = await bulk.count(pool, "w", "cancel", Selection("queued"))
    shop.now = datetime.now(UTC) + timedelta(seconds=1)
    await shop.push("later")
    assert [page async for page in bulk.move_all(pool, "w", "cancel", [upto], **BY)] == [0]
    assert sum([page async for page in bulk.move_all(pool, "w", "cancel", [replace(upto, until=None)], **BY)]) == 4
    assert {event["meta"]["operator"] for event in await shop.events("cancelled")} == {"olga"}


async def test_a_requeue_of_many_wakes_the_dispatcher_with_each_page(shop: Autopost, pool: Pool, database: str) -> None:
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as ear:
        await ear.execute("listen vestnik_wake")
        moved = await bulk.move_page(pool, "w", "requeue", DEAD, **BY)
        assert moved == (4, False)
        heard = [notice.payload async for notice in ear.notifies(timeout=10, stop_after=1)]
        assert heard == ["w"]


async def test_in_a_workspace_that_is_not_there_nothing_is_counted(pool: Pool) -> None:
    with pytest.raises(NotFound):
        await bulk.count(pool, "nowhere", "requeue", DEAD)


async def many_dead(autopost: Autopost, count: int) -> None:
    """All of one moment, over ten channels."""
    for n in range(10):
        await autopost.channel(f"c{n}", max_parallel=50)
    await autopost.sql(
        """with m as (
               insert into autopost.messages (workspace_id, message_id, content_hash, payload, first_seen_trace_id, first_ingest_run_id,
                                              last_seen_at, last_ingest_run_id)
               select 'w', core.uuid7(now()), n::text, '{"text": "x"}', gen_random_uuid(), gen_random_uuid(), now(), gen_random_uuid()
               from generate_series(1, %s) n returning *
           ), d as (
               insert into autopost.deliveries (workspace_id, delivery_id, message_id, channel_id, content_hash, rendered_text, status,
                                                attempt, lease, settled_lease, updated_at)
               select 'w', core.uuid7(now()), m.message_id, 'c' || (m.content_hash::integer %% 10), m.content_hash, 'x', 'dead', 1, 1, 1, now()
               from m returning *)
           insert into autopost.events (workspace_id, id, delivery_id, channel_id, ts, action, attempt)
           select 'w', core.uuid7(now()), d.delivery_id, d.channel_id, now(), a, b
           from d, (values ('enqueue', 0), ('send_attempt', 1), ('dead_letter', 1)) x (a, b)""",
        count,
    )  # fmt: skip


async def test_a_dispatcher_goes_on_while_thousands_are_requeued(autopost: Autopost, pool: Pool, database: str) -> None:
    """Each page is a transaction of its own: what the first ones brought back is sent before the last is done."""
    await many_dead(autopost, 5000)
    still_dead: list[int] = []

    async def dispatch(limit: int) -> int:
        rows = await autopost.sql("select * from autopost.claim_and_begin('w', 'run', %s)", limit)
        for row in rows:
            await autopost.sql(
                "select autopost.mark_sent('w', %s, 'm', p_lease => %s)", row["delivery_id"], row["lease"]
            )
        return len(rows)

    async for moved in bulk.move_all(pool, "w", "requeue", [DEAD], **BY):
        assert moved <= bulk.PAGE
        still_dead.append((await autopost.statuses()).get("dead", 0))
        assert await dispatch(20) == 20
    assert still_dead[:5] == [4000, 3000, 2000, 1000, 0]
    assert await autopost.statuses() == {"sent": 20 * len(still_dead), "retry": 5000 - 20 * len(still_dead)}
    assert await violations(autopost.connection, "w") == []


async def test_pages_wait_for_a_row_that_somebody_holds_and_can_be_broken_off_there(
    autopost: Autopost, crowd: Crowd, database: str
) -> None:
    await many_dead(autopost, 2500)
    holder = await crowd.hand()
    await holder.sql("begin")
    await holder.sql(
        "select 1 from autopost.deliveries where delivery_id = (select max(delivery_id::text)::uuid from autopost.deliveries) for update"
    )
    async with make_pool(database, name="bulk") as pool:
        done: list[int] = []

        async def all_of_it() -> None:
            async for moved in bulk.move_all(pool, "w", "requeue", [DEAD], **BY):
                done.append(moved)

        task = asyncio.create_task(all_of_it())
        await until(pool, "select 1 from pg_stat_activity where application_name = 'bulk' and wait_event_type = 'Lock'")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await autopost.statuses()).get("retry", 0) == sum(done) < 2500, "whole pages, or none"
        await holder.sql("rollback")
        assert sum([moved async for moved in bulk.move_all(pool, "w", "requeue", [DEAD], **BY)]) == 2500 - sum(done)
    assert len(await autopost.events("manual_requeue")) == 2500
