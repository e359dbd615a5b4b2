"""What piles up costs nothing: pages that the hot calls touch, before and after 20,000 rows of each kind lie in the way.

Pages and not clocks: they say the same on every machine.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

pytestmark = pytest.mark.pg16

ROWS = 20_000
SPARE = 140  # an index may grow by a level, for each of twenty channels and each of its probes
PILE = f"""
    insert into autopost.deliveries (workspace_id, delivery_id, message_id, channel_id, content_hash, status, attempt, lease,
        settled_lease, not_before, next_retry_at, held_at, sent_at, created_at, updated_at)
    select 'w', core.nth_uuid(b.base, n), m.message_id, %(channel)s, coalesce(%(hash)s, md5(n::text)), %(status)s, 1, 1, 1,
           %(not_before)s, %(next_retry_at)s, %(held_at)s, case %(status)s when 'sent' then %(past)s end, %(past)s, %(past)s
    from generate_series(1, {ROWS}) n, (select core.uuid7(%(past)s) as base offset 0) b,
         (select message_id from autopost.messages limit 1) m"""

CLAIM = "select * from autopost.claim_and_begin('w', 'run', 5, %(now)s)"
SLEEP = "select autopost.next_begin_at('w')"
LOOK = "select * from autopost.workspaces_with_work('')"
SWEEP = "select autopost.sweep_sending('w', 500, %(now)s), autopost.sweep_claimed('w', 500, %(now)s)"
PUSH = "select * from autopost.enqueue_batch('w', null, 'push', array[jsonb_build_object('text', 'again')], %(now)s)"

PILES: dict[str, dict[str, Any]] = {
    "queued, paused": {"channel": "shut", "status": "queued"},
    "retries due, paused": {"channel": "shut", "status": "retry", "next_retry_at": timedelta(0)},
    "queued for later": {"channel": "c1", "status": "queued", "not_before": timedelta(days=1)},
    "retries for later": {"channel": "c1", "status": "retry", "next_retry_at": timedelta(days=1)},
    "held": {"channel": "c1", "status": "retry", "next_retry_at": timedelta(days=3650), "held_at": timedelta(0)},
    "sent": {"channel": "c1", "status": "sent"},
    "dead": {"channel": "c1", "status": "dead"},
}


@pytest.fixture
async def busy(autopost: Any) -> Any:
    """Twenty open channels with posts in them, one that is paused, and one post that went everywhere an hour ago.

    Channels "waits" are open and have something, but not yet: they have to be looked at, too.
    """
    autopost.now = datetime.now(UTC) - timedelta(hours=1)
    for n in range(20):
        await autopost.channel(f"c{n}", max_parallel=5)
    await autopost.channel("shut")
    await autopost.channel("waits")
    await autopost.channel("waits more")
    await autopost.push("again")
    for row in await autopost.take():
        await autopost.sent(row["delivery_id"], row["lease"])
    autopost.now = datetime.now(UTC)
    for n in range(6):
        await autopost.push(f"post {n}")
    later = autopost.now + timedelta(days=1)
    await autopost.sql("update autopost.deliveries set not_before = %s where channel_id like 'waits%%'", later)
    await autopost.sql("update autopost.channels set paused_until = %s where channel_id = 'shut'", later)
    await autopost.sql("vacuum analyze autopost.deliveries")
    return autopost


async def test_no_pile_costs_the_dispatcher_anything(busy: Any) -> None:
    calls = (CLAIM, SLEEP, LOOK, SWEEP)
    alone = [await pages(busy, query) for query in calls]
    for name, pile in PILES.items():
        await heap(busy, **pile)
        now = [await pages(busy, query) for query in calls]
        assert all(n <= a + SPARE for a, n in zip(alone, now, strict=True)), (name, alone, now)


async def test_repetitions_do_not_make_the_next_repetition_dear(busy: Any) -> None:
    """The same post every few seconds for a week: all of them deduped, and each looks for the one that was sent."""
    (message,) = await busy.sql("select content_hash from autopost.messages where payload ->> 'text' = 'again'")
    before = await pages(busy, PUSH)
    await heap(busy, channel="c1", status="deduped", hash=message["content_hash"])
    assert await pages(busy, PUSH) <= before + SPARE


async def test_old_receipts_are_swept_without_reading_those_that_live(autopost: Any) -> None:
    await autopost.sql(
        "insert into autopost.ingress_receipts (workspace_id, endpoint_id, endpoint_kind, payload_hash, received_at, expires_at, receipt_id)"
        " select 'w', 'door', 'webhook_push', md5(n::text), now(), case when n <= 100 then now() - interval '1 hour' else now() + interval '1 day' end,"
        " gen_random_uuid() from generate_series(1, 20000) n"
    )
    await autopost.sql("vacuum analyze autopost.ingress_receipts")
    sweep = "select autopost.sweep_receipts('w', 500, %(now)s)"
    autopost.now = datetime.now(UTC)
    assert await pages(autopost, sweep) < 1000
    assert (await autopost.connection.execute(sweep, {"now": autopost.now})).rowcount == 1
    assert await autopost.value("select count(*) from autopost.ingress_receipts") == 19_900


async def heap(autopost: Any, channel: str, status: str, hash: str | None = None, **moments: timedelta) -> None:
    past = autopost.now - timedelta(days=1)
    given = {"not_before": past, "next_retry_at": None, "held_at": None} | {
        k: autopost.now + v for k, v in moments.items()
    }
    await autopost.connection.execute(
        PILE.encode(), {"channel": channel, "status": status, "hash": hash, "past": past} | given
    )
    await autopost.sql("vacuum analyze autopost.deliveries")


async def pages(autopost: Any, query: str) -> int:
    """What a call touches once its connection has its plans. It leaves no trace, so the next one has the same work."""
    explain = f"explain (analyze, buffers, format json) {query}"
    found = []
    for _ in range(7):
        async with autopost.connection.transaction(force_rollback=True):
            cursor = await autopost.connection.execute(explain.encode(), {"now": autopost.now})
            plan = (await cursor.fetchone())["QUERY PLAN"][0]["Plan"]
            found.append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
    return int(min(found))
