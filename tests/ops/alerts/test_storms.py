"""Thousands of troubles at once, and two rounds of checks at the same time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb
from test_notices import settle, take

pytestmark = pytest.mark.pg16
MANY = 1200


def found(*numbers: int) -> Jsonb:
    return Jsonb(
        [{"alert": "source", "subject": f"s{n:05}", "severity": "warning", "summary": f"{n}"} for n in numbers]
    )


async def check(troubles: Any, *numbers: int) -> int:
    put = "select count(*) from ops.put_alerts(%s, '{source}', %s, %s)"
    return int(await troubles.value(put, troubles.workspace, found(*numbers), troubles.now))


async def test_a_program_is_told_in_messages_that_it_can_take_and_people_in_one(troubles: Any) -> None:
    await troubles.target("crm", kind="webhook", address="https://example.org", auth_ref=None)
    await troubles.target("chat")
    assert await check(troubles, *range(MANY)) == MANY
    _, told = await take(troubles)
    assert len(told) == MANY
    sizes, subjects = [], set[str]()
    for _ in range(4):
        lease, told = await take(troubles, "crm")
        sizes.append(len(told))
        subjects |= {notice["subject"] for notice in told}
        if told:
            await settle(troubles, lease, told, target="crm")
    assert sizes == [500, 500, 200, 0]
    assert len(subjects) == MANY


async def test_what_a_round_does_not_find_is_over_and_nothing_else(troubles: Any) -> None:
    await troubles.put("disk")
    await check(troubles, 1, 2, 3)
    assert await check(troubles, 2) == 1
    rows = await troubles.sql(
        "select alert, subject from ops.alerts where workspace_id = %s and cleared_at is null order by 1, 2",
        troubles.workspace,
    )
    assert [(row["alert"], row["subject"]) for row in rows] == [("disk", ""), ("source", "s00002")]


async def test_two_rounds_at_once_wait_for_each_other(troubles: Any, worker_database: str) -> None:
    """They find the opposite of each other: what one clears, the other one puts."""
    await check(troubles, *range(40))

    async def rounds(*numbers: int) -> None:
        async with await AsyncConnection.connect(worker_database, autocommit=True, row_factory=dict_row) as hand:
            for turn in range(15):
                put = "select count(*) from ops.put_alerts(%s, '{source}', %s, %s)"
                wanted = found(*(numbers if turn % 2 else reversed(numbers)))
                await hand.execute(put, (troubles.workspace, wanted, troubles.now))

    await asyncio.gather(*[rounds(*range(20)), rounds(*range(20, 40)), rounds(*range(10, 30))])
    assert await check(troubles, 7) == 1
