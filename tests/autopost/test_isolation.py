"""What cannot be in one workspace, or is held in one, costs the others nothing: not their results, not their sweeps, not
their turn."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from crowd import Crowd, until
from platforms import Door, Platform, taken

from vestnik.adapters.contract import Channel, Sent
from vestnik.autopost.dispatcher import Dispatcher
from vestnik.autopost.housekeeping import sweep
from vestnik.autopost.sender import Result
from vestnik.autopost.settler import Settler
from vestnik.db.pool import Pool, call, make_pool

REFUSED = {"category": "PERMANENT", "scope": "channel", "code": "403", "message": "kicked"}


async def neighbours(autopost: Any) -> tuple[Any, Any]:
    """Workspaces ``aaa`` and ``bbb``, each with a channel and a post in it."""
    both = []
    for name in ("aaa", "bbb"):
        other = autopost.on(autopost.connection)
        other.workspace = name
        await other.workspace_row()
        await other.channel(f"of {name}")
        await other.push(f"post of {name}")
        both.append(other)
    return both[0], both[1]


async def no_date_is_so_far_away(autopost: Any, column: str) -> None:
    """As it could be before the columns had bounds, or by hand."""
    await autopost.sql(f"alter table autopost.policies drop constraint policies_{column}_check")
    await autopost.sql("select autopost.policy_of('aaa')")
    await autopost.sql(f"update autopost.policies set {column} = '999999999 days'::interval where workspace_id = 'aaa'")


async def refused_by_hand(workspace: Any) -> Result:
    (row,) = await workspace.take()
    return Result(workspace.workspace, row["delivery_id"], row["lease"], error=REFUSED)


async def test_a_result_that_cannot_be_written_is_left_to_its_lease(autopost: Any, pool: Pool) -> None:
    """The rules of its workspace pause a channel beyond the last date there is."""
    aaa, bbb = await neighbours(autopost)
    await no_date_is_so_far_away(autopost, "pause_on_permanent_for")
    settled: list[int] = []
    settler = Settler(pool, settled.append)
    for workspace in (aaa, bbb):
        settler.put(await refused_by_hand(workspace))
    settler.close()
    async with asyncio.timeout(10):
        await settler.run()
    assert (await aaa.statuses(), await bbb.statuses()) == ({"sending": 1}, {"failed_permanent": 1})
    assert sum(settled) == 2, "the place of the first is free again, too"
    aaa.wait(seconds=301)
    assert await aaa.sweep() == (1, 0)


async def test_a_move_that_is_forbidden_is_left_to_its_lease(autopost: Any, pool: Pool) -> None:
    """Whatever else watches over the table may refuse with an error of the domain."""
    aaa, bbb = await neighbours(autopost)
    await autopost.sql(
        "create function public.refuse() returns trigger language plpgsql as"
        " $$ begin raise exception 'not this one' using errcode = 'VM001'; end $$"
    )
    await autopost.sql(
        "create trigger refuse before update on autopost.deliveries for each row"
        " when (new.workspace_id = 'aaa' and new.status = 'failed_permanent') execute function public.refuse()"
    )
    settler = Settler(pool, lambda _: None)
    for workspace in (aaa, bbb):
        settler.put(await refused_by_hand(workspace))
    settler.close()
    async with asyncio.timeout(10):
        await settler.run()
    assert (await aaa.statuses(), await bbb.statuses()) == ({"sending": 1}, {"failed_permanent": 1})


@pytest.mark.parametrize(
    ("column", "swept"), [("sending_lease", "sending"), ("claimed_lease", "claimed")], ids=["sends", "claims"]
)
async def test_a_workspace_that_cannot_be_swept_stops_no_other(
    autopost: Any, pool: Pool, column: str, swept: str
) -> None:
    aaa, bbb = await neighbours(autopost)
    await no_date_is_so_far_away(autopost, column)
    for workspace in (aaa, bbb):
        await (workspace.take() if swept == "sending" else workspace.claim())
    await autopost.sql(
        "update autopost.deliveries set claimed_at = claimed_at - interval '100 years',"
        " not_before = not_before - interval '100 years', sending_started_at = sending_started_at - interval '100 years'"
    )
    assert await sweep(pool) == 1
    assert (await aaa.statuses())[swept] == 1
    assert swept not in await bbb.statuses()


async def test_a_lock_in_one_workspace_holds_up_the_results_of_no_other(
    autopost: Any, crowd: Crowd, database: str
) -> None:
    aaa, bbb = await neighbours(autopost)
    async with make_pool(database, max_size=2, lock_timeout=0.05) as impatient:
        settler = Settler(impatient, lambda _: None)
        for workspace in (aaa, bbb):
            settler.put(await refused_by_hand(workspace))
        settler.close()
        operator = await crowd.hand()
        async with operator.connection.transaction():
            await operator.sql("select autopost.lock_channels('aaa', array['of aaa'])")
            running = asyncio.create_task(settler.run())
            await until(
                impatient, "select 1 from autopost.deliveries where workspace_id = 'bbb' and status <> 'sending'"
            )
            assert await aaa.statuses() == {"sending": 1}
        async with asyncio.timeout(10):
            await running
    assert await aaa.statuses() == {"failed_permanent": 1}


async def test_what_hangs_in_one_workspace_does_not_take_the_last_place(
    autopost: Any, pool: Pool, database: str
) -> None:
    autopost.now = datetime.now(UTC)
    aaa, bbb = await neighbours(autopost)
    for n in range(30):
        await aaa.channel(f"another {n}")
    await aaa.push("to all of them")
    door = Door()

    async def answer(channel: Channel) -> Sent:
        return await (taken if channel.workspace_id == "bbb" else door)(channel)

    platform = Platform(answer=answer)
    dispatcher = Dispatcher(database, pool, {"telegram": platform}, concurrency=8)
    running = asyncio.create_task(dispatcher.run())
    await platform.until(7)
    for n in range(3):
        await bbb.push(f"urgent {n}")
    query = "select 1 from autopost.deliveries where workspace_id = 'bbb' and status = 'sent' having count(*) = 4"
    await until(pool, query)
    assert await aaa.statuses() == {"sending": 6, "queued": 26}, "a quarter of the places is not theirs"
    dispatcher.stop()
    door.opened.set()
    await running


async def test_a_lock_in_one_workspace_takes_the_turn_of_no_other(autopost: Any, crowd: Crowd, database: str) -> None:
    autopost.now = datetime.now(UTC)
    _, bbb = await neighbours(autopost)
    operator = await crowd.hand()
    platform = Platform()
    async with make_pool(database, max_size=5, lock_timeout=0.05) as impatient:
        dispatcher = Dispatcher(database, impatient, {"telegram": platform}, poll=0.1)
        async with operator.connection.transaction():
            await operator.sql("select autopost.lock_channels('aaa', array['of aaa'])")
            running = asyncio.create_task(dispatcher.run())
            await until(impatient, "select 1 from autopost.deliveries where workspace_id = 'bbb' and status = 'sent'")
            for n in range(3):
                await bbb.push(f"more {n}")
            await until(
                impatient,
                "select 1 from autopost.deliveries where workspace_id = 'bbb' and status = 'sent' having count(*) = 4",
            )
        assert not running.done()
        dispatcher.stop()
        await running


async def test_a_workspace_that_could_not_be_served_is_not_asked_again_at_once(
    autopost: Any, pool: Pool, database: str
) -> None:
    """To ask may cost the patience for a lock, and everybody waits for it."""
    autopost.now = datetime.now(UTC)
    _, bbb = await neighbours(autopost)
    await autopost.sql("create sequence public.asked")
    await autopost.sql(
        "create function public.refuse() returns trigger language plpgsql as"
        " $$ begin perform nextval('public.asked'); raise exception 'no' using errcode = '22008'; end $$"
    )
    await autopost.sql(
        "create trigger refuse before update on autopost.deliveries for each row"
        " when (new.workspace_id = 'aaa') execute function public.refuse()"
    )
    dispatcher = Dispatcher(database, pool, {"telegram": Platform()}, poll=0.02)
    running = asyncio.create_task(dispatcher.run())
    for n in range(1, 5):
        query = (
            f"select 1 from autopost.deliveries where workspace_id = 'bbb' and status = 'sent' having count(*) = {n}"
        )
        await until(pool, query)  # type: ignore[arg-type]
        await bbb.push(f"more {n}")
    dispatcher.stop()
    await running
    assert await autopost.value("select last_value from public.asked") == 1


async def test_results_that_cannot_be_written_while_the_database_is_away_are_written_when_it_is_back(
    autopost: Any, database: str
) -> None:
    """Nothing is dropped, nothing has to wait for its lease to run out, and no place is given away meanwhile."""
    for n in range(3):
        await autopost.channel(f"c{n}")
    await autopost.push("post")
    results = [Result("w", row["delivery_id"], row["lease"], provider_message_id="m1") for row in await autopost.take()]
    settled: list[int] = []
    name = database.split("/")[-1].split("?")[0]
    async with make_pool(database, min_size=1, max_size=1, checkout_timeout=0.2) as own:
        settler = Settler(own, settled.append)
        running = asyncio.create_task(settler.run())
        await call(own, "select 1")
        # Away: everybody is thrown out, and nobody of the settler's role comes in.
        await autopost.sql(f'alter database "{name}" connection limit 0')
        await autopost.sql(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s and pid <> pg_backend_pid()",
            name,
        )
        for result in results:
            settler.put(result)
        async with asyncio.timeout(10):
            while not own.get_stats().get("requests_errors"):
                await asyncio.sleep(0.01)
        assert (await autopost.statuses(), settled) == ({"sending": 3}, [])
        await autopost.sql(f'alter database "{name}" connection limit -1')
        settler.close()
        async with asyncio.timeout(20):
            await running
    assert (await autopost.statuses(), sum(settled)) == ({"sent": 3}, 3)
    assert {e["action"] for e in await autopost.events()} == {"enqueue", "send_attempt", "sent"}
