"""Channels and groups by hand: what stops, what goes on, and who is told to have done it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from answers import FORBIDDEN
from operated import credential, do, gave_up, release_stuck
from sends import begun, refused

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16


async def why(workspace: Autopost) -> tuple[str, str]:
    (row,) = await workspace.deliveries()
    found = await workspace.sql(
        "select * from autopost.why_delivery(%s, %s, %s)", workspace.workspace, row["delivery_id"], workspace.now
    )
    return found[0]["gate"], found[0]["detail"]


async def test_a_pause_ends_by_itself_and_says_who_made_it(workspace: Autopost) -> None:
    await workspace.channel()
    await workspace.push("hello")
    assert await do(workspace, "pause_channel", "c1", "10 minutes") == [workspace.now + timedelta(minutes=10)]
    assert await workspace.take() == []
    assert await why(workspace) == ("paused", "channel c1 is paused: drill, by olga")
    workspace.wait(minutes=9, seconds=59)
    assert await workspace.take() == []
    workspace.wait(seconds=1)
    assert len(await workspace.take()) == 1


@pytest.mark.parametrize(
    ("function", "arguments", "reason"),
    [("pause_channel", ("a", "1 hour"), "channel_paused"), ("disable_channel", ("a",), "channel_disabled"),
     ("disable_group", ("bot",), "channel_disabled")],
)  # fmt: skip
async def test_what_is_claimed_goes_back_to_its_place_at_once(
    workspace: Autopost, function: str, arguments: Any, reason: str
) -> None:
    await workspace.channel("a", rate_rps=1)
    await workspace.push_batch({"text": "one"}, {"text": "two"})
    assert len(await workspace.claim()) == 2
    await do(workspace, function, *arguments)
    assert await workspace.statuses() == {"queued": 2}
    assert [event["meta"]["reason"] for event in await workspace.events("claim_released")] == [reason] * 2
    await do(workspace, "resume_channel", "a")
    workspace.wait(seconds=2)
    assert [row["rendered_text"] for row in await workspace.take()] == ["one"]


async def test_resuming_ends_every_stop_and_forgets_the_refusals(workspace: Autopost) -> None:
    await workspace.policy(disable_after_permanent_streak=1)
    row = await begun(workspace)
    await workspace.fail(row["delivery_id"], FORBIDDEN, row["lease"])
    channel = await workspace.channel_row()
    assert (channel["enabled"], channel["error_streak"]) == (False, 1) and channel["paused_until"]
    assert await do(workspace, "resume_channel", "c1") == ["c1"]
    channel = await workspace.channel_row()
    assert (channel["enabled"], channel["error_streak"], channel["paused_until"]) == (True, 0, None)


async def test_a_disabled_channel_is_passed_by_and_keeps_what_it_had(workspace: Autopost) -> None:
    await workspace.channel()
    await workspace.push("before")
    assert await do(workspace, "disable_channel", "c1") == ["c1"]
    await workspace.push("meanwhile")
    assert (await why(workspace))[1].startswith("channel c1 is disabled: drill, by olga")
    (event,) = await workspace.events("channel_disabled")
    assert event["meta"] == {"operator": "olga", "reason": "drill", "manual": True}
    await do(workspace, "resume_channel", "c1")
    assert [row["rendered_text"] for row in await workspace.take()] == ["before"]


async def test_a_group_of_one_platform_can_be_meant(workspace: Autopost) -> None:
    for channel_id, platform in (("a", "telegram"), ("b", "max"), ("c", "max")):
        await workspace.channel(channel_id, platform=platform, rate_group="red")
    await workspace.channel("d", platform="max", rate_group="blue")
    assert await do(workspace, "disable_group", "red", "max") == ["b", "c"]
    await workspace.push("hello")
    assert sorted(row["channel_id"] for row in await workspace.take()) == ["a", "d"]
    assert await do(workspace, "disable_group", "red") == ["a", "b", "c"]
    assert await do(workspace, "enable_group", "red", "max") == ["b", "c"]
    assert (await workspace.channel_row("a"))["enabled"] is False
    assert {event["meta"]["rate_group"] for event in await workspace.events("channel_disabled")} == {"red"}


async def test_what_is_not_there_is_refused_by_name_and_nothing_changes(workspace: Autopost) -> None:
    await begun(workspace)
    await refused(
        workspace, "VN001",
        do(workspace, "pause_channel", "c2", "1 hour"), do(workspace, "resume_channel", "c2"),
        do(workspace, "disable_channel", ""), do(workspace, "disable_group", "red"), do(workspace, "enable_group", "bot", "max"),
    )  # fmt: skip
    with pytest.raises(Exception, match=f"no channel of group red in workspace {workspace.workspace}"):
        await do(workspace, "disable_group", "red")


async def test_what_is_stuck_comes_loose_and_its_late_success_still_counts(workspace: Autopost) -> None:
    row = await begun(workspace)
    workspace.wait(minutes=10)
    assert await release_stuck(workspace) == [], "ten minutes and not one second more"
    workspace.wait(seconds=1)
    (released,) = await release_stuck(workspace)
    assert (released["from_status"], released["outcome"]) == ("sending", "retry")
    assert await workspace.sent(row["delivery_id"], row["lease"]) == "sent"


async def test_a_channel_that_wants_no_post_twice_holds_what_may_have_arrived(workspace: Autopost) -> None:
    await workspace.channel("sure", on_unknown="hold", rate_rps=1)
    await workspace.push_batch({"text": "one"}, {"text": "two"})
    await workspace.claim()
    await workspace.begin()
    workspace.wait(minutes=11)
    rows = await release_stuck(workspace)
    assert sorted((row["from_status"], row["outcome"]) for row in rows) == [("claimed", "retry"), ("sending", "held")]
    workspace.wait(days=1)
    assert [row["rendered_text"] for row in await workspace.take()] == ["two"], "it waits for a person's word"
    assert len(await workspace.events("manual_requeue")) == 2
    (held,) = await workspace.events("held")
    assert held["meta"] == {"operator": "olga", "reason": "manual_stuck_release"}


async def test_what_is_stuck_is_released_in_bounded_steps(workspace: Autopost) -> None:
    await workspace.channel(max_parallel=9)
    await workspace.push_batch(*({"text": f"post {n}"} for n in range(5)))
    await workspace.take()
    workspace.wait(minutes=11)
    assert [len(await release_stuck(workspace, limit=2)) for _ in range(4)] == [2, 2, 1, 0]
    assert await workspace.statuses() == {"retry": 5}


async def test_snapshot_and_errors_are_those_of_the_specification(workspace: Autopost) -> None:
    for n in range(3):
        await workspace.channel(f"c{n}")
    await workspace.push("hello")
    for row in (await workspace.take())[1:]:
        await workspace.fail(row["delivery_id"], None, row["lease"])
    counts = await workspace.sql("select * from autopost.queue_snapshot(%s)", workspace.workspace)
    assert [(row["status"], row["count"]) for row in counts] == [("failed_permanent", 2), ("sending", 1)]
    asked = "select * from autopost.recent_errors(%s, %s, p_now => %s)"
    assert len(await workspace.sql(asked, workspace.workspace, 200, workspace.now)) == 2
    assert len(await workspace.sql(asked, workspace.workspace, 1, workspace.now)) == 1
    assert await workspace.sql(asked, workspace.workspace, 200, workspace.now + timedelta(minutes=31)) == []


REASONED = {
    "requeue": "autopost.requeue_deliveries(%(ws)s, 'olga', %(why)s, array(select delivery_id from autopost.deliveries where workspace_id = %(ws)s))",
    "pause": "autopost.pause_channel(%(ws)s, 'olga', %(why)s, 'a', '1 hour')",
    "resume": "autopost.resume_channel(%(ws)s, 'olga', %(why)s, 'a')",
    "disable": "autopost.disable_channel(%(ws)s, 'olga', %(why)s, 'a')",
    "disable_group": "autopost.disable_group(%(ws)s, 'olga', %(why)s, 'bot')",
    "rotate": "autopost.switch_auth(%(ws)s, 'olga', %(why)s, 'a', 'new')",
}


@pytest.mark.parametrize("name", REASONED)
async def test_a_reason_that_names_somebody_is_kept_without_the_name(workspace: Autopost, name: str) -> None:
    await gave_up(workspace)
    await credential(workspace, "new")
    about = {"ws": workspace.workspace, "why": "anna@example.org asked"}
    await workspace.connection.execute(f"select * from {REASONED[name]}", about)
    (told,) = await workspace.sql(
        "select meta ->> 'reason' as reason from autopost.events where workspace_id = %s and meta ->> 'operator' = 'olga'",
        workspace.workspace,
    )
    assert told["reason"].endswith(" asked") and "anna" not in told["reason"]
