"""Many hands, for seconds, by the server's own clock: what no interleaving of theirs may break."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from bedlam import Bedlam
from crowd import Crowd, begins_too_close, deadlocks, failed, for_seconds, push_now, sent, settle_now, take_now
from operated import credential
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from queue_audit import violations
from vestnik.db.embedded import EmbeddedServer
from vestnik.db.embedded.place import ROLE
from vestnik.db.pool import Pool, call, make_pool

pytestmark = pytest.mark.pg16


@pytest.fixture
async def impatient_pool(server: EmbeddedServer, database: str) -> AsyncIterator[Pool]:
    """Connections that look for a deadlock after 20 ms instead of a second, so that more happens in the same time."""
    with psycopg.connect(server.superuser_url, autocommit=True) as admin:
        admin.execute(sql.SQL("alter role {} in database {} set deadlock_timeout = '20ms'").format(
            sql.Identifier(ROLE), sql.Identifier(conninfo_to_dict(database)["dbname"])))  # fmt: skip
    async with make_pool(database, max_size=20) as pool:
        yield pool


async def test_many_dispatchers_stay_within_places_and_pace(autopost: Any, crowd: Crowd, pool: Pool) -> None:
    await autopost.channel("narrow", max_parallel=2)
    await autopost.channel("paced", rate_rps=25, max_parallel=9)
    for n in range(3):
        await autopost.channel(f"shared{n}", rate_group="shared", max_parallel=9)
    await autopost.sql("insert into autopost.platform_limits values ('w', 'telegram', 'shared', 20)")
    await push_now(pool, *(f"post {n}" for n in range(80)))
    crowded: list[Any] = []

    async def look() -> None:
        crowded.extend(
            await call(
                pool,
                """
            select d.channel_id, count(*)
            from autopost.deliveries d join autopost.channels c using (workspace_id, channel_id)
            where d.status = 'sending' group by d.channel_id, c.max_parallel having count(*) > c.max_parallel""",
            )
        )

    async def dispatch() -> None:
        rows = await take_now(pool, 10)
        await settle_now(pool, [sent(row) for row in rows])

    async def reached(which: str) -> int:
        return int(await autopost.value(
            "select count(*) from autopost.events where action = 'sent' and channel_id like %s", which
        ))  # fmt: skip

    while await reached("narrow") < 80 or await reached("paced") <= 25 or await reached("shared%") <= 20:
        await for_seconds(2, look, *[dispatch] * 5)

    assert crowded == []
    assert await begins_too_close(autopost, "e.channel_id = 'paced'", 1 / 25) == []
    assert await begins_too_close(autopost, "e.channel_id like 'shared%%'", 1 / 20) == []
    assert await violations(autopost.connection, "w") == []


async def test_dispatchers_of_mixed_groups_do_not_deadlock(autopost: Any, pool: Pool) -> None:
    """Paced and unpaced channels of many groups, in an order that crosses that of the groups."""
    for n in range(12):
        await autopost.channel(f"c{n:02}", rate_group=f"g{11 - n:02}", max_parallel=3, rate_rps=[None, 200][n % 2])
    await push_now(pool, *(f"post {n}" for n in range(40)))

    async def dispatch() -> None:
        rows = await take_now(pool, 7)
        await settle_now(pool, [failed(row, "500") for row in rows[::2]] + [sent(row) for row in rows[1::2]])

    before = await deadlocks(pool)
    await for_seconds(2, *[dispatch] * 6)
    assert await deadlocks(pool) == before


async def test_two_doorkeepers_let_in_no_more_than_one_would(autopost: Any, crowd: Crowd) -> None:
    await autopost.endpoint(ingress_rps=40)
    hands = await crowd.hands(2)
    admitted = 0

    def knock(hand: Any) -> Any:
        async def knock_once() -> None:
            nonlocal admitted
            passed = await hand.value("select autopost.ingress_admit('w', 'door', 3)")
            admitted += passed

        return knock_once

    began = await autopost.value("select clock_timestamp()")
    await for_seconds(1.5, *(knock(hand) for hand in hands))
    lasted = (await autopost.value("select clock_timestamp()") - began).total_seconds()
    assert 40 * 1.5 * 0.8 < admitted <= 40 * lasted + 40


async def test_the_functions_alone_never_deadlock(autopost: Any, impatient_pool: Pool) -> None:
    world = await bedlam(autopost, impatient_pool)
    planning = [world.withdraw, world.postpone]
    runbook = [world.operate, world.rotate, world.decide, world.watch]
    while world.begun < 50:  # however slow the machine is
        rounds = await for_seconds(2, *[world.dispatch] * 4, world.forget, world.push, world.sweep, *planning, *runbook)
        assert all(rounds)
    assert world.troubles == []
    assert await deadlocks(impatient_pool) == 0
    await world.calm()
    assert await violations(autopost.connection, "w") == []


async def test_monitors_and_retention_beside_it_never_deadlock(autopost: Any, impatient_pool: Pool) -> None:
    world = await bedlam(autopost, impatient_pool)
    aside = [world.monitor, world.monitor, world.let_go, world.let_go, world.operate, world.withdraw]
    while world.begun < 50:
        await for_seconds(2, *[world.dispatch] * 4, world.forget, *[world.push] * 2, world.sweep, *aside)
    assert await autopost.value("select removed from ops.retention_progress where rule = 'deliveries'") > 0
    assert await deadlocks(impatient_pool) == 0
    await world.calm()
    left = await violations(autopost.connection, "w")
    went = ("event_without_delivery", "event_without_message")
    assert [each for each in left if not each.startswith(went)] == []


async def test_operators_with_raw_sql_break_no_promise(autopost: Any, impatient_pool: Pool) -> None:
    """The runbook locks in the order of its scans: deadlocks may come, but only as what ``call`` repeats."""
    world = await bedlam(autopost, impatient_pool)
    operators = [world.requeue, world.release, world.pause, world.disable]
    while world.begun < 50:
        rounds = await for_seconds(3, *[world.dispatch] * 3, world.forget, world.push, world.sweep, *operators)
        assert all(rounds)
    await world.calm()
    assert await violations(autopost.connection, "w") == []
    assert set(await autopost.statuses()) <= {"sent", "dead", "failed_permanent", "deduped"}


async def bedlam(autopost: Any, pool: Pool) -> Bedlam:
    """Channels of every kind, and leases and pauses short enough for a test to live through many."""
    await autopost.policy(
        sending_lease="30 milliseconds",
        claimed_lease="30 milliseconds",
        backoff_base="5 milliseconds",
        expired_send_backoff="5 milliseconds",
        platform_cooldown_for="5 milliseconds",
        pause_on_permanent_for="10 milliseconds",
        disable_after_permanent_streak=1000,
        max_attempts=3,
    )
    for n in range(8):
        rate = [None, 100][n % 2]
        await autopost.channel(f"c{n}", max_parallel=2, rate_group=f"g{n % 3}", rate_rps=rate, dedup_ttl_hours=1,
                               on_unknown=["resend", "hold"][n // 4])  # fmt: skip
    await credential(autopost, "bot")
    await credential(autopost, "new")
    return Bedlam(pool)
