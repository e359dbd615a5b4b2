"""A confirmation, another try and a late result of one held delivery, on connections that meet: one of them decides."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from crowd import Crowd

from queue_audit import violations

pytestmark = pytest.mark.pg16


async def held(autopost: Any) -> Any:
    await autopost.channel(on_unknown="hold")
    await autopost.push("hi")
    (row,) = await autopost.take()
    autopost.wait(seconds=301)
    await autopost.sweep()
    return row


def deed(hand: Any, name: str, row: Any) -> Any:
    match name:
        case "late success":
            return hand.sent(row["delivery_id"], row["lease"], "late")
        case "late error":
            return hand.fail(row["delivery_id"], None, row["lease"])
        case verb:
            return hand.value(
                f"select autopost.{verb}_delivery('w', %s, 'why', %s, p_now => %s)", verb, row["delivery_id"], hand.now
            )


# Who came first, who waited for it, what the second is told, and what became of the delivery.
MEETINGS = [
    ("confirm", "late success", "duplicate", "sent"),
    ("confirm", "late error", "late", "sent"),
    ("confirm", "resend", "VM001", "sent"),
    ("confirm", "confirm", "VM001", "sent"),
    ("late success", "confirm", "VM001", "sent"),
    ("late success", "resend", "VM001", "sent"),
    ("resend", "late success", "sent", "sent"),
    ("resend", "confirm", "VM001", "retry"),
    ("resend", "resend", "VM001", "retry"),
    ("late error", "confirm", "confirmed", "sent"),
]


@pytest.mark.parametrize(("first", "second", "told", "status"), MEETINGS)
async def test_of_two_that_meet_the_second_sees_what_the_first_did(
    autopost: Any, crowd: Crowd, first: str, second: str, told: str, status: str
) -> None:
    row = await held(autopost)
    one, other = await crowd.hands(2)
    async with one.connection.transaction():
        await deed(one, first, row)
        waiting = await crowd.blocked(other, deed(other, second, row))
    try:
        answer = await waiting
    except psycopg.Error as error:
        answer = error.sqlstate
    now = await autopost.delivery(row["delivery_id"])
    assert (answer, now["status"], now["held_at"]) == (told, status, None)
    assert len(await autopost.events("sent")) == (status == "sent")
    assert await violations(autopost.connection, "w") == []


async def test_many_at_once_leave_one_decision(autopost: Any, crowd: Crowd) -> None:
    row = await held(autopost)
    names = ["confirm", "resend", "late success", "late error", "confirm", "resend"]
    hands = await crowd.hands(len(names))
    answers = await asyncio.gather(
        *(deed(h, n, row) for h, n in zip(hands, names, strict=True)), return_exceptions=True
    )
    assert {a.sqlstate for a in answers if isinstance(a, psycopg.Error)} <= {"VM001"}
    assert sum(a in ("confirmed", "sent") for a in answers) <= 1
    assert sum(a == "resent" for a in answers) <= 1
    assert len(await autopost.events("sent")) <= 1
    assert await violations(autopost.connection, "w") == []
