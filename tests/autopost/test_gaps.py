"""Two posts of one channel that come too close to each other: said at the push, and on demand."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from planned import OFFICE, cancel, clock, move, post, push_at
from psycopg.types.json import Jsonb

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


async def test_what_waits_for_its_files_counts_from_its_schedule_on(workspace: Autopost) -> None:
    await workspace.channel(min_gap=HALF, window_mode="windowed", posting_window=OFFICE)
    picture = [{"type": "image", "url": "https://e.org/a.png"}]
    await workspace.push(post("with a picture", clock(20), media=picture))
    assert len(await warnings(workspace, "at the opening", clock(9, 10, day=2))) == 1
    assert len((await workspace.push(post("another", clock(9, 20, day=2), media=picture)))["warnings"]) == 1


async def test_a_retry_counts_at_the_end_of_its_pause(workspace: Autopost) -> None:
    await workspace.channel(min_gap=HALF)
    await workspace.push("fails")
    (row,) = await workspace.take()
    await workspace.retry(row["delivery_id"], {"code": "500"}, row["lease"], at=clock(14))
    for at, said in ((clock(13, 10), 0), (clock(13, 45), 1), (clock(14, 31), 0)):
        assert len(await warnings(workspace, f"at {at}", at)) == said


async def test_only_the_first_conflicts_are_told_when_that_is_asked(workspace: Autopost) -> None:
    await workspace.channel(min_gap=HALF)
    for minute in (0, 10, 20):
        await push_at(workspace, f"at {minute}", clock(15, minute))
    found = await workspace.sql(
        "select * from autopost.schedule_conflicts(%s, null, %s, p_limit => 1)", workspace.workspace, workspace.now
    )
    assert [row["second_at"] for row in found] == [clock(15, 10)]


async def test_a_warning_that_breaks_stops_no_post(autopost: Autopost) -> None:
    await autopost.channel(min_gap=HALF)
    await autopost.sql(
        "create or replace function autopost.gap_in_words(p_apart interval, p_minimum interval) returns text"
        " language sql as $$ select (1 / (extract(day from p_apart) * 0))::text $$"
    )
    await autopost.push("one")
    answer = await autopost.push("two")
    assert (answer["enqueued"], answer["warnings"]) == (1, [])


@pytest.mark.parametrize("when", ["at once", "later"])
async def test_the_warning_of_a_push_costs_the_same_however_many_wait(autopost: Autopost, when: str) -> None:
    """Pages, not seconds: with 20 posts in front of it and with 5,000."""
    await autopost.channel(min_gap=HALF, window_mode="windowed", posting_window=OFFICE)
    at = None if when == "at once" else clock(17, day=3)
    await autopost.push("the first")
    few = await _pages_of_a_push(autopost, "few", 20, at)
    many = await _pages_of_a_push(autopost, "many", 5000, at)
    assert many <= few + 150, (few, many)


async def _pages_of_a_push(autopost: Autopost, text: str, waiting: int, at: datetime | None) -> int:
    await autopost.sql(
        "insert into autopost.deliveries (workspace_id, delivery_id, message_id, channel_id, content_hash, not_before)"
        " select 'w', core.nth_uuid(b.base, n), m.message_id, 'c1', %s || n, %s + n * interval '1 minute'"
        " from generate_series(1, %s::int) n, (select core.uuid7(now()) as base offset 0) b,"
        " (select message_id from autopost.messages limit 1) m", text, autopost.now, waiting,
    )  # fmt: skip
    await autopost.sql("vacuum analyze autopost.deliveries")
    for n in range(7):  # the first calls plan
        await autopost.push(post(f"{text} {n}", at))
    plan = await autopost.sql(
        "explain (analyze, buffers, format json)"
        " select * from autopost.enqueue_messages_and_deliveries('w', null, 'webhook_push', %s, %s)",
        Jsonb(post(text, at)), autopost.now,
    )  # fmt: skip
    top = plan[0]["QUERY PLAN"][0]["Plan"]
    return int(top["Shared Hit Blocks"]) + int(top["Shared Read Blocks"])


async def test_what_is_pulled_is_not_warned_of(workspace: Autopost) -> None:
    await workspace.channel(min_gap=HALF)
    await workspace.push("one")
    rows = await workspace.sql(
        "select * from autopost.enqueue_batch(%s, null, 'pull', array[%s::jsonb], %s)",
        workspace.workspace, Jsonb(post("two")), workspace.now,
    )  # fmt: skip
    assert [(row["enqueued"], row["warnings"]) for row in rows] == [(1, [])]
