"""Which result counts: the one with the newest lease, once. Older ones are noted, impossible ones raise and change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from sends import BAD, BUSY, begun, begun_again, refused

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16


@pytest.mark.parametrize("where", ["retry", "claimed", "queued"])
async def test_a_success_of_a_swept_send_still_counts(workspace: Autopost, where: str) -> None:
    """Sending a known success again would be a knowing duplicate."""
    row = await begun(workspace)
    workspace.wait(seconds=301)
    assert (await workspace.sweep())[0] == 1
    workspace.wait(minutes=1)
    if where != "retry":
        await workspace.claim()
    if where == "queued":
        await workspace.sql(
            "select autopost.release_claims(%s, '{c1}', 'test', %s)", workspace.workspace, workspace.now
        )
    assert await workspace.statuses() == {where: 1}
    assert await workspace.sent(row["delivery_id"], row["lease"], "tg-7") == "sent"
    found = await workspace.delivery(row["delivery_id"])
    assert (found["status"], found["provider_message_id"], found["attempt"]) == ("sent", "tg-7", 1)
    assert (found["next_retry_at"], found["last_error"], found["claim_token"]) == (None, None, None)
    (event,) = await workspace.events("sent")
    assert (event["attempt"], event["meta"]["from_status"]) == (1, where)
    assert await workspace.sent(row["delivery_id"], row["lease"]) == "duplicate"
    workspace.wait(days=1)
    assert await workspace.take() == []


async def test_a_success_of_a_held_row_settles_it(workspace: Autopost) -> None:
    await workspace.channel(on_unknown="hold")
    row = await begun(workspace)
    workspace.wait(seconds=301)
    await workspace.sweep()
    assert await workspace.sent(row["delivery_id"], row["lease"]) == "sent"
    assert (await workspace.delivery(row["delivery_id"]))["held_at"] is None


@pytest.mark.parametrize("lease", [1, None])
async def test_a_result_of_an_older_begin_settles_nothing(workspace: Autopost, lease: int | None) -> None:
    """With the old lease, or with none once a lease was lost: it may be the old send that speaks."""
    row = await begun(workspace)
    await begun_again(workspace, row["delivery_id"])
    before = await workspace.delivery(row["delivery_id"])
    assert await workspace.sent(row["delivery_id"], lease, "old") == "late"
    assert await workspace.retry(row["delivery_id"], BUSY, lease) == "late"
    assert await workspace.fail(row["delivery_id"], BAD, lease) == "late"
    assert await workspace.delivery(row["delivery_id"]) == before
    found = [(event["attempt"], event["result"]) for event in await workspace.events("late_result")]
    assert sorted(found) == [(2, "error"), (2, "error"), (2, "ok")]
    assert await workspace.sent(row["delivery_id"], 2, "new") == "sent"


async def test_a_success_after_the_row_was_given_up_is_noted(workspace: Autopost) -> None:
    await workspace.policy(max_attempts=1)
    row = await begun(workspace)
    workspace.wait(seconds=301)
    await workspace.sweep()
    assert await workspace.sent(row["delivery_id"], row["lease"], "tg-7") == "late"
    assert await workspace.statuses() == {"dead": 1}
    (event,) = await workspace.events("late_result")
    assert (event["meta"]["provider_message_id"], event["meta"]["from_status"]) == ("tg-7", "dead")


async def test_an_error_of_a_swept_send_is_only_noted(workspace: Autopost) -> None:
    row = await begun(workspace)
    workspace.wait(seconds=301)
    await workspace.sweep()
    before = await workspace.delivery(row["delivery_id"])
    assert await workspace.retry(row["delivery_id"], BUSY, row["lease"]) == "late"
    assert await workspace.fail(row["delivery_id"], BAD, row["lease"]) == "late"
    assert await workspace.delivery(row["delivery_id"]) == before
    assert len(await workspace.events("late_result")) == 2


async def test_a_late_error_only_feeds_the_clocks(workspace: Autopost) -> None:
    """How the platform feels is news; a punishment would come twice."""
    row = await begun(workspace)
    await begun_again(workspace, row["delivery_id"])
    assert await workspace.fail(row["delivery_id"], BAD | {"scope": "channel", "code": "403"}, 1) == "late"
    channel = await workspace.channel_row()
    assert (channel["error_streak"], channel["paused_until"], channel["enabled"]) == (0, None, True)
    assert await workspace.retry(row["delivery_id"], BUSY | {"code": "429", "retry_after_ms": 60000}, 1) == "late"
    assert (await workspace.channel_row())["cooldown_until"] > workspace.now
    assert await workspace.statuses() == {"sending": 1}


async def test_a_settled_lease_settles_nothing_more(workspace: Autopost) -> None:
    row = await begun(workspace)
    await workspace.retry(row["delivery_id"], BUSY, row["lease"])
    before = await workspace.delivery(row["delivery_id"])
    assert await workspace.sent(row["delivery_id"], row["lease"]) == "late"
    assert await workspace.fail(row["delivery_id"], BAD, row["lease"]) == "late"
    assert await workspace.delivery(row["delivery_id"]) == before
    await workspace.sql("delete from autopost.events where workspace_id = %s", workspace.workspace)
    row = await begun(workspace, "two")
    await workspace.sent(row["delivery_id"], row["lease"])
    assert await workspace.retry(row["delivery_id"], BUSY, row["lease"]) == "late"
    assert (await workspace.delivery(row["delivery_id"]))["status"] == "sent"


# Illegal calls


async def test_a_delivery_that_is_not_there_is_an_error(workspace: Autopost) -> None:
    await begun(workspace)
    nobody = uuid4()
    await refused(workspace, "VN001", workspace.sent(nobody), workspace.retry(nobody), workspace.fail(nobody, BAD))


async def test_a_delivery_of_another_workspace_is_not_there(workspace: Autopost) -> None:
    row = await begun(workspace)
    neighbour = type(workspace)(workspace.connection, workspace.workspace + "x")
    await neighbour.workspace_row()
    await refused(workspace, "VN001", neighbour.sent(row["delivery_id"], 1), neighbour.fail(row["delivery_id"]))


@pytest.mark.parametrize("status", ["queued", "claimed"])
async def test_what_was_never_begun_cannot_be_settled(workspace: Autopost, status: str) -> None:
    await workspace.channel()
    await workspace.push("hi")
    if status == "claimed":
        await workspace.claim()
    one = (await workspace.deliveries())[0]["delivery_id"]
    await refused(
        workspace, "VM001",
        workspace.sent(one), workspace.sent(one, 0), workspace.sent(one, 1), workspace.retry(one), workspace.fail(one, lease=1),
    )  # fmt: skip


@pytest.mark.parametrize("end", ["sent", "retry", "failed_permanent", "dead"])
async def test_what_is_settled_takes_no_other_result_without_a_lease(workspace: Autopost, end: str) -> None:
    if end == "dead":
        await workspace.policy(max_attempts=1)
    row = await begun(workspace)
    if end == "sent":
        await workspace.sent(row["delivery_id"])
    elif end == "failed_permanent":
        await workspace.fail(row["delivery_id"])
    else:
        await workspace.retry(row["delivery_id"])
    assert await workspace.statuses() == {end: 1}
    calls = [workspace.retry(row["delivery_id"], BUSY), workspace.fail(row["delivery_id"], BAD)]
    if end != "sent":
        calls.append(workspace.sent(row["delivery_id"]))
    await refused(workspace, "VM001", *calls)


async def test_a_lease_that_was_never_given_is_illegal(workspace: Autopost) -> None:
    row = await begun(workspace)
    one = row["delivery_id"]
    await refused(
        workspace, "VM001", workspace.sent(one, 2), workspace.retry(one, BUSY, 2), workspace.fail(one, BAD, 99)
    )
    assert await workspace.sent(one, 1) == "sent"
