"""What ``why`` says of the earliest moment is true, whatever stands in the way: not a microsecond before it, and at it."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from drained import drain
from planned import clock

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16
A_BIT = timedelta(microseconds=1)


async def why(workspace: Autopost, delivery_id: Any) -> Any:
    return (
        await workspace.sql(
            "select * from autopost.why_delivery(%s, %s, %s)", workspace.workspace, delivery_id, workspace.now
        )
    )[0]


async def set_group(workspace: Autopost, **columns: Any) -> None:
    await workspace.sql("select autopost.lock_channels(%s, '{c1}')", workspace.workspace)
    for name, value in columns.items():
        await workspace.sql(
            f"update autopost.platform_limits set {name} = %s where workspace_id = %s", value, workspace.workspace
        )


async def set_channel(workspace: Autopost, **columns: Any) -> None:
    for name, value in columns.items():
        await workspace.sql(
            f"update autopost.channels set {name} = %s where workspace_id = %s", value, workspace.workspace
        )


async def begins(workspace: Autopost, delivery_id: Any, earliest: datetime | None) -> datetime | None:
    """When it really begins; looked for at the moment named and just before it, too."""
    stops = [earliest - A_BIT, earliest] if earliest else []
    found = [at for at, row in await drain(workspace, stops=stops) if row["delivery_id"] == delivery_id]
    return found[0] if found else None


async def scene(workspace: Autopost, chance: random.Random) -> Any:
    """One channel with any of the gates shut, some posts before the one that is asked about."""
    hours = [[["09:00", "12:01"]], [["12:02", "12:04"], ["15:00", "24:00"]], None, None][chance.randrange(4)]
    window = {"window_mode": "windowed", "posting_window": {"daily": hours}} if hours else {}
    await workspace.policy(
        backoff_jitter=0,
        claim_horizon=f"{chance.choice([0, 5, 60])} seconds",
        claim_per_channel=chance.choice([1, 3, 20]),
    )
    await workspace.channel(rate_rps=chance.choice([None, 0.1, 2]), max_parallel=9, **window)
    group_rate = chance.choice([None, None, 0.5])
    await set_group(workspace, rate_rps=group_rate)
    for n in range(chance.choice([0, 0, 2, 12])):
        await workspace.push(f"before {n}")
        workspace.wait(seconds=1)
    if chance.random() < 0.3:
        await workspace.claim()
    later = workspace.now + timedelta(seconds=chance.randint(5, 4000))
    scheduled = {"scheduled_for": later.isoformat()} if chance.random() < 0.3 else {}
    message = await workspace.push({"text": "asked about", **scheduled})
    (row,) = [d for d in await workspace.deliveries() if d["message_id"] == message["message_id"]]
    if chance.random() < 0.3:
        await set_channel(workspace, paused_until=workspace.now + timedelta(seconds=chance.randint(1, 300)))
    if chance.random() < 0.3:
        await set_channel(workspace, cooldown_until=workspace.now + timedelta(seconds=chance.randint(1, 300)))
    if chance.random() < 0.3:
        await set_group(workspace, cooldown_until=workspace.now + timedelta(seconds=chance.randint(1, 300)))
    await workspace.sweep()
    return row


@pytest.mark.parametrize("seed", range(40))
async def test_it_begins_exactly_when_it_was_said_to(workspace: Autopost, seed: int) -> None:
    row = await scene(workspace, random.Random(seed))
    answer = await why(workspace, row["delivery_id"])
    assert answer["earliest"] is not None
    assert await begins(workspace, row["delivery_id"], answer["earliest"]) == answer["earliest"], answer


async def test_each_gate_is_named(workspace: Autopost) -> None:
    """Over all those scenes; the others have tests of their own."""
    named: set[str] = set()
    for seed in range(25):
        other = workspace.on(workspace.connection)
        other.workspace = f"{workspace.workspace}-{seed}"
        await other.workspace_row()
        named.add((await why(other, (await scene(other, random.Random(seed)))["delivery_id"]))["gate"])
    assert named >= {"none", "paused", "cooldown", "group_cooldown", "schedule", "window", "queue"}


async def test_those_before_it_in_its_channel_are_counted(workspace: Autopost) -> None:
    await workspace.channel(rate_rps=0.5)
    for n in range(7):
        await workspace.push(f"post {n}")
        workspace.wait(milliseconds=1)
    rows = await workspace.deliveries()
    answers = [await why(workspace, row["delivery_id"]) for row in rows]
    assert [answer["ahead"] for answer in answers] == list(range(7))
    assert [answer["gate"] for answer in answers] == ["none", *["queue"] * 6]
    assert answers[3]["detail"] == "3 of channel c1 go before it, one every 00:00:02"
    assert [(answer["earliest"] - workspace.now).total_seconds() for answer in answers] == [2 * n for n in range(7)]


async def test_without_a_rate_the_places_are_what_holds_those_behind(workspace: Autopost) -> None:
    await workspace.channel(max_parallel=2)
    for n in range(5):
        await workspace.push(f"post {n}")
        workspace.wait(milliseconds=1)
    rows = await workspace.deliveries()
    gates = [((await why(workspace, row["delivery_id"]))["gate"]) for row in rows]
    assert gates == ["none", "none", "max_parallel", "max_parallel", "max_parallel"]
    last = await why(workspace, rows[4]["delivery_id"])
    assert (last["detail"], last["ahead"]) == ("4 are before it, and the channel may have 2 at once", 4)


async def test_a_queue_that_is_longer_than_the_hours_goes_on_when_they_begin_again(workspace: Autopost) -> None:
    workspace.now = clock(17, 50)
    await workspace.channel(rate_rps=1 / 60, window_mode="windowed", posting_window={"daily": [["09:00", "18:00"]]})
    for n in range(21):
        await workspace.push(f"post {n}")
        workspace.wait(milliseconds=1)
    row = (await workspace.deliveries())[-1]
    answer = await why(workspace, row["delivery_id"])
    assert answer["gate"] == "queue"
    assert clock(9, 9, day=2) < answer["earliest"] < clock(9, 12, day=2)
    assert await begins(workspace, row["delivery_id"], answer["earliest"]) == answer["earliest"]


async def test_what_only_a_person_opens_never_goes_by_itself(workspace: Autopost) -> None:
    await workspace.channel(enabled=True)
    await workspace.push("hi")
    (row,) = await workspace.deliveries()
    await set_channel(workspace, enabled=False)
    assert (await why(workspace, row["delivery_id"]))["earliest"] is None
    assert await begins(workspace, row["delivery_id"], None) is None
