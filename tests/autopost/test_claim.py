"""Allocate: slots by the formula, within a horizon, in turn; nothing from behind a closed gate."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from psycopg import AsyncConnection

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16


async def backlog(workspace: Autopost, count: int, **channels: dict[str, Any]) -> None:
    """Channels with the same ``count`` posts, a second apart; then the clock stands after them."""
    for channel_id, columns in channels.items():
        await workspace.channel(channel_id, **columns)
    for n in range(count):
        await workspace.push(f"post {n}")
        workspace.wait(seconds=1)


def seconds(workspace: Autopost, rows: list[Any]) -> list[float]:
    return [(row["not_before"] - workspace.now).total_seconds() for row in rows]


async def slots(workspace: Autopost, **call: Any) -> list[float]:
    rows = await workspace.claim(**call)
    return seconds(workspace, sorted(rows, key=lambda row: row["not_before"]))


async def texts(workspace: Autopost, rows: list[Any]) -> list[str]:
    order = {row["delivery_id"]: row["rendered_text"] for row in await workspace.deliveries()}
    return [order[row["delivery_id"]] for row in rows]


async def test_a_claim_is_marked_and_counts_no_attempt(workspace: Autopost) -> None:
    await backlog(workspace, 1, c1={})
    (claimed,) = await workspace.claim(run="run-7")
    row = await workspace.delivery(claimed["delivery_id"])
    assert (row["status"], row["claim_token"], row["claimed_at"]) == ("claimed", "run-7", workspace.now)
    assert (row["attempt"], row["lease"], row["not_before"]) == (0, 0, workspace.now)
    assert await workspace.claim() == [], "and is not given out again"


async def test_slots_are_a_step_apart_and_move_the_cursor_by_what_was_given(workspace: Autopost) -> None:
    await backlog(workspace, 5, c1={"rate_rps": 2})
    assert await slots(workspace, limit=3) == [0, 0.5, 1]
    assert (await workspace.channel_row())["next_allowed_at"] == workspace.now + timedelta(seconds=1.5)
    assert await slots(workspace) == [1.5, 2], "the next ones begin where the cursor stands"
    assert (await workspace.channel_row())["next_allowed_at"] == workspace.now + timedelta(seconds=2.5)


async def test_a_cursor_in_the_past_begins_now(workspace: Autopost) -> None:
    await backlog(workspace, 2, c1={"rate_rps": 1, "next_allowed_at": workspace.now - timedelta(days=1)})
    assert await slots(workspace) == [0, 1]
    assert (await workspace.channel_row())["next_allowed_at"] == workspace.now + timedelta(seconds=2)


@pytest.mark.parametrize("rate", [None, 0])
async def test_without_a_rate_there_are_no_slots_and_no_cursor(workspace: Autopost, rate: float | None) -> None:
    await backlog(workspace, 4, c1={"rate_rps": rate})
    assert await slots(workspace) == [0, 0, 0, 0]
    assert (await workspace.channel_row())["next_allowed_at"] is None


async def test_only_slots_within_the_horizon_are_given_out(workspace: Autopost) -> None:
    await backlog(workspace, 10, c1={"rate_rps": 1})
    assert await slots(workspace) == [0, 1, 2, 3, 4, 5]
    assert await slots(workspace) == []
    workspace.wait(seconds=1)
    assert await slots(workspace) == [5]


async def test_within_the_horizon_also_where_the_group_would_give_more(workspace: Autopost) -> None:
    await backlog(workspace, 10, c1={"rate_rps": 1})
    await workspace.sql(
        "insert into autopost.platform_limits (workspace_id, platform, rate_group, rate_rps) values (%s, 'telegram', 'bot', 100)",
        workspace.workspace,
    )
    assert await slots(workspace) == [0, 1, 2, 3, 4, 5]


async def test_a_channel_has_at_most_so_many_claims(workspace: Autopost) -> None:
    await workspace.policy(claim_per_channel=3)
    await backlog(workspace, 8, c1={})
    assert [len(await workspace.claim()) for _ in range(2)] == [3, 0]
    (row,) = await workspace.begin()
    await workspace.sent(row["delivery_id"], row["lease"])
    assert len(await workspace.claim()) == 1, "its place is free again"


async def group(workspace: Autopost, **columns: Any) -> Any:
    """The row of the group "bot", with ``columns`` set."""
    await workspace.sql(
        "insert into autopost.platform_limits (workspace_id, platform, rate_group) values (%s, 'telegram', 'bot')"
        " on conflict do nothing",
        workspace.workspace,
    )
    for name, value in columns.items():
        await workspace.sql(
            f"update autopost.platform_limits set {name} = %s where workspace_id = %s", value, workspace.workspace
        )
    return (await workspace.sql("select * from autopost.platform_limits where workspace_id = %s", workspace.workspace))[
        0
    ]


async def test_a_slot_is_the_later_of_the_channels_and_the_groups(workspace: Autopost) -> None:
    await group(workspace, rate_rps=2)
    await backlog(workspace, 2, c1={"rate_rps": 1}, c2={"rate_rps": 10})
    rows = sorted(await workspace.claim(), key=lambda row: (row["channel_id"], row["not_before"]))
    by_channel = {c: seconds(workspace, [row for row in rows if row["channel_id"] == c]) for c in ("c1", "c2")}
    # Slots of the channels: c1 0, 1; c2 0, 0.1. The group's, in their order: 0, 0.5, 1, 1.5.
    assert by_channel == {"c1": [0, 1.5], "c2": [0.5, 1]}
    assert (await group(workspace))["next_allowed_at"] == workspace.now + timedelta(seconds=2)
    cursors = [(await workspace.channel_row(c))["next_allowed_at"] - workspace.now for c in ("c1", "c2")]
    assert cursors == [timedelta(seconds=2), timedelta(seconds=0.2)]


async def test_a_group_keeps_its_ceiling_also_for_channels_without_a_rate(workspace: Autopost) -> None:
    await group(workspace, rate_rps=1)
    await backlog(workspace, 4, c1={}, c2={})
    assert await slots(workspace) == [0, 1, 2, 3, 4, 5]
    assert (await workspace.channel_row())["next_allowed_at"] is None
    assert (await group(workspace))["next_allowed_at"] == workspace.now + timedelta(seconds=6)


async def test_the_slots_of_a_group_go_on_where_the_last_call_stopped(workspace: Autopost) -> None:
    await backlog(workspace, 2, a={}, b={})
    await workspace.sql(
        "insert into autopost.platform_limits (workspace_id, platform, rate_group, rate_rps) values (%s, 'telegram', 'bot', 1)",
        workspace.workspace,
    )
    claims = [sorted(row["not_before"] for row in await workspace.claim(limit=2)) for _ in range(2)]
    assert [(at - workspace.now).total_seconds() for at in claims[0] + claims[1]] == [0, 1, 2, 3]


async def test_groups_and_platforms_are_apart(workspace: Autopost) -> None:
    await group(workspace, rate_rps=1)
    await backlog(workspace, 2, c1={}, c2={"rate_group": "other"}, c3={"platform": "max"})
    rows = await workspace.claim()
    found = {c: sorted(seconds(workspace, [r for r in rows if r["channel_id"] == c])) for c in ("c1", "c2", "c3")}
    assert found == {"c1": [0, 1], "c2": [0, 0], "c3": [0, 0]}


@pytest.mark.parametrize("rate", [None, 0])
async def test_a_group_without_a_rate_has_no_ceiling_and_no_cursor(workspace: Autopost, rate: float | None) -> None:
    await group(workspace, rate_rps=rate)
    await backlog(workspace, 3, c1={}, c2={"rate_rps": 1})
    assert await slots(workspace) == [0, 0, 0, 0, 1, 2]
    assert (await group(workspace))["next_allowed_at"] is None


async def test_a_group_gets_its_row_with_its_first_channel(workspace: Autopost) -> None:
    await backlog(workspace, 1, c1={"rate_group": "fresh"})
    await workspace.claim()
    rows = await workspace.sql("select * from autopost.platform_limits where workspace_id = %s", workspace.workspace)
    assert [(row["platform"], row["rate_group"], row["rate_rps"]) for row in rows] == [("telegram", "fresh", None)]


GATES = {
    "disabled": ("update autopost.channels set enabled = %s where workspace_id = %s", False, True),
    "paused": ("update autopost.channels set paused_until = %s where workspace_id = %s", "2027-03-02 12:00Z", None),
    "cooldown": ("update autopost.channels set cooldown_until = %s where workspace_id = %s", "2027-03-02 12:00Z", None),
    "group": (
        "update autopost.platform_limits set cooldown_until = %s where workspace_id = %s",
        "2027-03-02 12:00Z",
        None,
    ),
    "workspace": ("update core.workspaces set status = %s where workspace_id = %s", "paused", "active"),
}


@pytest.mark.parametrize("gate", GATES)
async def test_nothing_is_claimed_behind_a_closed_gate(workspace: Autopost, gate: str) -> None:
    query, closed, opened = GATES[gate]
    await group(workspace)
    await backlog(workspace, 1, c1={})
    await workspace.sql(query, closed, workspace.workspace)
    assert await workspace.claim() == await workspace.take() == []
    assert await workspace.statuses() == {"queued": 1}
    await workspace.sql(query, opened, workspace.workspace)
    assert len(await workspace.claim()) == 1


@pytest.mark.parametrize("gate", ["paused", "cooldown", "group"])
async def test_a_gate_with_a_time_opens_by_itself(workspace: Autopost, gate: str) -> None:
    query, until, _ = GATES[gate]
    await group(workspace)
    await backlog(workspace, 1, c1={})
    await workspace.sql(query, until, workspace.workspace)
    workspace.now = workspace.now.replace(day=2, hour=11, minute=59, second=59, microsecond=999999)
    assert await workspace.claim() == []
    workspace.wait(microseconds=1)
    assert len(await workspace.claim()) == 1


async def test_one_closed_channel_does_not_hold_up_the_others(workspace: Autopost) -> None:
    await backlog(workspace, 3, bad={"enabled": True}, good={})
    await workspace.sql("update autopost.channels set paused_until = 'infinity' where workspace_id = %s and channel_id = 'bad'",
                        workspace.workspace)  # fmt: skip
    assert Counter(row["channel_id"] for row in await workspace.claim()) == {"good": 3}


@pytest.mark.parametrize("call", ["claim", "take"])
async def test_closed_channels_use_up_no_turn(workspace: Autopost, call: str) -> None:
    await backlog(workspace, 1, **{f"c{n}": {} for n in range(9)}, z={})
    await workspace.sql("update autopost.channels set paused_until = 'infinity' where workspace_id = %s and channel_id <> 'z'",
                        workspace.workspace)  # fmt: skip
    assert [row["channel_id"] for row in await getattr(workspace, call)(limit=1)] == ["z"]


async def test_a_retry_is_claimed_when_it_is_due_and_not_before(workspace: Autopost) -> None:
    await backlog(workspace, 1, c1={})
    (row,) = await workspace.take()
    await workspace.retry(row["delivery_id"], lease=row["lease"], at=workspace.now + timedelta(seconds=30))
    workspace.wait(seconds=30, microseconds=-1)
    assert await workspace.claim() == await workspace.take() == []
    workspace.wait(microseconds=1)
    assert [claim["delivery_id"] for claim in await workspace.claim()] == [row["delivery_id"]]
    assert (await workspace.delivery(row["delivery_id"]))["next_retry_at"] is None


async def test_a_retry_that_waits_does_not_hold_its_channel(workspace: Autopost) -> None:
    await backlog(workspace, 2, c1={})
    (row,) = await workspace.take(limit=1)
    await workspace.retry(row["delivery_id"], lease=row["lease"], at=workspace.now + timedelta(hours=1))
    assert await texts(workspace, await workspace.claim()) == ["post 1"]


@pytest.mark.parametrize("call", ["claim", "take"])
async def test_a_retry_that_was_moved_to_later_is_left_alone_among_others(workspace: Autopost, call: str) -> None:
    await backlog(workspace, 2, c1={})
    (row,) = await workspace.take(limit=1)
    await workspace.retry(row["delivery_id"], lease=row["lease"], at=workspace.now)
    await workspace.sql("update autopost.deliveries set not_before = %s where delivery_id = %s",
                        workspace.now + timedelta(minutes=1), row["delivery_id"])  # fmt: skip
    assert await texts(workspace, await getattr(workspace, call)()) == ["post 1"]
    workspace.wait(minutes=1)
    assert await texts(workspace, await workspace.claim()) == ["post 0"]


async def test_what_is_scheduled_for_later_is_left_alone(workspace: Autopost) -> None:
    await backlog(workspace, 1, c1={})
    await workspace.sql("update autopost.deliveries set not_before = %s where workspace_id = %s",
                        workspace.now + timedelta(minutes=1), workspace.workspace)  # fmt: skip
    assert await workspace.claim() == await workspace.take() == []
    workspace.wait(minutes=1)
    assert len(await workspace.claim()) == 1


async def test_a_channels_posts_keep_their_order(workspace: Autopost) -> None:
    await backlog(workspace, 6, c1={"rate_rps": 1})
    rows = sorted(await workspace.claim(limit=4), key=lambda row: row["not_before"])
    assert await texts(workspace, rows) == ["post 0", "post 1", "post 2", "post 3"]


async def test_posts_of_one_batch_keep_their_order(workspace: Autopost) -> None:
    await workspace.policy(claim_per_channel=1)
    await workspace.channel()
    await workspace.push_batch(*[{"text": f"post {n}"} for n in range(5)])
    order = []
    for _ in range(5):
        (row,) = await workspace.take()
        await workspace.sent(row["delivery_id"], row["lease"])
        order.append(row["rendered_text"])
    assert order == [f"post {n}" for n in range(5)]


async def test_a_claim_that_was_given_back_keeps_its_place_also_within_a_batch(workspace: Autopost) -> None:
    await workspace.policy(claim_per_channel=1)
    await workspace.channel()
    await workspace.push_batch(*[{"text": f"post {n}"} for n in range(3)])
    assert await texts(workspace, await workspace.claim()) == ["post 0"]
    await workspace.sql("select autopost.release_claims(%s, '{c1}', 'test', %s)", workspace.workspace, workspace.now)
    assert await texts(workspace, await workspace.claim()) == ["post 0"]


async def test_the_older_post_goes_first_whether_it_is_new_or_a_retry(workspace: Autopost) -> None:
    await backlog(workspace, 3, c1={})
    (row,) = await workspace.take(limit=1)
    await workspace.retry(row["delivery_id"], lease=row["lease"], at=workspace.now)
    assert await texts(workspace, await workspace.claim(limit=1)) == ["post 0"]
    assert await texts(workspace, await workspace.claim(limit=1)) == ["post 1"]


async def test_a_call_claims_no_more_than_its_limit(workspace: Autopost) -> None:
    await backlog(workspace, 4, **{f"c{n}": {} for n in range(3)})
    assert [len(await workspace.claim(limit=limit)) for limit in (5, 0, 6, 100)] == [5, 0, 6, 1]
    assert await workspace.claim() == []


async def test_a_limit_is_shared_among_the_channels(workspace: Autopost) -> None:
    await backlog(workspace, 10, a={}, b={}, c={})
    assert Counter(row["channel_id"] for row in await workspace.claim(limit=6)) == {"a": 2, "b": 2, "c": 2}


async def test_a_limit_that_does_not_divide_leaves_no_channel_out(workspace: Autopost) -> None:
    await backlog(workspace, 10, a={}, b={}, c={})
    assert Counter(row["channel_id"] for row in await workspace.claim(limit=4)) == {"a": 2, "b": 1, "c": 1}


@pytest.mark.parametrize("call", ["claim", "take"])
async def test_every_channel_gets_its_turn_however_many_there_are(workspace: Autopost, call: str) -> None:
    """Also where the planner would rather read the channels in the order in which they happen to lie."""
    names = [f"c{n:02}" for n in range(40)]
    # Stored backwards, so that an order that nobody asked for is the wrong one.
    await backlog(workspace, 6, **{name: {"rate_rps": 1, "max_parallel": 9} for name in reversed(names)})
    await workspace.sql("analyze autopost.channels, autopost.deliveries")
    served: Counter[str] = Counter()
    for _ in range(10):
        rows = await getattr(workspace, call)(limit=4)
        served.update(row["channel_id"] for row in rows)
        workspace.wait(milliseconds=10)
    assert len(served) == 40 and set(served.values()) == {1}, "ten rounds of four: everybody once"


async def test_the_turn_goes_round(workspace: Autopost) -> None:
    await backlog(workspace, 9, **{f"c{n}": {} for n in range(5)})
    rounds = [[row["channel_id"] for row in await workspace.claim(limit=2)] for _ in range(5)]
    assert [sorted(r) for r in rounds] == [["c0", "c1"], ["c2", "c3"], ["c0", "c4"], ["c1", "c2"], ["c3", "c4"]]


async def test_a_locked_row_is_passed_over(workspace: Autopost, worker_database: str) -> None:
    await backlog(workspace, 3, c1={})
    first, *others = [row["delivery_id"] for row in await workspace.deliveries()]
    async with await AsyncConnection.connect(worker_database) as holder:
        await holder.execute("select 1 from autopost.deliveries where delivery_id = %s for no key update", (first,))
        await workspace.sql("set lock_timeout = '2s'")
        assert [row["delivery_id"] for row in await workspace.claim()] == others
    assert [row["delivery_id"] for row in await workspace.claim()] == [first]


async def test_an_empty_queue_and_an_unknown_workspace_give_nothing(workspace: Autopost) -> None:
    await workspace.channel()
    assert await workspace.claim() == []
    workspace.workspace += "x"
    assert await workspace.claim() == await workspace.begin() == await workspace.take() == []


async def test_other_workspaces_are_left_alone(workspace: Autopost) -> None:
    neighbour = type(workspace)(workspace.connection, workspace.workspace + "x")
    await neighbour.workspace_row()
    for one in (workspace, neighbour):
        await backlog(one, 2, c1={})
    neighbour.now = workspace.now
    assert len(await workspace.claim()) == 2
    assert await neighbour.statuses() == {"queued": 2}
