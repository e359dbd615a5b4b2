"""One more try, by hand: what is dead, and what failed because of the post itself; it goes out, and nothing else does."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from driver import Autopost as Driver
from operated import gave_up, requeue
from sends import BAD, BUSY, begun

if TYPE_CHECKING:
    from driver import Autopost

pytestmark = pytest.mark.pg16
DONE = ("requeued", None)


@pytest.mark.parametrize("max_attempts", [1, 5])
async def test_what_is_dead_goes_out_after_all(workspace: Autopost, max_attempts: int) -> None:
    await workspace.policy(max_attempts=max_attempts, backoff_jitter=0)
    row = await begun(workspace)
    while await workspace.retry(row["delivery_id"], BUSY, row["lease"]) == "retry":
        workspace.wait(hours=1)
        (row,) = await workspace.take()
    assert await requeue(workspace, row["delivery_id"]) == {row["delivery_id"]: DONE}
    assert (await workspace.delivery(row["delivery_id"]))["attempt"] == max_attempts, "counted at the begin"
    workspace.wait(hours=1)
    assert await workspace.sweep() == (0, 0)
    (again,) = await workspace.take()
    assert again["attempt"] == max_attempts + 1
    assert await workspace.sent(again["delivery_id"], again["lease"]) == "sent"


@pytest.mark.parametrize("ends", ["it fails", "its lease is lost"])
async def test_it_is_one_more_try_and_no_further_one(workspace: Autopost, ends: str) -> None:
    delivery_id = await gave_up(workspace)
    for attempt in (2, 3):
        assert await requeue(workspace, delivery_id) == {delivery_id: DONE}
        workspace.wait(seconds=1)
        (row,) = await workspace.take()
        assert row["attempt"] == attempt
        if ends == "it fails":
            assert await workspace.retry(delivery_id, BUSY, row["lease"]) == "dead"
        else:
            workspace.wait(hours=1)
            await workspace.sweep()
        assert await workspace.statuses() == {"dead": 1}
    assert len(await workspace.events("manual_requeue")) == 2


async def test_what_was_refused_for_its_content_goes_again_and_what_its_channel_was_refused_for_does_not(
    workspace: Autopost,
) -> None:
    for channel_id in ("a", "b", "c"):
        await workspace.channel(channel_id)
    await workspace.push("hello")
    rows = {row["channel_id"]: row for row in await workspace.take()}
    for channel_id, scope in (("a", "delivery"), ("b", "channel"), ("c", "platform")):
        await workspace.fail(rows[channel_id]["delivery_id"], BAD | {"scope": scope}, rows[channel_id]["lease"])
    told = await requeue(workspace, *(row["delivery_id"] for row in rows.values()))
    assert {channel_id: told[row["delivery_id"]] for channel_id, row in rows.items()} == {
        "a": DONE,
        "b": ("refused", "its channel was refused (400), not the post: put that right and push it again"),
        "c": ("refused", "its platform was refused (400), not the post: put that right and push it again"),
    }
    assert await workspace.statuses() == {"retry": 1, "failed_permanent": 2}


async def test_what_waits_is_sent_or_is_not_there_is_refused_by_name(workspace: Autopost) -> None:
    other = Driver(workspace.connection, f"w-{uuid4().hex}")
    await other.workspace_row()
    theirs, nobody = await gave_up(other), uuid4()
    sending = await begun(workspace, "one")
    await workspace.push("two")
    (waiting,) = await workspace.deliveries("queued")
    told = await requeue(workspace, sending["delivery_id"], waiting["delivery_id"], theirs, nobody, nobody)
    assert told == {
        sending["delivery_id"]: ("refused", "it is sending"),
        waiting["delivery_id"]: ("refused", "it is queued"),
        theirs: ("refused", "there is no such delivery"),
        nobody: ("refused", "there is no such delivery"),
    }
    assert await other.statuses() == {"dead": 1}
    assert await workspace.events("manual_requeue") == []


async def test_a_second_requeue_finds_it_waiting(workspace: Autopost) -> None:
    delivery_id = await gave_up(workspace)
    assert await requeue(workspace, delivery_id) == {delivery_id: DONE}
    assert await requeue(workspace, delivery_id) == {delivery_id: ("refused", "it is retry")}
    assert len(await workspace.events("manual_requeue")) == 1


async def test_what_the_same_post_has_overtaken_is_not_shown_twice(workspace: Autopost) -> None:
    delivery_id = await gave_up(workspace, "news")
    workspace.wait(hours=1)
    await workspace.push("news")
    (second,) = await workspace.take()
    await workspace.sent(second["delivery_id"], second["lease"])
    await requeue(workspace, delivery_id)
    workspace.wait(seconds=1)
    assert await workspace.take() == []
    assert (await workspace.delivery(delivery_id))["status"] == "deduped"


async def test_what_was_withdrawn_can_be_had_back(workspace: Autopost) -> None:
    await workspace.channel()
    message = (await workspace.push("hello"))["message_id"]
    await workspace.sql(
        "select * from autopost.cancel_deliveries(%s, 'olga', 'no', %s, p_now => %s)",
        workspace.workspace, message, workspace.now,
    )  # fmt: skip
    (row,) = await workspace.deliveries("failed_permanent")
    await requeue(workspace, row["delivery_id"])
    workspace.wait(seconds=1)
    assert [row["rendered_text"] for row in await workspace.take()] == ["hello"]
