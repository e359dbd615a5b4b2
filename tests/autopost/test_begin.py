"""Begin: the last look before a send. Gates once more, places, pace, the attempt, the lease, and the event before the call."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest
from psycopg import AsyncConnection

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16

# Both ways to a send keep the same promises: claim and begin as the specification has it, and in one step.
ways = pytest.mark.parametrize("way", ["claim_then_begin", "claim_and_begin"])


async def go(workspace: Autopost, way: str, limit: int = 100, run: str = "run-1") -> list[Any]:
    if way == "claim_and_begin":
        return await workspace.take(limit, run)
    await workspace.claim(limit, run)
    return await workspace.begin(limit, run)


async def backlog(workspace: Autopost, count: int) -> None:
    for n in range(count):
        await workspace.push(f"post {n}")
        workspace.wait(seconds=1)


async def group(workspace: Autopost, **columns: Any) -> None:
    for name, value in columns.items():
        await workspace.sql(
            f"insert into autopost.platform_limits (workspace_id, platform, rate_group, {name}) values (%s, 'telegram', 'bot', %s)"
            f" on conflict (workspace_id, platform, rate_group) do update set {name} = excluded.{name}",
            workspace.workspace, value,
        )  # fmt: skip


@ways
async def test_a_begin_counts_the_attempt_and_takes_a_lease(workspace: Autopost, way: str) -> None:
    await workspace.channel()
    await backlog(workspace, 1)
    (begun,) = await go(workspace, way, run="run-7")
    row = await workspace.delivery(begun["delivery_id"])
    assert (
        (row["status"], row["attempt"], row["lease"])
        == ("sending", 1, 1)
        == ("sending", begun["attempt"], begun["lease"])
    )
    assert (row["sending_started_at"], row["claimed_at"], row["claim_token"]) == (workspace.now, workspace.now, "run-7")
    assert await go(workspace, way) == [], "what is under way is not begun again"
    assert (await workspace.delivery(begun["delivery_id"]))["attempt"] == 1


@ways
async def test_the_attempt_is_on_record_before_the_call(workspace: Autopost, way: str) -> None:
    await workspace.channel()
    pushed = await workspace.push("hi")
    (begun,) = await go(workspace, way)
    (event,) = await workspace.events("send_attempt")
    assert (event["delivery_id"], event["message_id"], event["channel_id"]) == (
        begun["delivery_id"], pushed["message_id"], "c1",
    )  # fmt: skip
    assert (event["ts"], event["attempt"], event["result"]) == (workspace.now, 1, "ok")
    assert event["meta"] == {
        "trace_id": str(pushed["trace_id"]), "run_id": "run-1", "idempotency_key": str(begun["delivery_id"]),
    }  # fmt: skip


@ways
async def test_a_begin_hands_over_all_that_a_send_needs(workspace: Autopost, way: str) -> None:
    await workspace.channel(target_id="@news", auth_ref="old-bot", rate_group="g", settings={"thread": 5})
    await workspace.sql(
        "insert into autopost.channel_auth (workspace_id, channel_id, auth_ref) values (%s, 'c1', 'new-bot')",
        workspace.workspace,
    )
    pushed = await workspace.push({"text": "<b>hi</b>", "parse_mode": "HTML"})
    (begun,) = await go(workspace, way)
    row = await workspace.delivery(begun["delivery_id"])
    assert begun == {
        "delivery_id": row["delivery_id"], "lease": 1, "attempt": 1, "message_id": pushed["message_id"],
        "trace_id": pushed["trace_id"], "channel_id": "c1", "platform": "telegram", "target_id": "@news",
        "auth_ref": "new-bot", "rate_group": "g", "settings": {"thread": 5}, "rendered_text": "<b>hi</b>",
        "render_meta": row["render_meta"], "payload": {"type": "text", "text": "<b>hi</b>", "parse_mode": "HTML"},
    }  # fmt: skip


async def test_without_a_row_in_channel_auth_the_channels_own_credential_counts(workspace: Autopost) -> None:
    await workspace.channel(auth_ref="own")
    await workspace.push("hi")
    assert (await workspace.take())[0]["auth_ref"] == "own"


GATES = {
    "disabled": ("update autopost.channels set enabled = %s where workspace_id = %s", False, True),
    "paused": ("update autopost.channels set paused_until = %s where workspace_id = %s", "infinity", None),
    "cooldown": ("update autopost.channels set cooldown_until = %s where workspace_id = %s", "infinity", None),
    "group": ("update autopost.platform_limits set cooldown_until = %s where workspace_id = %s", "infinity", None),
    "workspace": ("update core.workspaces set status = %s where workspace_id = %s", "disabled", "active"),
}


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("rate", [None, 1])
async def test_every_gate_is_looked_at_again(workspace: Autopost, gate: str, rate: float | None) -> None:
    """It was open when the delivery was claimed."""
    query, closed, opened = GATES[gate]
    await workspace.channel(rate_rps=rate)
    await backlog(workspace, 1)
    assert len(await workspace.claim()) == 1
    await workspace.sql(query, closed, workspace.workspace)
    assert await workspace.begin() == await workspace.take() == []
    (row,) = await workspace.deliveries()
    assert (row["status"], row["attempt"]) == ("claimed", 0)
    await workspace.sql(query, opened, workspace.workspace)
    assert len(await workspace.begin()) == 1


async def test_a_gate_closed_for_one_channel_leaves_the_others_open(workspace: Autopost) -> None:
    await workspace.channel("c1")
    await workspace.channel("c2")
    await workspace.push("hi")
    await workspace.claim()
    await workspace.sql("update autopost.channels set enabled = false where workspace_id = %s and channel_id = 'c1'",
                        workspace.workspace)  # fmt: skip
    assert [row["channel_id"] for row in await workspace.begin()] == ["c2"]


async def test_a_send_begins_when_its_slot_has_come_and_not_before(workspace: Autopost) -> None:
    await workspace.channel(rate_rps=0.5)
    await backlog(workspace, 2)
    assert len(await workspace.claim()) == 2
    assert [row["rendered_text"] for row in await workspace.begin()] == ["post 0"]
    await workspace.settle(*[{"delivery_id": str(row["delivery_id"])} for row in await workspace.deliveries("sending")])
    workspace.wait(seconds=2, microseconds=-1)
    assert await workspace.begin() == []
    workspace.wait(microseconds=1)
    assert [row["rendered_text"] for row in await workspace.begin()] == ["post 1"]


@ways
async def test_a_channel_never_has_more_sends_than_places(workspace: Autopost, way: str) -> None:
    await workspace.channel("c1", max_parallel=3)
    await workspace.channel("c2", max_parallel=1)
    await backlog(workspace, 5)
    first = await go(workspace, way)
    assert sorted(row["channel_id"] for row in first) == ["c1"] * 3 + ["c2"]
    assert await go(workspace, way) == []
    done = next(row for row in first if row["channel_id"] == "c1")
    await workspace.sent(done["delivery_id"], done["lease"])
    assert [row["channel_id"] for row in await go(workspace, way)] == ["c1"], "a place is free again"
    assert (await workspace.statuses())["sending"] == 4


@ways
async def test_places_are_not_taken_by_rows_of_other_channels_or_by_claims(workspace: Autopost, way: str) -> None:
    for n in range(4):
        await workspace.channel(f"c{n}")
    await backlog(workspace, 2)
    await workspace.claim(limit=4)
    assert sorted(row["channel_id"] for row in await go(workspace, way)) == ["c0", "c1", "c2", "c3"]


@ways
async def test_a_call_begins_no_more_than_its_limit_the_oldest_first(workspace: Autopost, way: str) -> None:
    await workspace.channel(max_parallel=10)
    await backlog(workspace, 6)
    found = [[row["rendered_text"] for row in await go(workspace, way, limit)] for limit in (2, 0, 3, 100)]
    assert found == [["post 0", "post 1"], [], ["post 2", "post 3", "post 4"], ["post 5"]]


async def test_a_limit_that_does_not_divide_is_one_too(workspace: Autopost) -> None:
    for n in range(3):
        await workspace.channel(f"c{n}", max_parallel=10)
    await backlog(workspace, 5)
    assert [len(await workspace.take(limit)) for limit in (4, 1, 2, 100)] == [4, 1, 2, 8]


async def test_without_a_time_the_calls_of_the_specification_go_by_the_clock(workspace: Autopost) -> None:
    workspace.now = datetime.now(UTC)
    await workspace.channel()
    await workspace.push("hi")
    (claimed,) = await workspace.sql("select * from claim_deliveries(%s, 'run', 10)", workspace.workspace)
    (begun,) = await workspace.sql("select * from begin_sending(%s, 'run', 10)", workspace.workspace)
    assert claimed["delivery_id"] == begun["delivery_id"]
    row = await workspace.delivery(begun["delivery_id"])
    assert workspace.now <= row["claimed_at"] <= row["sending_started_at"] <= datetime.now(UTC)


async def test_any_run_may_begin_what_another_one_claimed(workspace: Autopost) -> None:
    await workspace.channel()
    await workspace.push("hi")
    await workspace.claim(run="died")
    (begun,) = await workspace.begin(run="lives")
    assert (await workspace.delivery(begun["delivery_id"]))["claim_token"] == "lives"


@ways
async def test_every_begin_has_a_newer_lease_and_a_lost_one_is_remembered(workspace: Autopost, way: str) -> None:
    await workspace.channel()
    await workspace.push("hi")
    found = []
    for end in ("settled", "swept", "settled"):
        (begun,) = await go(workspace, way)
        row = await workspace.delivery(begun["delivery_id"])
        found.append((row["attempt"], row["lease"], row["settled_lease"], row["lost_leases"]))
        if end == "settled":
            await workspace.retry(begun["delivery_id"], lease=begun["lease"])
        else:
            workspace.wait(seconds=301)
            assert (await workspace.sweep())[0] == 1
        workspace.wait(minutes=10)
    assert found == [(1, 1, 0, 0), (2, 2, 1, 0), (3, 3, 1, 1)]


@ways
async def test_a_row_held_by_somebody_else_is_passed_over(workspace: Autopost, worker_database: str, way: str) -> None:
    await workspace.channel(max_parallel=3)
    await backlog(workspace, 3)
    if way == "claim_then_begin":
        await workspace.claim()
    first = (await workspace.deliveries())[0]["delivery_id"]
    async with await AsyncConnection.connect(worker_database) as holder:
        await holder.execute("select 1 from autopost.deliveries where delivery_id = %s for no key update", (first,))
        await workspace.sql("set lock_timeout = '2s'")
        begun = await go(workspace, way)
        assert first not in [row["delivery_id"] for row in begun] != []
    assert first in [row["delivery_id"] for row in await go(workspace, way)]


# Pace


def fastest(begins: list[datetime], rate: float) -> float:
    """By how much the busiest window goes beyond rate * window + 1; a microsecond per step is rounding."""
    ordered = sorted(begins)
    return max(
        j - i + 1 - (rate * (ordered[j] - ordered[i]).total_seconds() + 1)
        for i, j in combinations(range(len(ordered)), 2)
    )


@pytest.mark.parametrize(
    ("ceiling", "rates"),
    [(None, {"slow": 1, "quick": 4}), (5, {"slow": 1, "quick": 4, "free": None})],
    ids=["own", "shared"],
)
@ways
async def test_begins_keep_the_pace_in_every_window(
    workspace: Autopost, way: str, ceiling: float | None, rates: dict[str, float | None]
) -> None:
    """Called at odd moments, with a long silence in between that must not turn into a burst."""
    await group(workspace, rate_rps=ceiling)
    for channel_id, rate in rates.items():
        await workspace.channel(channel_id, rate_rps=rate, max_parallel=3)
    await backlog(workspace, 60)
    chance, begins = random.Random(7), {channel_id: list[datetime]() for channel_id in rates}
    for n in range(90):
        for row in await go(workspace, way):
            begins[row["channel_id"]].append(workspace.now)
            await workspace.sent(row["delivery_id"], row["lease"])
        workspace.wait(seconds=30 if n == 50 else chance.uniform(0, 0.25))
    assert all(fastest(begins[channel_id], rate) < 0.001 for channel_id, rate in rates.items() if rate)
    together = [moment for channel in begins.values() for moment in channel]
    assert ceiling is None or fastest(together, ceiling) < 0.001
    assert len(together) > 25, "and the pace is used"


async def test_a_step_that_is_no_whole_microsecond_is_rounded_up(workspace: Autopost) -> None:
    """Four begins at three a second do not fit into 0.999999 s."""
    await workspace.channel(rate_rps=3, max_parallel=9)
    for n in range(2):
        await workspace.push(f"post {n}")
    assert len(await workspace.take()) == 1
    workspace.wait(microseconds=333_333)
    assert await workspace.take() == []
    workspace.wait(microseconds=1)
    assert len(await workspace.take()) == 1


async def test_claims_that_fell_behind_go_out_one_by_one(workspace: Autopost) -> None:
    """Twenty slots of a channel lie in the past: next_allowed_at is no gate, the begin is."""
    await workspace.channel(rate_rps=1, max_parallel=20)
    await workspace.policy(claim_horizon="1 minute")
    await backlog(workspace, 20)
    assert len(await workspace.claim()) == 20
    workspace.wait(minutes=5)
    begun = []
    for _ in range(30):
        begun.append(len(await workspace.begin()))
        workspace.wait(milliseconds=250)
    assert begun == [1, 0, 0, 0] * 7 + [1, 0]


@ways
async def test_channels_of_one_group_take_turns_at_its_pace(workspace: Autopost, way: str) -> None:
    await group(workspace, rate_rps=2)
    for n in range(3):
        await workspace.channel(f"c{n}")
    await workspace.push("hi")
    begun = []
    for _ in range(12):
        begun.append([row["channel_id"] for row in await go(workspace, way)])
        workspace.wait(milliseconds=125)
    assert [len(rows) for rows in begun] == [1, 0, 0, 0] * 3
    assert sorted(channel_id for rows in begun for channel_id in rows) == ["c0", "c1", "c2"]


async def test_a_channel_that_gets_a_rate_between_claim_and_begin_keeps_it(workspace: Autopost) -> None:
    await workspace.channel(max_parallel=5)
    await backlog(workspace, 5)
    assert len(await workspace.claim()) == 5
    await workspace.sql("update autopost.channels set rate_rps = 1 where workspace_id = %s", workspace.workspace)
    assert [len(await workspace.begin()) for _ in range(2)] == [1, 0]


async def test_paced_and_free_channels_go_out_in_one_call(workspace: Autopost) -> None:
    await workspace.channel("free", rate_group="other", max_parallel=2)
    await workspace.channel("paced", rate_rps=1, max_parallel=2)
    await backlog(workspace, 3)
    assert sorted(row["channel_id"] for row in await workspace.take()) == ["free", "free", "paced"]
    assert await workspace.statuses() == {"sending": 3, "claimed": 2, "queued": 1}


# How long to sleep


async def next_begin(workspace: Autopost) -> timedelta | None:
    at = await workspace.value("select autopost.next_begin_at(%s)", workspace.workspace)
    return at and at - workspace.now


async def test_the_next_begin_is_known(workspace: Autopost) -> None:
    await workspace.channel(rate_rps=0.5)
    assert await next_begin(workspace) is None
    await backlog(workspace, 3)
    await workspace.claim()
    assert await next_begin(workspace) == timedelta(0)
    (row,) = await workspace.begin()
    assert await next_begin(workspace) is None, "no place is free: the answer of the send will wake"
    await workspace.sent(row["delivery_id"], row["lease"])
    assert await next_begin(workspace) == timedelta(seconds=2)
    await workspace.sql("update autopost.channels set cooldown_until = %s where workspace_id = %s",
                        workspace.now + timedelta(seconds=9), workspace.workspace)  # fmt: skip
    assert await next_begin(workspace) == timedelta(seconds=9)
    await workspace.sql("update autopost.channels set enabled = false where workspace_id = %s", workspace.workspace)
    assert await next_begin(workspace) is None


async def test_a_claim_that_only_a_person_can_free_has_no_next_begin(workspace: Autopost) -> None:
    """Paused for ever is no moment to wake at, and no client could read it as one."""
    await workspace.channel("c1", rate_rps=0.1)
    await workspace.channel("c2", rate_rps=0.1)
    await workspace.push("hi")
    await workspace.claim()
    pause = "update autopost.channels set paused_until = 'infinity' where workspace_id = %s and channel_id = %s"
    await workspace.sql(pause, workspace.workspace, "c1")
    assert await next_begin(workspace) == timedelta(0)
    await workspace.sql(pause, workspace.workspace, "c2")
    assert await next_begin(workspace) is None


async def test_the_next_begin_of_many_channels_is_the_earliest(workspace: Autopost) -> None:
    for n, rate in enumerate((0.2, 0.5, 0.25)):
        await workspace.channel(f"c{n}", rate_rps=rate)
    await backlog(workspace, 2)
    await workspace.claim()
    for row in await workspace.begin():
        await workspace.sent(row["delivery_id"], row["lease"])
    assert await next_begin(workspace) == timedelta(seconds=2)
