"""A channel that refuses us is paused, then disabled; a fault of the post or of the platform is not the channel's."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from answers import FORBIDDEN, LIMITED, REVOKED, channels, cooldowns, fails, retries, under_way

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16


async def test_a_fault_of_the_post_does_nothing_to_its_channel(workspace: Autopost) -> None:
    await channels(workspace, 1)
    before = await workspace.channel_row()
    for n in range(5):
        sends = await under_way(workspace, f"post {n}")
        await fails(workspace, sends["c1"], {"scope": "delivery", "code": "400"})
    assert await workspace.channel_row() == before
    assert await cooldowns(workspace) == ({}, 0)
    assert await workspace.events("channel_paused", "channel_disabled") == []


async def test_a_channel_that_refuses_us_is_paused(workspace: Autopost) -> None:
    await channels(workspace, 2)
    sends = await under_way(workspace)
    assert await fails(workspace, sends["c1"], FORBIDDEN) == "failed_permanent"
    channel = await workspace.channel_row("c1")
    assert (channel["error_streak"], channel["enabled"]) == (1, True)
    assert channel["paused_until"] == workspace.now + timedelta(hours=1)
    (event,) = await workspace.events("channel_paused")
    assert (event["channel_id"], event["delivery_id"], event["attempt"], event["result"]) == ("c1", None, 0, "error")
    assert event["error"]["code"] == "403"
    assert event["meta"] == {
        "error_streak": 1, "delivery_id": str(sends["c1"]["delivery_id"]), "trace_id": str(sends["c1"]["trace_id"]),
    }  # fmt: skip
    await workspace.sent(sends["c2"]["delivery_id"], sends["c2"]["lease"])
    assert list(await under_way(workspace, "next")) == ["c2"], "the others go on"
    workspace.wait(hours=1)
    assert [row["channel_id"] for row in await workspace.take()] == ["c1"]


async def test_ten_claims_and_the_first_is_refused(workspace: Autopost) -> None:
    """Exactly one call reaches the platform, the streak is one, the channel is paused and not disabled."""
    await channels(workspace, 1, rate_rps=10)
    for n in range(10):
        await workspace.push(f"post {n}")
    assert len(await workspace.claim()) == 10
    calls = 0
    for _ in range(20):
        for row in await workspace.begin():
            calls += 1
            await fails(workspace, row, FORBIDDEN)
        workspace.wait(milliseconds=200)
    channel = await workspace.channel_row()
    assert (calls, channel["error_streak"], channel["enabled"]) == (1, 1, True)
    assert channel["paused_until"] > workspace.now
    assert await workspace.statuses() == {"failed_permanent": 1, "queued": 9}


async def test_sends_begun_before_the_pause_are_the_same_incident(workspace: Autopost) -> None:
    await channels(workspace, 1, max_parallel=5)
    for n in range(5):
        await workspace.push(f"post {n}")
    rows = await workspace.take()
    for row in rows:
        workspace.wait(seconds=1)
        assert await fails(workspace, row, FORBIDDEN) == "failed_permanent"
    channel = await workspace.channel_row()
    assert (channel["error_streak"], channel["enabled"]) == (1, True)
    assert channel["paused_until"] == workspace.now - timedelta(seconds=4) + timedelta(hours=1)
    assert len(await workspace.events("channel_paused")) == 1


@pytest.mark.parametrize("way", ["take", "claim"])
async def test_a_send_that_showed_signs_of_life_since_is_the_same_incident_too(workspace: Autopost, way: str) -> None:
    await channels(workspace, 1, max_parallel=2)
    for n in range(2):
        await workspace.push(f"post {n}")
    if way == "claim":
        await workspace.claim()
        workspace.wait(seconds=1)
    first, second = await workspace.take()
    workspace.wait(seconds=1)
    await fails(workspace, first, FORBIDDEN)
    workspace.wait(seconds=1)
    row = (workspace.workspace, second["delivery_id"], second["lease"], workspace.now)
    assert await workspace.value("select autopost.extend_sending(%s, %s, %s, %s)", *row)
    await fails(workspace, second, FORBIDDEN)
    assert (await workspace.channel_row())["error_streak"] == 1


async def incident(workspace: Autopost, n: int) -> None:
    """One more refusal, after the pause of the last one."""
    workspace.wait(hours=1, seconds=1)
    sends = await under_way(workspace, f"incident {n}")
    await fails(workspace, sends["c1"], FORBIDDEN)


async def test_after_three_refusals_in_a_row_a_channel_is_disabled(workspace: Autopost) -> None:
    await channels(workspace, 1)
    for n in range(2):
        await incident(workspace, n)
        assert (await workspace.channel_row())["enabled"] is True
    await incident(workspace, 3)
    channel = await workspace.channel_row()
    assert (channel["error_streak"], channel["enabled"]) == (3, False)
    assert len(await workspace.events("channel_paused")) == 3
    (event,) = await workspace.events("channel_disabled")
    assert (event["channel_id"], event["delivery_id"], event["attempt"], event["meta"]["error_streak"]) == (
        "c1",
        None,
        0,
        3,
    )
    workspace.wait(days=30)
    assert await under_way(workspace, "later") == {}


async def test_a_success_ends_the_streak(workspace: Autopost) -> None:
    await channels(workspace, 1)
    for n in range(2):
        await incident(workspace, n)
    workspace.wait(hours=2)
    sends = await under_way(workspace)
    await workspace.sent(sends["c1"]["delivery_id"], sends["c1"]["lease"])
    assert (await workspace.channel_row())["error_streak"] == 0
    await incident(workspace, 9)
    channel = await workspace.channel_row()
    assert (channel["error_streak"], channel["enabled"]) == (1, True)


async def test_a_success_that_comes_late_ends_the_streak_too(workspace: Autopost) -> None:
    await channels(workspace, 1)
    await incident(workspace, 1)
    workspace.wait(hours=2)
    sends = await under_way(workspace)
    workspace.wait(seconds=301)
    await workspace.sweep()
    await workspace.sent(sends["c1"]["delivery_id"], sends["c1"]["lease"])
    assert (await workspace.channel_row())["error_streak"] == 0


@pytest.mark.parametrize(
    "error", [LIMITED, {"scope": "platform", "code": "500"}, {"scope": "channel", "code": "timeout"}], ids=str
)
async def test_trouble_that_passes_leaves_the_streak_alone(workspace: Autopost, error: dict[str, Any]) -> None:
    await channels(workspace, 1)
    await incident(workspace, 1)
    workspace.wait(hours=2)
    sends = await under_way(workspace)
    await retries(workspace, sends["c1"], error)
    channel = await workspace.channel_row()
    assert channel["error_streak"] == 1
    assert channel["paused_until"] <= workspace.now


async def test_faults_of_posts_and_of_the_platform_leave_the_streak_alone(workspace: Autopost) -> None:
    await channels(workspace, 1)
    await incident(workspace, 1)
    for error in ({"scope": "delivery", "code": "400"}, REVOKED):
        workspace.wait(hours=2)
        sends = await under_way(workspace, error["code"])
        await fails(workspace, sends["c1"], error)
        assert (await workspace.channel_row())["error_streak"] == 1


async def test_a_platform_that_refuses_us_cools_the_group_and_punishes_no_channel(workspace: Autopost) -> None:
    await channels(workspace, 2)
    await workspace.channel("other", rate_group="another bot")
    sends = await under_way(workspace)
    assert await fails(workspace, sends["c1"], REVOKED) == "failed_permanent"
    for name in ("c2", "other"):
        await workspace.sent(sends[name]["delivery_id"], sends[name]["lease"])
    assert await cooldowns(workspace) == ({}, 300)
    (row,) = await workspace.sql(
        "select * from autopost.platform_limits where workspace_id = %s and rate_group = 'bot'", workspace.workspace
    )
    assert row["next_allowed_at"] == row["cooldown_until"], "the specification's column moves along"
    for name in ("c1", "c2"):
        channel = await workspace.channel_row(name)
        assert (channel["error_streak"], channel["paused_until"], channel["enabled"]) == (0, None, True)
    assert await workspace.events("channel_paused", "channel_disabled") == []
    assert list(await under_way(workspace, "next")) == ["other"]
    workspace.wait(minutes=5)
    assert sorted(row["channel_id"] for row in await workspace.take()) == ["c1", "c2"]


async def test_a_longer_pause_by_hand_is_not_cut_short(workspace: Autopost) -> None:
    await channels(workspace, 1)
    sends = await under_way(workspace)
    until = workspace.now + timedelta(days=3)
    await workspace.sql(
        "update autopost.channels set paused_until = %s where workspace_id = %s", until, workspace.workspace
    )
    await fails(workspace, sends["c1"], FORBIDDEN)
    assert (await workspace.channel_row())["paused_until"] == until


async def test_a_disabled_channel_that_refuses_again_is_not_disabled_twice(workspace: Autopost) -> None:
    """A person disabled it while a send was under way."""
    await channels(workspace, 1)
    sends = await under_way(workspace)
    await workspace.sql("update autopost.channels set enabled = false where workspace_id = %s", workspace.workspace)
    await fails(workspace, sends["c1"], FORBIDDEN)
    assert await workspace.events("channel_disabled") == []
    assert (await workspace.channel_row())["error_streak"] == 1
