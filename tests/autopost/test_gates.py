"""What a platform's answer does to the channel and its group, and to nobody else."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from answers import FORBIDDEN, LIMITED, REVOKED, channels, cooldowns, fails, group_wait, retries, under_way

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16


# Too many requests


async def test_a_429_cools_its_channel_and_not_the_group(workspace: Autopost) -> None:
    await channels(workspace, 3)
    sends = await under_way(workspace)
    assert await retries(workspace, sends["c1"], LIMITED) == "retry"
    assert await cooldowns(workspace) == ({"c1": 30}, 0)
    assert (await workspace.delivery(sends["c1"]["delivery_id"]))["next_retry_at"] == workspace.now + timedelta(
        seconds=30
    )
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


async def test_a_first_channel_that_hears_it_again_is_first_for_longer(workspace: Autopost) -> None:
    await channels(workspace, 2, max_parallel=2)
    await workspace.push("a")
    await workspace.push("b")
    rows = await workspace.take()
    first, again, second = (*(row for row in rows if row["channel_id"] == "c1"), rows[-1])
    await retries(workspace, first, LIMITED)
    workspace.wait(seconds=20)
    await retries(workspace, again, LIMITED)
    workspace.wait(seconds=20)
    assert second["channel_id"] == "c2"
    await retries(workspace, second, LIMITED)
    assert await cooldowns(workspace) == ({"c1": 10, "c2": 30}, 30)


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


async def test_a_shorter_wait_does_not_end_a_longer_one_of_the_group(workspace: Autopost) -> None:
    await channels(workspace, 2)
    sends = await under_way(workspace)
    await fails(workspace, sends["c1"], REVOKED)
    await retries(workspace, sends["c2"], LIMITED | {"scope_named": True, "retry_after_ms": 1000})
    assert await group_wait(workspace) == 300


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
    assert [row["not_before"] for row in waiting] == [row["created_at"] for row in waiting]
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
