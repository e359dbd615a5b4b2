"""What a platform's answer does to the channel and its group, and to nobody else."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16

LIMITED = {"scope": "platform", "code": "429", "message": "Too Many Requests", "retry_after_ms": 30000}
FORBIDDEN = {"scope": "channel", "code": "403", "message": "bot was kicked"}
REVOKED = {"scope": "platform", "code": "401", "message": "the account is suspended"}


async def channels(workspace: Autopost, count: int, **columns: Any) -> None:
    """Of one group, each with one post under way."""
    await workspace.policy(backoff_jitter=0)
    for n in range(1, count + 1):
        await workspace.channel(f"c{n}", **columns)


async def under_way(workspace: Autopost, text: str = "hi") -> dict[str, Any]:
    await workspace.push(text)
    return {row["channel_id"]: row for row in await workspace.take()}


async def fails(workspace: Autopost, row: Any, error: dict[str, Any]) -> str:
    return await workspace.fail(row["delivery_id"], error, row["lease"])


async def retries(workspace: Autopost, row: Any, error: dict[str, Any]) -> str:
    return await workspace.retry(row["delivery_id"], error, row["lease"])


async def cooldowns(workspace: Autopost) -> tuple[dict[str, float], float]:
    """Seconds that each channel, and the group, has to wait."""
    rows = await workspace.sql("select * from autopost.channels where workspace_id = %s", workspace.workspace)
    waits = {
        row["channel_id"]: (row["cooldown_until"] - workspace.now).total_seconds()
        for row in rows if row["cooldown_until"] and row["cooldown_until"] > workspace.now
    }  # fmt: skip
    return waits, await group_wait(workspace)


async def group_wait(workspace: Autopost, rate_group: str = "bot") -> float:
    (row,) = await workspace.sql(
        "select * from autopost.platform_limits where workspace_id = %s and rate_group = %s", workspace.workspace, rate_group
    )
    until = row["cooldown_until"]
    return (until - workspace.now).total_seconds() if until and until > workspace.now else 0


# Too many requests


async def test_a_429_cools_its_channel_and_not_the_group(workspace: Autopost) -> None:
    await channels(workspace, 3)
    sends = await under_way(workspace)
    assert await retries(workspace, sends["c1"], LIMITED) == "retry"
    assert await cooldowns(workspace) == ({"c1": 30}, 0)
    assert (await workspace.delivery(sends["c1"]["delivery_id"]))["next_retry_at"] == workspace.now + timedelta(seconds=30)
    channel = await workspace.channel_row()
    assert (channel["error_streak"], channel["paused_until"], channel["enabled"]) == (0, None, True)
    for name in ("c2", "c3"):
        await workspace.sent(sends[name]["delivery_id"], sends[name]["lease"])
    assert sorted(await under_way(workspace, "next")) == ["c2", "c3"]
    workspace.wait(seconds=30)
    assert len(await workspace.take()) == 1


async def test_a_429_without_a_time_cools_by_the_backoff(workspace: Autopost) -> None:
    await channels(workspace, 1)
    sends = await under_way(workspace)
    await retries(workspace, sends["c1"], {"scope": "platform", "code": "429"})
    assert await cooldowns(workspace) == ({"c1": 2}, 0)


async def test_any_answer_with_a_time_cools(workspace: Autopost) -> None:
    await channels(workspace, 1)
    sends = await under_way(workspace)
    await retries(workspace, sends["c1"], {"scope": "platform", "code": "503", "retry_after_ms": 9000})
    assert await cooldowns(workspace) == ({"c1": 9}, 0)


@pytest.mark.parametrize("code", ["500", "502", "timeout"])
async def test_other_trouble_moves_no_gate(workspace: Autopost, code: str) -> None:
    await channels(workspace, 2)
    sends = await under_way(workspace)
    for name in sends:
        await retries(workspace, sends[name], {"scope": "platform", "code": code})
    assert await cooldowns(workspace) == ({}, 0)


async def test_the_group_cools_when_the_platform_names_it(workspace: Autopost) -> None:
    await channels(workspace, 3)
    await workspace.channel("other", rate_group="another bot")
    sends = await under_way(workspace)
    for name in ("c2", "c3", "other"):
        await workspace.sent(sends[name]["delivery_id"], sends[name]["lease"])
    await retries(workspace, sends["c1"], LIMITED | {"scope_named": True})
    assert await cooldowns(workspace) == ({"c1": 30}, 30)
    assert list(await under_way(workspace, "next")) == ["other"]
    workspace.wait(seconds=30)
    assert sorted(row["channel_id"] for row in await workspace.take()) == ["c1", "c2", "c3"]


async def test_the_group_cools_when_a_second_channel_hears_it_within_the_firsts_wait(workspace: Autopost) -> None:
    await channels(workspace, 3)
    sends = await under_way(workspace)
    await retries(workspace, sends["c1"], LIMITED)
    workspace.wait(seconds=29)
    await retries(workspace, sends["c2"], LIMITED | {"retry_after_ms": 10000})
    assert await cooldowns(workspace) == ({"c1": 1, "c2": 10}, 10)


async def test_the_groups_wait_is_the_longer_of_the_two(workspace: Autopost) -> None:
    await channels(workspace, 2)
    sends = await under_way(workspace)
    await retries(workspace, sends["c1"], LIMITED)
    await retries(workspace, sends["c2"], LIMITED | {"retry_after_ms": 1000})
    assert await cooldowns(workspace) == ({"c1": 30, "c2": 1}, 30)


async def test_a_second_channel_after_the_firsts_wait_is_a_first_again(workspace: Autopost) -> None:
    await channels(workspace, 2)
    sends = await under_way(workspace)
    await retries(workspace, sends["c1"], LIMITED)
    workspace.wait(seconds=30)
    await retries(workspace, sends["c2"], LIMITED)
    assert await cooldowns(workspace) == ({"c2": 30}, 0)


async def test_one_channel_alone_never_cools_its_group(workspace: Autopost) -> None:
    await channels(workspace, 1, max_parallel=3)
    for text in "abc":
        await workspace.push(text)
    for row in await workspace.take():
        await retries(workspace, row, LIMITED)
    assert await cooldowns(workspace) == ({"c1": 30}, 0)


async def test_a_channel_of_another_group_is_no_second_channel(workspace: Autopost) -> None:
    await channels(workspace, 1)
    await workspace.channel("other", rate_group="another bot")
    sends = await under_way(workspace)
    await retries(workspace, sends["c1"], LIMITED)
    await retries(workspace, sends["other"], LIMITED)
    assert (await group_wait(workspace), await group_wait(workspace, "another bot")) == (0, 0)


async def test_a_shorter_wait_does_not_end_a_longer_one(workspace: Autopost) -> None:
    await channels(workspace, 1, max_parallel=2)
    await workspace.push("a")
    await workspace.push("b")
    first, second = await workspace.take()
    await retries(workspace, first, LIMITED)
    await retries(workspace, second, LIMITED | {"retry_after_ms": 1000})
    assert (await cooldowns(workspace))[0] == {"c1": 30}


@pytest.mark.parametrize(
    ("error", "reason"),
    [(LIMITED, "channel_cooldown"), (LIMITED | {"scope_named": True}, "channel_cooldown"), (FORBIDDEN, "channel_paused"),
     (REVOKED, "group_cooldown")],
    ids=["429", "named group", "403", "platform"],
)  # fmt: skip
async def test_claims_behind_a_gate_that_closes_go_back_to_their_place(
    workspace: Autopost, error: dict[str, Any], reason: str
) -> None:
    await channels(workspace, 1)
    for n in range(4):
        await workspace.push(f"post {n}")
        workspace.wait(seconds=1)
    await workspace.claim()
    (row,) = await workspace.begin()
    assert await workspace.statuses() == {"claimed": 3, "sending": 1}
    await (retries if error["code"] == "429" else fails)(workspace, row, error)
    waiting = await workspace.deliveries("queued")
    assert [row["rendered_text"] for row in waiting] == ["post 1", "post 2", "post 3"]
    assert {(row["claimed_at"], row["claim_token"], row["attempt"]) for row in waiting} == {(None, None, 0)}
    events = await workspace.events("claim_released")
    assert {event["delivery_id"] for event in events} == {row["delivery_id"] for row in waiting}
    assert {event["meta"]["reason"] for event in events} == {reason}
    assert {(event["attempt"], event["result"]) for event in events} == {(0, "ok")}


async def test_a_cooling_group_gives_back_the_claims_of_all_its_channels_and_of_no_other(workspace: Autopost) -> None:
    await channels(workspace, 3)
    await workspace.channel("other", rate_group="another bot")
    await workspace.push("one")
    await workspace.push("two")
    await workspace.claim()
    rows = {row["channel_id"]: row for row in await workspace.begin()}
    await retries(workspace, rows["c1"], LIMITED | {"scope_named": True})
    left = await workspace.deliveries("claimed")
    assert [row["channel_id"] for row in left] == ["other"]
    assert len(await workspace.deliveries("queued")) == 3


# Permanent


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
    assert (event["channel_id"], event["delivery_id"], event["attempt"], event["meta"]["error_streak"]) == ("c1", None, 0, 3)
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


@pytest.mark.parametrize("error", [LIMITED, {"scope": "platform", "code": "500"}, {"scope": "channel", "code": "timeout"}], ids=str)
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
    await workspace.sql("update autopost.channels set paused_until = %s where workspace_id = %s", until, workspace.workspace)
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
