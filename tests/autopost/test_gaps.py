"""Two posts of one channel that come too close to each other: said at the push, and on demand."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from planned import OFFICE, cancel, clock, move, post, push_at

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16

HALF = timedelta(minutes=30)


async def pairs(workspace: Autopost, gap: timedelta | None = None) -> list[tuple[str, datetime, datetime]]:
    rows: list[dict[str, Any]] = await workspace.sql(
        "select * from autopost.schedule_conflicts(%s, %s, %s)", workspace.workspace, gap, workspace.now
    )
    for row in rows:
        assert row["gap"] == row["second_at"] - row["first_at"] < row["minimum"]
    return [(row["channel_id"], row["first_at"], row["second_at"]) for row in rows]


async def warnings(workspace: Autopost, text: str, at: datetime | None = None) -> list[str]:
    found: list[str] = (await workspace.push(post(text, at)))["warnings"]
    return found


async def test_without_a_minimum_nothing_is_too_close(workspace: Autopost) -> None:
    await workspace.channel()
    assert await warnings(workspace, "a", clock(15)) == []
    assert await warnings(workspace, "b", clock(15)) == []
    assert await pairs(workspace) == []


async def test_the_channels_own_minimum_comes_before_the_workspaces(workspace: Autopost) -> None:
    await workspace.policy(min_gap=timedelta(hours=2))
    await workspace.channel("usual")
    await workspace.channel("dense", min_gap=timedelta(minutes=5))
    await warnings(workspace, "a", clock(15))
    assert await warnings(workspace, "b", clock(16)) == [
        "closer to another post than the channel's minimum gap: usual (01:00:00 apart, at least 02:00:00)"
    ]
    assert await pairs(workspace) == [("usual", clock(15), clock(16))]


async def test_exactly_the_minimum_is_enough(workspace: Autopost) -> None:
    await workspace.channel(min_gap=HALF)
    await warnings(workspace, "a", clock(15))
    assert await warnings(workspace, "b", clock(15, 30)) == []
    assert await pairs(workspace) == []
    assert len(await warnings(workspace, "c", clock(15, 1))) == 1
    assert await pairs(workspace) == [
        ("c1", clock(15), clock(15, 1)), ("c1", clock(15, 1), clock(15, 30)),
    ]  # fmt: skip


async def test_it_is_said_whichever_comes_first(workspace: Autopost) -> None:
    await workspace.channel(min_gap=HALF)
    await warnings(workspace, "the later one", clock(15, 10))
    assert len(await warnings(workspace, "the earlier one", clock(15))) == 1


async def test_a_post_that_has_just_gone_counts(workspace: Autopost) -> None:
    await workspace.channel(min_gap=HALF)
    await workspace.push("gone")
    (row,) = await workspace.take()
    await workspace.sent(row["delivery_id"], row["lease"])
    gone = workspace.now
    workspace.wait(minutes=10)
    assert await warnings(workspace, "next", clock(12, 20)) == [
        "closer to another post than the channel's minimum gap: c1 (00:20:00 apart, at least 00:30:00)"
    ]
    assert await pairs(workspace) == [("c1", gone, clock(12, 20))]
    workspace.wait(minutes=20)
    assert await warnings(workspace, "after next", clock(13)) == []


async def test_posts_that_wait_for_the_same_opening_are_too_close(workspace: Autopost) -> None:
    await workspace.channel(min_gap=HALF, window_mode="windowed", posting_window=OFFICE)
    workspace.now = clock(20)
    assert await warnings(workspace, "a") == []
    workspace.wait(hours=5)
    assert len(await warnings(workspace, "b")) == 1
    opens = clock(9, day=2)
    assert await pairs(workspace) == [("c1", opens, opens)]


async def test_a_claim_that_the_window_sent_back_counts_at_the_next_opening(workspace: Autopost) -> None:
    await workspace.channel(min_gap=HALF, window_mode="windowed", posting_window=OFFICE, rate_rps=0.5)
    workspace.now = clock(17, 59).replace(second=58)
    await workspace.push("a")
    await workspace.claim()
    workspace.now = clock(18)
    await workspace.sweep()
    workspace.wait(minutes=45)
    assert await warnings(workspace, "at once", None) != []
    opens = clock(9, day=2)
    assert await pairs(workspace) == [("c1", opens, opens)]


async def test_moving_or_cancelling_one_of_them_ends_the_conflict(workspace: Autopost) -> None:
    await workspace.channel(min_gap=HALF)
    await warnings(workspace, "a", clock(15))
    second = await push_at(workspace, "b", clock(15, 10))
    assert len(await pairs(workspace)) == 1
    await move(workspace, second, clock(16))
    assert await pairs(workspace) == []
    await move(workspace, second, clock(15, 10))
    await cancel(workspace, second)
    assert await pairs(workspace) == []


async def test_other_channels_and_what_is_held_do_not_matter(workspace: Autopost) -> None:
    await workspace.channel("held", min_gap=HALF, on_unknown="hold", route_filter={"include_any": ["held"]})
    await workspace.channel("free", min_gap=HALF, route_filter={"include_any": ["free"]})
    await workspace.push(post("unknown", tags=["held"]))
    await workspace.take()
    workspace.wait(seconds=301)
    await workspace.sweep()
    assert (await workspace.push(post("a", tags=["held"])))["warnings"] == []
    assert (await workspace.push(post("b", tags=["free"])))["warnings"] == []
    assert await pairs(workspace) == []


async def test_a_minimum_may_be_asked_for_that_no_channel_has(workspace: Autopost) -> None:
    await workspace.channel()
    await warnings(workspace, "a", clock(15))
    await warnings(workspace, "b", clock(15, 10))
    assert await pairs(workspace, timedelta(minutes=10)) == []
    assert await pairs(workspace, timedelta(minutes=11)) == [("c1", clock(15), clock(15, 10))]


async def test_both_are_told_of_one_call_that_brings_two(workspace: Autopost) -> None:
    await workspace.channel(min_gap=HALF)
    answers = await workspace.push_batch(post("a", clock(15)), post("b", clock(15, 10)))
    assert [len(answer["warnings"]) for answer in answers] == [1, 1]


async def test_a_conflict_is_told_and_not_prevented(workspace: Autopost) -> None:
    await workspace.channel(min_gap=HALF, max_parallel=2)
    for text in ("a", "b"):
        await workspace.push(text)
    assert len(await workspace.take()) == 2
