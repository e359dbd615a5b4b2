"""The hours of a channel change while posts wait for them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16

NIGHT: dict[str, Any] = {"daily": [["23:00", "24:00"]]}
EVENING: dict[str, Any] = {"daily": [["18:00", "19:00"]]}


async def open_at(workspace: Autopost, window: dict[str, Any] | None) -> int:
    """The channel has other hours from now on; how many posts have another moment."""
    await workspace.sql(
        "update autopost.channels set window_mode = %s, posting_window = %s where workspace_id = %s",
        "windowed" if window else "immediate",
        Jsonb(window) if window else None,
        workspace.workspace,
    )
    moved: int = await workspace.value(
        "select autopost.replan_channel(%s, 'c1', 'me', %s)", workspace.workspace, workspace.now
    )
    return moved


async def moments(workspace: Autopost) -> list[datetime]:
    return sorted(row["not_before"] for row in await workspace.deliveries())


def clock(hour: int, day: int = 1) -> datetime:
    return datetime(2027, 3, day, hour, tzinfo=UTC)


async def test_what_waits_for_the_old_hours_goes_in_the_new_ones(workspace: Autopost) -> None:
    await workspace.channel(window_mode="windowed", posting_window=NIGHT)
    await workspace.push("a")
    await workspace.push({"text": "b", "scheduled_for": clock(20).isoformat()})
    assert await moments(workspace) == [clock(23), clock(23)]
    assert await open_at(workspace, EVENING) == 2
    assert await moments(workspace) == [clock(18), clock(18, day=2)]
    assert await workspace.take() == []
    assert await open_at(workspace, None) == 2
    assert await moments(workspace) == [workspace.now, clock(20)]  # its own schedule still counts
    assert len(await workspace.take()) == 1


async def test_it_is_noted_who_moved_what_from_where_to_where(workspace: Autopost) -> None:
    await workspace.channel(window_mode="windowed", posting_window=NIGHT)
    await workspace.push("a")
    await open_at(workspace, EVENING)
    (event,) = await workspace.events("rescheduled")
    told = {name: event["meta"][name] for name in ("operator", "reason")}
    assert told == {"operator": "me", "reason": "the hours of the channel changed"}
    assert [datetime.fromisoformat(event["meta"][name]) for name in ("from", "to")] == [clock(23), clock(18)]
    assert await open_at(workspace, EVENING) == 0
    assert len(await workspace.events("rescheduled")) == 1


async def test_hours_that_never_come_leave_the_post_where_it_is(workspace: Autopost) -> None:
    await workspace.channel(window_mode="windowed", posting_window=NIGHT)
    await workspace.push("a")
    assert await open_at(workspace, {"daily": []}) == 0
    assert await moments(workspace) == [clock(23)]
    workspace.wait(days=2)
    assert await workspace.take() == []


async def test_neither_what_is_claimed_nor_what_waits_for_its_files_is_moved(workspace: Autopost) -> None:
    await workspace.channel(rate_rps=0.5)
    for text in ("a", "b"):
        await workspace.push(text)
    claimed = {row["delivery_id"]: row["not_before"] for row in await workspace.claim()}
    media = [{"type": "image", "url": "https://e.org/a.png"}]
    await workspace.push({"text": "c", "media": media})
    assert await open_at(workspace, NIGHT) == 0
    after = {row["delivery_id"]: row["not_before"] for row in await workspace.deliveries("claimed")}
    assert after == claimed
    waiting = "select not_before = 'infinity' from autopost.deliveries where workspace_id = %s and status = 'queued'"
    assert await workspace.value(waiting, workspace.workspace) is True
