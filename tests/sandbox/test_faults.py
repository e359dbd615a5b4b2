"""Faults: who meets them, how often, and what is left behind."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import aiohttp
import pytest

from vestnik.sandbox.faults import parse_faults, pick


async def fault(client: Any, where: str, *faults: dict[str, Any]) -> None:
    answer = await client.ask("PUT", f"/admin/{where}/faults", list(faults))
    assert answer.status == 200, answer.body


async def test_a_fault_of_a_chat_leaves_the_others_alone(client: Any) -> None:
    await client.admin("PUT", "telegram/chats/-2")
    await fault(client, "telegram/chats/-2", {"kind": "403"})
    assert (await client.telegram("sendMessage", text="a", chat_id="-2")).status == 403
    assert (await client.telegram("sendMessage", text="a")).status == 200
    assert (await client.max()).status == 200
    await client.admin("DELETE", "telegram/chats/-2/faults")
    assert (await client.telegram("sendMessage", text="a", chat_id="-2")).status == 200


async def test_a_chats_fault_comes_before_its_platforms(client: Any) -> None:
    await fault(client, "telegram", {"kind": "500"})
    await fault(client, "telegram/chats/-1001", {"kind": "403", "times": 1})
    assert [(await client.telegram("sendMessage", text="a")).status for _ in range(2)] == [403, 500]


async def test_a_fault_that_fires_a_number_of_times(client: Any) -> None:
    await fault(client, "max", {"kind": "429", "times": 2, "retry_after": 2.5}, {"kind": "503", "times": 1})
    said = [await client.max() for _ in range(4)]
    assert [answer.status for answer in said] == [429, 429, 503, 200]
    assert said[0].headers["Retry-After"] == "3"
    assert await client.admin("GET", "max/faults") == []
    counters = (await client.admin("GET", "max"))["counters"]
    assert (counters["fault.429"], counters["fault.503"], counters["accepted"]) == (2, 1, 1)


async def test_a_429_with_and_without_a_wait(client: Any) -> None:
    await fault(client, "telegram", {"kind": "429", "retry_after": 3, "times": 1}, {"kind": "429"})
    with_wait = await client.telegram("sendMessage", text="a")
    without = await client.telegram("sendMessage", text="a")
    assert with_wait.body["parameters"] == {"retry_after": 3}
    assert "parameters" not in without.body
    await fault(client, "max", {"kind": "429"})
    assert "Retry-After" not in (await client.max()).headers


def test_a_probability_repeats_with_its_seed() -> None:
    def run(seed: int) -> list[bool]:
        book = parse_faults({"kind": "500", "probability": 0.3, "seed": seed})
        return [pick(book) is not None for _ in range(1000)]

    assert run(1) == run(1) != run(2)
    assert 250 < sum(run(1)) < 350


def test_5xx_is_one_of_four() -> None:
    (five,) = parse_faults({"kind": "5xx"})
    assert {five.status() for _ in range(100)} == {500, 502, 503, 504}


@pytest.mark.parametrize(
    ("kind", "accepted"), [("reset", 0), ("reset_after_accept", 1), ("timeout", 0), ("timeout_after_accept", 1)]
)
@pytest.mark.parametrize("platform", ["telegram", "max"])
async def test_a_lost_answer(client: Any, platform: str, kind: str, accepted: int) -> None:
    await fault(client, platform, {"kind": kind})
    call = client.telegram("sendMessage", text="a") if platform == "telegram" else client.max()
    waiting = asyncio.ensure_future(call)
    async with asyncio.timeout(30):
        while not client.sandbox.state.platforms[platform].counters[f"fault.{kind}"]:
            await asyncio.sleep(0.005)
    if kind.startswith("reset"):
        with pytest.raises(aiohttp.ClientOSError) as caught:
            await waiting
        assert caught.value.errno == errno.ECONNRESET
    else:
        assert not waiting.done()
        waiting.cancel()
    assert len(await client.posts(platform)) == accepted


async def test_garbage_and_a_no_under_http_200(client: Any) -> None:
    await fault(client, "telegram", {"kind": "garbage", "times": 1}, {"kind": "success_false", "message": "no"})
    garbage = await client.telegram("sendMessage", text="a")
    assert (garbage.status, garbage.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    no = await client.telegram("sendMessage", text="a")
    assert (no.status, no.body) == (200, {"ok": False, "error_code": 400, "description": "no"})
    await fault(client, "max", {"kind": "success_false"})
    no = await client.max()
    assert (no.status, no.body["success"]) == (200, False)
    assert await client.posts("telegram") == await client.posts("max") == []


async def test_words_and_codes_of_ones_own(client: Any) -> None:
    await fault(client, "max", {"kind": "400", "code": "attachment.not.ready", "message": "m"})
    said = await client.max()
    assert (said.status, said.body) == (400, {"code": "attachment.not.ready", "message": "m"})


async def test_a_slow_answer_comes_late(client: Any) -> None:
    await fault(client, "max", {"kind": "slow", "latency_ms": 80})
    before = asyncio.get_running_loop().time()
    assert (await client.max()).status == 200
    assert asyncio.get_running_loop().time() - before >= 0.08


async def test_the_sandbox_stops_while_callers_wait(client: Any) -> None:
    from vestnik.sandbox.server import serve

    async with asyncio.timeout(30):
        async with serve() as other:
            platform = other.state.platforms["telegram"]
            platform.lenient = True
            platform.faults[:] = parse_faults({"kind": "timeout"})
            url = f"{other.telegram_url}/bot1:A/getMe"
            waiting = asyncio.ensure_future(client.session.get(url))
            while not platform.counters["fault.timeout"]:  # at the other end of a socket
                await asyncio.sleep(0.005)
        with pytest.raises(aiohttp.ClientError):
            (await waiting).raise_for_status()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"kind": "flood"}, "kind is one of"),
        ({"kind": "200"}, "kind is one of"),
        ({}, "kind is one of"),
        ("429", "a fault is an object"),
        ({"kind": "429", "retry": 3}, "unknown keys: retry"),
        ({"kind": "429", "probability": 1.5}, "probability is a number from 0 to 1"),
        ({"kind": "429", "probability": True}, "probability is a number"),
        ({"kind": "429", "times": 0}, "times is a number"),
        ({"kind": "slow", "latency_ms": "1s"}, "latency_ms is a number"),
        ({"kind": "429", "seed": "x"}, "seed is a whole number"),
        ({"kind": "429", "message": 5}, "message is a text"),
        ([{"kind": "429"}] * 33, "at most 32"),
    ],
)
async def test_a_fault_that_makes_no_sense(client: Any, body: object, said: str) -> None:
    answer = await client.ask("PUT", "/admin/telegram/faults", body)
    assert answer.status == 400
    assert said in answer.body["error"]
    assert await client.admin("GET", "telegram/faults") == []
