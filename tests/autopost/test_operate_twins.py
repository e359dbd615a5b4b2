"""Each operation leaves in rows and events what the specification's own SQL leaves: two workspaces with one past, and each goes
its own way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest
from driver import Autopost
from operated import as_printed, credential, do, left_behind, release_stuck, requeue, switch_auth
from sends import BAD, BUSY

pytestmark = pytest.mark.pg16
Story = Callable[[Autopost], Awaitable[Any]]


@pytest.fixture
async def twin(workspace: Autopost) -> Autopost:
    other = Autopost(workspace.connection, f"w-{uuid4().hex}")
    await other.workspace_row()
    return other


async def alike(workspace: Autopost, twin: Autopost, past: Story, ours: Story, printed: Story) -> dict[str, Any]:
    """What both leave; the sweep that follows every second of a dispatcher has gone by."""
    found = []
    for one, way in ((workspace, ours), (twin, printed)):
        told = await past(one)
        one.wait(seconds=1)
        await way(one) if told is None else await way(one, told)  # type: ignore[call-arg]
        await one.sweep()
        found.append(await left_behind(one))
    assert found[0] == found[1]
    return found[0]


async def two_failures(workspace: Autopost) -> list[Any]:
    """One dead, one refused for its text, one because its channel is shut, one sent."""
    await workspace.policy(max_attempts=1, backoff_jitter=0)
    for channel_id in ("a", "b", "c", "d"):
        await workspace.channel(channel_id)
    await workspace.push("hello")
    rows = {row["channel_id"]: row for row in await workspace.take()}
    await workspace.retry(rows["a"]["delivery_id"], BUSY, rows["a"]["lease"])
    await workspace.fail(rows["b"]["delivery_id"], BAD, rows["b"]["lease"])
    await workspace.fail(rows["c"]["delivery_id"], BAD | {"scope": "channel"}, rows["c"]["lease"])
    await workspace.sent(rows["d"]["delivery_id"], rows["d"]["lease"])
    return [row["delivery_id"] for row in rows.values()]


async def test_3_and_4_requeue(workspace: Autopost, twin: Autopost) -> None:
    async def printed(one: Autopost, delivery_ids: Any) -> None:
        await as_printed(one, 3, delivery_ids=delivery_ids)
        await as_printed(one, 4, delivery_ids=delivery_ids)

    async def ours(one: Autopost, delivery_ids: Any) -> None:
        outcomes = sorted(outcome for outcome, _ in (await requeue(one, *delivery_ids)).values())
        assert outcomes == ["refused", "refused", "requeued", "requeued"]

    left = await alike(workspace, twin, two_failures, ours, printed)  # type: ignore[arg-type]
    assert [row["status"] for row in left["deliveries"]] == ["retry", "retry", "failed_permanent", "sent"]
    events = [event for event in left["events"] if event["action"] == "manual_requeue"]
    assert [event["meta"]["from_status"] for event in events] == ["dead", "failed_permanent"]
    assert [event["attempt"] for event in events] == [1, 1]


async def busy(workspace: Autopost) -> None:
    """Channels of one group with something claimed, sending and queued, and one of another."""
    for channel_id, group in (("a", "red"), ("b", "red"), ("c", "blue")):
        await workspace.channel(channel_id, rate_group=group, rate_rps=1)
    await workspace.push_batch({"text": "one"}, {"text": "two"}, {"text": "three"})
    await workspace.claim()
    await workspace.begin()
    await workspace.sql(
        "update autopost.channels set error_streak = 2, paused_until = %s where workspace_id = %s and channel_id = 'b'",
        workspace.now, workspace.workspace,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("section", "function", "arguments", "printed", "action"),
    [
        (5, "pause_channel", ("a", "90 seconds"), {"channel_id": "a", "pause_seconds": 90}, "channel_paused"),
        (6, "resume_channel", ("b",), {"channel_id": "b"}, "channel_enabled"),
        (7, "disable_group", ("red",), {"rate_group": "red"}, "channel_disabled"),
        (8, "enable_group", ("red",), {"rate_group": "red"}, "channel_enabled"),
    ],
)
async def test_5_to_8_channels_and_groups(
    workspace: Autopost, twin: Autopost, section: int, function: str, arguments: Any, printed: Any, action: str
) -> None:
    left = await alike(
        workspace,
        twin,
        busy,
        lambda one: do(one, function, *arguments),
        lambda one: as_printed(one, section, **printed),
    )
    told = [event for event in left["events"] if event["action"] == action]
    assert len(told) == (2 if section in (7, 8) else 1)
    assert all(event["meta"].keys() >= {"operator", "reason", "manual"} and event["attempt"] == 0 for event in told)


@pytest.mark.parametrize("group", [None, "bot"])
async def test_9_rotation_without_its_pause(workspace: Autopost, twin: Autopost, group: str | None) -> None:
    """Nothing is being sent: so ours needs no pause. The printed one pauses in any case, and a person resumes."""

    async def past(one: Autopost) -> None:
        await one.channel("a", auth_ref="old-bot")
        await credential(one, "new-bot")
        await one.push("hello")

    async def printed(one: Autopost) -> None:
        names = {"old_auth_ref": "old-bot", "new_auth_ref": "new-bot", "new_rate_group": group}
        await as_printed(one, 9, channel_id="a", **names)
        await one.sql("update autopost.channels set paused_until = null where workspace_id = %s", one.workspace)
        await one.sql(
            "insert into autopost.platform_limits (workspace_id, platform, rate_group, updated_at)"
            " select %s, 'telegram', %s, now() where %s::text is not null on conflict do nothing",
            one.workspace, group, group,
        )  # fmt: skip

    async def ours(one: Autopost) -> None:
        assert (await switch_auth(one, "a", "new-bot", group))["outcome"] == "rotated"
        told = "update autopost.events set meta = meta - 'rate_group' where workspace_id = %s and meta ->> 'rate_group' = %s"
        await one.sql(told, one.workspace, group)  # what ours says beyond the printed

    left = await alike(workspace, twin, past, ours, printed)
    (event,) = [event for event in left["events"] if event["action"] == "auth_rotated"]
    assert event["meta"].keys() >= {"operator", "old_auth_ref", "new_auth_ref"}


async def test_10_release_of_what_is_stuck(workspace: Autopost, twin: Autopost) -> None:
    async def past(one: Autopost) -> None:
        await busy(one)
        one.wait(minutes=10)

    async def printed(one: Autopost) -> None:
        await as_printed(one, 10)

    left = await alike(workspace, twin, past, release_stuck, printed)
    released = [event for event in left["events"] if event["action"] == "manual_requeue"]
    assert len(released) == 9
    assert {tuple(sorted(event["meta"].items())) for event in released} == {
        (("operator", "olga"), ("reason", "manual_stuck_release"))
    }
