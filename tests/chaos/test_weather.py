"""Kill, restart, cut, hang: nothing is lost, and what arrives twice is told."""

from __future__ import annotations

import asyncio
import signal

from pusher import Pusher
from stormy import CONCURRENCY, Storm

from vestnik.autopost.verbs import create_endpoint
from vestnik.db.pool import make_pool
from vestnik.sandbox.faults import parse_faults

POSTS = 15


def slow(storm: Storm, latency_ms: int = 60) -> None:
    storm.sandbox.state.platforms["telegram"].faults[:] = parse_faults([{"kind": "slow", "latency_ms": latency_ms}])


async def test_kill_9_in_the_middle_of_a_run(storm: Storm) -> None:
    slow(storm)
    await storm.push(POSTS)
    process = storm.dispatcher()
    await storm.arrived_at_least(40)
    process.send_signal(signal.SIGKILL)
    await asyncio.to_thread(process.wait)
    left = await storm.sql("select count(*) as n from autopost.deliveries where status = 'sending'")
    assert 0 < left[0]["n"] <= CONCURRENCY
    storm.dispatcher()
    await storm.all_sent()
    await storm.check(POSTS)
    swept = await storm.sql("select count(*) as n from autopost.events where action = 'sending_lease_expired'")
    assert swept[0]["n"] == left[0]["n"]


async def test_the_database_restarts_in_the_middle_of_a_run(storm: Storm) -> None:
    slow(storm)
    await storm.push(POSTS)
    process = storm.dispatcher()
    for count in (20, 80):
        await storm.arrived_at_least(count)
        await asyncio.to_thread(storm.server.stop, force=True)
        await asyncio.to_thread(storm.server.start)
    await storm.all_sent()
    assert process.poll() is None, storm.log()
    await storm.check(POSTS)


async def test_the_database_restarts_ten_times_under_steady_pushes_and_the_service_never(storm: Storm) -> None:
    async with make_pool(storm.server.url, max_size=1) as pool:
        secret = await create_endpoint(pool, "w", "door", rps=1000)
    process = storm.run("api", "dispatcher", "jobs")
    pusher = Pusher(await storm.http_url(), secret)
    enough = asyncio.Event()
    pushing = asyncio.create_task(pusher.push_until(enough))
    for _ in range(10):
        await storm.arrived_at_least(storm.arrived().total() + 30)
        await asyncio.to_thread(storm.server.stop, force=True)
        await asyncio.to_thread(storm.server.start)
    enough.set()
    await pushing
    await storm.all_sent()
    assert process.poll() is None, storm.log()
    await storm.check(len(pusher.taken))


async def test_connections_are_cut_again_and_again(storm: Storm) -> None:
    slow(storm)
    await storm.push(POSTS)
    process = storm.dispatcher()
    for count in (10, 40, 70, 100):
        await storm.arrived_at_least(count)
        await storm.sql(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'"
        )
    await storm.all_sent()
    assert process.poll() is None, storm.log()
    await storm.check(POSTS)


async def test_two_dispatchers_send_nothing_twice(storm: Storm) -> None:
    # A lease that no send of this test can outlive.
    await storm.sql("update autopost.policies set sending_lease = '1 hour'")
    slow(storm, 20)
    await storm.push(POSTS)
    storm.dispatcher()
    storm.dispatcher()
    await storm.all_sent()
    await storm.check(POSTS)
    assert set(storm.arrived().values()) == {1}
    tokens = await storm.sql(
        "select distinct meta ->> 'run_id' as token from autopost.events where action = 'send_attempt'"
    )
    assert len(tokens) == 2


async def test_a_platform_that_hangs_is_given_up_before_the_lease_ends(storm: Storm) -> None:
    """The post was accepted, the answer never came: it goes out again, and the events say why it stands there twice."""
    chat = storm.sandbox.state.platforms["telegram"].add_chat("-1", title="One")
    chat.faults[:] = parse_faults([{"kind": "timeout_after_accept", "times": 1}])
    await storm.push(3)
    storm.dispatcher(HTTP_TIMEOUT="60")
    await storm.all_sent()
    await storm.check(3)
    twice = [place for place, copies in storm.arrived().items() if copies > 1]
    assert [chat_id for chat_id, _ in twice] == ["-1"]
    told = await storm.sql("select action, error ->> 'code' as code from autopost.events where result = 'error'")
    assert told == [{"action": "retry_scheduled", "code": "timeout"}]


async def test_a_dispatcher_that_freezes_beyond_the_lease(storm: Storm) -> None:
    """Somebody else sends what it had begun; what it says when it wakes up is late, and told as that."""
    chat = storm.sandbox.state.platforms["telegram"].add_chat("-1", title="One")
    chat.faults[:] = parse_faults([{"kind": "slow", "latency_ms": 500, "times": 1}])
    await storm.push(1)
    frozen = storm.dispatcher()
    await storm.arrived_at_least(storm.channels - 1)
    frozen.send_signal(signal.SIGSTOP)
    storm.dispatcher()
    await storm.all_sent()
    frozen.send_signal(signal.SIGCONT)

    async def told() -> bool:
        actions = await storm.sql("select action from autopost.events where channel_id = 'c1'")
        return {"sending_lease_expired", "late_result"} <= {row["action"] for row in actions}

    await storm.until(told, "the late answer of the send that was frozen")
    await storm.check(1)
    assert storm.arrived()["-1", "post 0"] == 2


async def test_a_graceful_stop_leaves_nothing_in_between(storm: Storm) -> None:
    slow(storm, 300)
    await storm.push(POSTS)
    process = storm.dispatcher()
    await storm.arrived_at_least(10)
    process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(process.wait, 60) == 0, storm.log()
    assert await storm.sql("select 1 from autopost.deliveries where status = 'sending'") == []
    storm.dispatcher()
    await storm.all_sent()
    await storm.check(POSTS)
    assert set(storm.arrived().values()) == {1}
