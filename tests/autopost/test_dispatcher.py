"""The dispatcher between a real queue and platforms inside the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from crowd import until
from platforms import Door, Platform, taken

from queue_audit import violations
from vestnik.adapters.contract import Adapter, Channel, SendError, Sent
from vestnik.autopost.dispatcher import Dispatcher
from vestnik.autopost.verbs import publish
from vestnik.db.pool import Pool, call

Dispatch = Callable[..., Dispatcher]


@pytest.fixture
async def dispatch(database: str, pool: Pool) -> AsyncIterator[Dispatch]:
    """Starts a dispatcher; what it was given to do is over when the test ends."""
    running: list[tuple[Dispatcher, asyncio.Task[None]]] = []

    def start(*adapters: Adapter, **how: Any) -> Dispatcher:
        dispatcher = Dispatcher(database, pool, {a.platform: a for a in adapters}, **{"poll": 30.0} | how)
        running.append((dispatcher, asyncio.create_task(dispatcher.run())))
        return dispatcher

    start.ended = lambda: ended(*running)  # type: ignore[attr-defined]
    yield start
    await ended(*running)


async def ended(*running: tuple[Dispatcher, asyncio.Task[None]]) -> None:
    for dispatcher, _ in running:
        dispatcher.stop()
    async with asyncio.timeout(20):
        await asyncio.gather(*(task for _, task in running))


async def publish_all(pool: Pool, count: int, workspace: str = "w", name: str = "post") -> None:
    for n in range(count):
        await publish(pool, workspace, {"text": f"{name} {n}"})


async def until_idle(pool: Pool, workspace: str = "w") -> None:
    await until(
        pool,
        "select 1 where not exists (select from autopost.deliveries where status in ('queued', 'claimed', 'sending'))",
    )


async def test_sends_everything_once(autopost: Any, pool: Pool, dispatch: Dispatch) -> None:
    for n in range(20):
        await autopost.channel(f"c{n:02}", max_parallel=3)
    await publish_all(pool, 10)
    platform = Platform()
    dispatch(platform)
    await until_idle(pool)
    assert await autopost.statuses() == {"sent": 200}
    assert len(platform.keys) == 200
    assert set(platform.keys.values()) == {1}
    assert await violations(autopost.connection, "w") == []


async def test_never_has_more_under_way_than_it_may(autopost: Any, pool: Pool, dispatch: Dispatch) -> None:
    for n in range(4):
        await autopost.channel(f"c{n}", max_parallel=2 + n)
    await publish_all(pool, 12)
    platform = Platform(answer=Door())
    dispatch(platform, concurrency=9)  # a quarter of it is for other workspaces
    await platform.until(7)
    assert await autopost.statuses() == {"sending": 7, "queued": 41}
    platform.answer.opened.set()  # type: ignore[attr-defined]
    await until_idle(pool)
    assert platform.most_at_once == 7
    assert all(most <= 2 + int(channel[1]) for channel, most in platform.most_in_channel.items())
    assert platform.most_in_channel["c0"] == 2


async def test_wakes_when_something_is_published(autopost: Any, pool: Pool, dispatch: Dispatch) -> None:
    """The poll is half a minute away: what comes earlier came by NOTIFY."""
    await autopost.channel("a")
    platform = Platform()
    dispatch(platform)
    await publish(pool, "w", {"text": "first"})
    await platform.until(1)
    await until_idle(pool)
    await publish(pool, "w", {"text": "second"})
    await platform.until(2)


async def test_wakes_for_the_next_slot_and_the_next_free_place(autopost: Any, pool: Pool, dispatch: Dispatch) -> None:
    await autopost.channel("paced", rate_rps=20)
    await autopost.channel("narrow", max_parallel=1)
    await publish_all(pool, 5)
    platform = Platform()
    dispatch(platform)
    await platform.until(10)


async def test_wakes_for_a_retry_that_is_due_before_the_poll(autopost: Any, pool: Pool, dispatch: Dispatch) -> None:
    await autopost.policy(backoff_base="100 milliseconds")
    await autopost.channel("a")
    answers = iter([SendError(category="TRANSIENT", scope="platform", code="503", message="later"), None])

    async def at_second_try(channel: Channel) -> Sent:
        if error := next(answers):
            raise error
        return await taken(channel)

    platform = Platform(answer=at_second_try)
    await publish_all(pool, 1)
    dispatch(platform, poll=0.5)
    await until(pool, "select 1 from autopost.deliveries where status = 'sent'")
    assert [e["attempt"] for e in await autopost.events("send_attempt")] == [1, 2]


# Stopping


async def test_what_is_under_way_may_finish(autopost: Any, pool: Pool, dispatch: Any) -> None:
    await autopost.channel("a", max_parallel=9)
    await publish_all(pool, 5)
    platform = Platform(answer=Door())
    dispatcher = dispatch(platform)
    await platform.until(5)
    dispatcher.stop()
    await publish(pool, "w", {"text": "too late"})
    platform.answer.opened.set()  # type: ignore[attr-defined]
    await dispatch.ended()
    assert await autopost.statuses() == {"sent": 5, "queued": 1}


async def test_what_does_not_finish_goes_back_with_an_unknown_outcome(autopost: Any, pool: Pool, dispatch: Any) -> None:
    await autopost.channel("a", max_parallel=9)
    await publish_all(pool, 3)
    platform = Platform(answer=Door())
    dispatch(platform, grace=0.1)
    await platform.until(3)
    await dispatch.ended()
    rows = await autopost.deliveries("retry")
    assert [row["last_error"]["outcome"] for row in rows] == ["unknown"] * 3
    assert len(await autopost.events("retry_scheduled")) == 3
    assert await violations(autopost.connection, "w") == []


async def test_an_adapter_that_will_not_be_cancelled_does_not_hold_up_the_end(
    autopost: Any, pool: Pool, dispatch: Any
) -> None:
    await autopost.channel("a")
    await publish_all(pool, 1)
    door = Door()

    async def stubborn(channel: Channel) -> Sent:
        while not door.opened.is_set():
            try:
                return await door(channel)
            except asyncio.CancelledError:
                continue
        return await taken(channel)

    platform = Platform(answer=stubborn)
    dispatch(platform, grace=0.1)
    await platform.until(1)
    try:
        await dispatch.ended()
        assert [row["last_error"]["outcome"] for row in await autopost.deliveries("retry")] == ["unknown"]
    finally:
        door.opened.set()


# Adapters that misbehave


@pytest.mark.parametrize(
    "thrown",
    [ValueError("no"), KeyError("x"), asyncio.CancelledError(), TimeoutError(), ConnectionResetError()],
    ids=repr,
)
async def test_an_adapter_that_breaks_stops_nobody_else(
    autopost: Any, pool: Pool, dispatch: Dispatch, thrown: BaseException
) -> None:
    await autopost.channel("bad")
    await autopost.channel("good")
    await publish_all(pool, 3)

    async def breaks(channel: Channel) -> Sent:
        if channel.channel_id == "bad":
            raise thrown
        return await taken(channel)

    dispatch(Platform(answer=breaks))
    await until(pool, "select 1 from autopost.deliveries where status = 'retry'")
    await until(pool, "select 1 from autopost.deliveries where status = 'sent' having count(*) = 3")
    for row in await autopost.deliveries("retry"):
        assert row["last_error"]["category"] == "TRANSIENT"
        assert row["last_error"]["outcome"] == "unknown"


@pytest.mark.parametrize(
    "answer",
    [
        Sent("m1", {"text": "a NUL \0 inside"}),
        Sent("m1", {"text": "half a character \ud83d"}),
        Sent("m1", {"bytes": object()}),
        Sent("m1", {"number": float("nan")}),
        Sent(12345, {}),  # type: ignore[arg-type]
        Sent("m1", {"deep": "x" * 100_000}),
    ],
    ids=["nul", "surrogate", "object", "nan", "number as id", "huge"],
)
async def test_an_answer_that_cannot_be_stored_still_means_sent(
    autopost: Any, pool: Pool, dispatch: Dispatch, answer: Sent
) -> None:
    """It would be sent again otherwise, and again."""
    await autopost.channel("a", max_parallel=3)

    async def odd(channel: Channel) -> Sent:
        return answer

    dispatch(Platform(answer=odd))
    await publish_all(pool, 3)
    await until(pool, "select 1 from autopost.deliveries where status = 'sent' having count(*) = 3")
    assert await violations(autopost.connection, "w") == []


async def test_an_answer_outside_the_contract_is_an_error_of_the_adapter(
    autopost: Any, pool: Pool, dispatch: Dispatch
) -> None:
    await autopost.channel("a")
    await autopost.channel("b")

    async def odd(channel: Channel) -> None:
        if channel.channel_id == "b":
            raise SendError(category="TRANSIENT", scope="channel", code="1", message="", raw="a text")  # type: ignore[arg-type]

    dispatch(Platform(answer=odd))
    await publish_all(pool, 1)
    await until(pool, "select 1 from autopost.deliveries where status = 'retry' having count(*) = 2")
    assert {row["last_error"]["code"] for row in await autopost.deliveries()} == {"adapter_crashed"}


async def test_an_adapter_that_hangs_is_given_up(autopost: Any, pool: Pool, dispatch: Any) -> None:
    await autopost.channel("a")
    await publish_all(pool, 1)
    dispatch(Platform(answer=Door()), deadline=0.1)
    await until(pool, "select 1 from autopost.deliveries where status = 'retry'")
    (row,) = await autopost.deliveries()
    assert (row["last_error"]["code"], row["last_error"]["outcome"]) == ("timeout", "unknown")


async def test_no_send_takes_longer_than_its_lease(autopost: Any, pool: Pool, dispatch: Any) -> None:
    """The sweep would give the delivery away while the platform may still take it."""
    await autopost.policy(sending_lease="200 milliseconds")
    await autopost.channel("a")
    await publish_all(pool, 1)
    dispatch(Platform(answer=Door()), deadline=3600)
    await until(pool, "select 1 from autopost.deliveries where status = 'retry'")
    (row,) = await autopost.deliveries()
    assert (row["last_error"]["code"], row["last_error"]["outcome"]) == ("timeout", "unknown")
    assert row["last_error"]["message"] == "no answer within 0.18 s", "of 0.2"


async def test_a_platform_without_an_adapter_stops_only_its_channels(
    autopost: Any, pool: Pool, dispatch: Dispatch
) -> None:
    await autopost.channel("a")
    await autopost.channel("b", platform="pigeon")
    await publish_all(pool, 2)
    dispatch(Platform())
    await until(pool, "select 1 from autopost.deliveries where status = 'sent' having count(*) = 2")
    await until(pool, "select 1 from autopost.deliveries where status = 'failed_permanent'")
    assert (await autopost.channel_row("b"))["paused_until"] is not None
    assert (await autopost.channel_row("a"))["error_streak"] == 0
    assert await violations(autopost.connection, "w") == []


# Several


async def test_two_dispatchers_share_a_workspace(autopost: Any, pool: Pool, dispatch: Dispatch) -> None:
    for n in range(6):
        await autopost.channel(f"c{n}", max_parallel=2, rate_rps=[None, 50][n % 2])
    first, second = Platform(), Platform()
    dispatch(first, concurrency=5)
    dispatch(second, concurrency=5)
    await publish_all(pool, 15)
    await until_idle(pool)
    together = first.keys + second.keys
    assert len(together) == 90
    assert set(together.values()) == {1}
    assert first.keys
    assert second.keys
    assert await autopost.statuses() == {"sent": 90}
    assert await violations(autopost.connection, "w") == []


@pytest.mark.parametrize(("concurrency", "posts", "soon"), [(10, 10, 100), (1, 2, 30)], ids=["ten places", "one place"])
async def test_a_huge_workspace_starves_no_small_one(
    autopost: Any, pool: Pool, dispatch: Dispatch, concurrency: int, posts: int, soon: int
) -> None:
    """With one place, only the memory of who was served last gives the others a turn."""
    small = ["a", "k", "v", "x", "y", "z"]
    for workspace in small:
        other = autopost.on(autopost.connection)
        other.workspace = workspace
        await other.workspace_row()
        await other.channel(f"of {workspace}")
    for n in range(40):
        await autopost.channel(f"c{n:02}", max_parallel=50)
    await publish_all(pool, posts)
    for workspace in small:
        await publish_all(pool, 1, workspace)
    platform = Platform()
    dispatch(platform, concurrency=concurrency)
    await platform.until(40 * posts + 6)
    last = max(platform.channels.index(f"of {workspace}") for workspace in small)
    assert last < soon, "of all these sends, six were urgent to somebody"


@pytest.mark.parametrize("status", ["paused", "disabled"])
async def test_a_workspace_that_is_not_active_sends_nothing(
    autopost: Any, pool: Pool, dispatch: Dispatch, status: str
) -> None:
    await autopost.channel("a")
    await publish_all(pool, 1)
    await call(pool, "update core.workspaces set status = %s", (status,))
    other = autopost.on(autopost.connection)
    other.workspace = "other"
    await other.workspace_row()
    await other.channel("b")
    platform = Platform()
    dispatch(platform, poll=0.1)
    await publish_all(pool, 3, "other")
    await platform.until(3)
    assert set(platform.channels) == {"b"}
    await call(pool, "update core.workspaces set status = 'active'")
    await platform.until(4)
    assert platform.channels[-1] == "a"
