"""An operator and a dispatcher reach for the same delivery: exactly one of them has it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from crowd import Crowd
from planned import cancel, clock, move, post, push_at, replace

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16


@pytest.mark.parametrize("ends", ["commits", "rolls back"])
async def test_a_cancel_waits_for_the_begin_that_has_the_row(autopost: Autopost, crowd: Crowd, ends: str) -> None:
    await autopost.channel()
    message = await push_at(autopost, "hi")
    dispatcher, operator = await crowd.hands(2)
    await dispatcher.sql("begin")
    assert len(await dispatcher.take()) == 1
    withdrawing = await crowd.blocked(operator, cancel(operator, message))
    await dispatcher.sql("commit" if ends == "commits" else "rollback")
    assert await withdrawing == {"c1": "too_late" if ends == "commits" else "cancelled"}
    assert await autopost.statuses() == ({"sending": 1} if ends == "commits" else {"failed_permanent": 1})
    assert len(await autopost.events("cancelled")) == (ends != "commits")


async def test_a_row_that_is_sent_meanwhile_is_nothing_to_cancel(autopost: Autopost, crowd: Crowd) -> None:
    await autopost.channel()
    message = await push_at(autopost, "hi")
    (row,) = await autopost.take()
    dispatcher, operator = await crowd.hands(2)
    await dispatcher.sql("begin")
    await dispatcher.sent(row["delivery_id"], row["lease"])
    withdrawing = await crowd.blocked(operator, cancel(operator, message))
    await dispatcher.sql("commit")
    assert await withdrawing == {}
    assert await autopost.statuses() == {"sent": 1}


@pytest.mark.parametrize("deed", ["cancel", "move", "replace"])
async def test_a_dispatcher_passes_by_what_an_operator_has_in_hand(autopost: Autopost, crowd: Crowd, deed: str) -> None:
    await autopost.channel()
    message = await push_at(autopost, "hi")
    dispatcher, operator = await crowd.hands(2)
    await operator.sql("begin")
    if deed == "cancel":
        await cancel(operator, message)
    elif deed == "move":
        await move(operator, message, clock(15))
    else:
        await replace(operator, message, post("edited", clock(15)))
    async with asyncio.timeout(10):
        assert await dispatcher.take() == []
    await operator.sql("commit")
    assert await dispatcher.take() == []
    expected = {
        "cancel": {"failed_permanent": 1},
        "move": {"queued": 1},
        "replace": {"failed_permanent": 1, "queued": 1},
    }
    assert await autopost.statuses() == expected[deed]


async def test_of_two_operators_who_replace_one_post_the_second_is_told(autopost: Autopost, crowd: Crowd) -> None:
    await autopost.channel()
    message = await push_at(autopost, "hi", clock(15))
    one, other = await crowd.hands(2)
    await one.sql("begin")
    await replace(one, message, {"text": "first edit"})
    second = await crowd.blocked(other, replace(other, message, {"text": "second edit"}))
    await one.sql("commit")
    with pytest.raises(Exception, match="nothing of message"):
        await second
    assert [row["rendered_text"] for row in await autopost.deliveries("queued")] == ["first edit"]


async def test_in_a_crowd_of_both_each_post_is_either_sent_once_or_withdrawn(autopost: Autopost, crowd: Crowd) -> None:
    """What is told to an operator is what becomes of it; nothing is lost, nothing goes twice."""
    channels = [await autopost.channel(f"c{n}", max_parallel=3) for n in range(4)]
    messages = [await push_at(autopost, f"post {n}") for n in range(40)]
    told: dict[tuple[UUID, str], str] = {}
    begun: list[UUID] = []
    dispatchers, operators = await crowd.hands(3), await crowd.hands(3)

    async def dispatch(hand: Any) -> None:
        for _ in range(60):
            rows = await hand.take(3)
            begun.extend(row["delivery_id"] for row in rows)
            for row in rows:
                await hand.sent(row["delivery_id"], row["lease"])

    async def withdraw(hand: Any, which: int) -> None:
        for message in messages[which::3]:
            outcomes = await cancel(hand, message)
            told.update({(message, channel): said for channel, said in outcomes.items()})

    await asyncio.gather(
        *(dispatch(hand) for hand in dispatchers), *(withdraw(hand, n) for n, hand in enumerate(operators))
    )
    rows = await autopost.deliveries()
    assert len(rows) == len(messages) * len(channels)
    assert len(begun) == len(set(begun))
    for row in rows:
        said = told.get((row["message_id"], row["channel_id"]))
        assert row["status"] == ("failed_permanent" if said == "cancelled" else "sent")
        assert (row["delivery_id"] in begun) == (said != "cancelled")
    assert "cancelled" in told.values()
