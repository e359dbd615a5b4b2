"""Settle: what the platform said becomes the state of the delivery, once, and only by the newest lease."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import psycopg
import pytest

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16

BAD = {"category": "PERMANENT", "scope": "delivery", "code": "400", "message": "cannot parse"}
BUSY = {"category": "TRANSIENT", "scope": "platform", "code": "503", "message": "come again"}


async def begun(workspace: Autopost, text: str = "hi") -> Any:
    """One delivery under way."""
    if not await workspace.sql("select 1 from autopost.channels where workspace_id = %s", workspace.workspace):
        await workspace.channel()
    await workspace.push(text)
    (row,) = await workspace.take()
    return row


async def begun_again(workspace: Autopost, delivery_id: UUID) -> Any:
    """Its lease is lost, it is swept, and begun once more."""
    workspace.wait(seconds=301)
    assert (await workspace.sweep())[0] == 1
    workspace.wait(minutes=1)
    (row,) = await workspace.take()
    assert (row["delivery_id"], row["lease"]) == (delivery_id, 2)
    return row


async def everything(workspace: Autopost) -> Any:
    """What a call that is refused must leave as it is."""
    return [
        await workspace.sql(f"select * from autopost.{table} where workspace_id = %s order by 1, 2, 3", workspace.workspace)
        for table in ("deliveries", "events", "channels", "platform_limits", "messages")
    ]


async def refused(workspace: Autopost, sqlstate: str, *calls: Any) -> None:
    """Each of the calls raises the named error and changes nothing."""
    before = await everything(workspace)
    for call in calls:
        with pytest.raises(psycopg.Error) as refusal:
            await call
        assert refusal.value.sqlstate == sqlstate
    assert await everything(workspace) == before


# Success


async def test_a_success_settles_the_row(workspace: Autopost) -> None:
    row = await begun(workspace)
    workspace.wait(seconds=2)
    assert await workspace.sent(row["delivery_id"], row["lease"], "tg-7") == "sent"
    found = await workspace.delivery(row["delivery_id"])
    assert (found["status"], found["provider_message_id"], found["sent_at"]) == ("sent", "tg-7", workspace.now)
    assert (found["attempt"], found["settled_lease"], found["last_error"]) == (1, 1, None)
    assert (found["claimed_at"], found["claim_token"], found["sending_started_at"]) == (None, None, None)


async def test_a_success_has_its_event_with_what_the_platform_said(workspace: Autopost) -> None:
    row = await begun(workspace)
    assert await workspace.value(
        "select mark_sent(%s, %s, 'tg-7', null, '{\"message_ids\": [7, 8]}', %s, %s)",
        workspace.workspace, row["delivery_id"], row["lease"], workspace.now,
    ) == "sent"  # fmt: skip
    (event,) = await workspace.events("sent")
    assert (event["delivery_id"], event["attempt"], event["result"], event["error"]) == (row["delivery_id"], 1, "ok", None)
    assert event["meta"] == {
        "trace_id": str(row["trace_id"]), "provider_message_id": "tg-7", "raw": {"message_ids": [7, 8]},
    }  # fmt: skip
    assert (await workspace.delivery(row["delivery_id"]))["sent_at"] == workspace.now


async def test_the_calls_of_the_specification_need_no_lease(workspace: Autopost) -> None:
    row = await begun(workspace)
    await workspace.sql("select mark_sent(%s, %s, 'm', now(), '{}')", workspace.workspace, row["delivery_id"])
    assert await workspace.statuses() == {"sent": 1}
    row = await begun(workspace, "two")
    await workspace.sql("select schedule_retry(%s, %s, now(), '{}')", workspace.workspace, row["delivery_id"])
    assert await workspace.statuses() == {"sent": 1, "retry": 1}
    row = await begun(workspace, "three")
    await workspace.sql("select fail_permanent(%s, %s, '{}')", workspace.workspace, row["delivery_id"])
    assert await workspace.statuses() == {"sent": 1, "retry": 1, "failed_permanent": 1}


@pytest.mark.parametrize("with_lease", [True, False])
async def test_a_success_told_twice_is_a_duplicate_and_changes_nothing(workspace: Autopost, with_lease: bool) -> None:
    row = await begun(workspace)
    lease = row["lease"] if with_lease else None
    assert await workspace.sent(row["delivery_id"], lease, "first") == "sent"
    before = await everything(workspace)
    workspace.wait(minutes=1)
    assert await workspace.sent(row["delivery_id"], lease, "second") == "duplicate"
    assert await everything(workspace) == before


# Failure


async def test_a_transient_error_waits_for_its_next_try(workspace: Autopost) -> None:
    await workspace.policy(backoff_jitter=0)
    row = await begun(workspace)
    assert await workspace.retry(row["delivery_id"], BUSY, row["lease"]) == "retry"
    found = await workspace.delivery(row["delivery_id"])
    assert (found["status"], found["attempt"], found["last_error"]) == ("retry", 1, BUSY)
    assert (found["next_retry_at"] - workspace.now).total_seconds() == 2
    assert (found["claimed_at"], found["claim_token"], found["sending_started_at"]) == (None, None, None)
    (event,) = await workspace.events("retry_scheduled")
    assert (event["attempt"], event["result"], event["error"]) == (1, "error", BUSY)
    assert event["meta"]["trace_id"] == str(row["trace_id"])
    assert event["meta"]["next_retry_at"].startswith("2027-03-01T12:00:02")


async def test_a_permanent_error_is_the_end_of_the_delivery(workspace: Autopost) -> None:
    row = await begun(workspace)
    assert await workspace.fail(row["delivery_id"], BAD, row["lease"]) == "failed_permanent"
    found = await workspace.delivery(row["delivery_id"])
    assert (found["status"], found["last_error"], found["next_retry_at"]) == ("failed_permanent", BAD, None)
    (event,) = await workspace.events("failed_permanent")
    assert (event["attempt"], event["result"], event["error"]) == (1, "error", BAD)
    workspace.wait(days=1)
    assert await workspace.take() == []


@pytest.mark.parametrize("error", ["null", '"timed out"', "[1]", "7", "{}"])
async def test_the_verb_decides_what_an_error_means_whatever_its_json(workspace: Autopost, error: str) -> None:
    row = await begun(workspace)
    assert await workspace.value(
        "select fail_permanent(%s, %s, %s::jsonb)", workspace.workspace, row["delivery_id"], error
    ) == "failed_permanent"  # fmt: skip
    row = await begun(workspace, "two")
    assert await workspace.value(
        "select schedule_retry(%s, %s, null, %s::jsonb)", workspace.workspace, row["delivery_id"], error
    ) == "retry"  # fmt: skip
    found = (await workspace.delivery(row["delivery_id"]))["last_error"]
    assert (found["category"], found["scope"], found["code"]) == ("TRANSIENT", "delivery", "unknown")


async def test_an_error_is_cut_to_what_an_audit_needs(workspace: Autopost) -> None:
    row = await begun(workspace)
    await workspace.retry(row["delivery_id"], {
        "scope": "galaxy", "code": "c" * 200, "message": "m" * 2000, "retry_after_ms": "soon",
        "raw": {"token": "t" * 5000}, "stack": "s" * 5000,
    }, row["lease"])  # fmt: skip
    error = (await workspace.events("retry_scheduled"))[0]["error"]
    assert error.keys() == {"category", "scope", "code", "message", "raw"}
    assert (error["category"], error["scope"]) == ("TRANSIENT", "delivery")
    assert (len(error["code"]), len(error["message"]), len(error["raw"])) == (100, 500, 500)
    assert (await workspace.delivery(row["delivery_id"]))["last_error"] == error


# Backoff


async def waits(workspace: Autopost, tries: int, error: dict[str, Any]) -> list[float]:
    """How long each failed try has to wait for the next one."""
    row, found = await begun(workspace), []
    for _ in range(tries):
        await workspace.retry(row["delivery_id"], error, row["lease"])
        until = (await workspace.delivery(row["delivery_id"]))["next_retry_at"]
        found.append((until - workspace.now).total_seconds())
        workspace.now = until
        (row,) = await workspace.take()
    return found


async def test_backoff_doubles_up_to_its_maximum(workspace: Autopost) -> None:
    await workspace.policy(backoff_jitter=0, max_attempts=20)
    assert await waits(workspace, 9, BUSY) == [2, 4, 8, 16, 32, 64, 128, 256, 300]


async def test_jitter_only_adds_and_only_so_much(workspace: Autopost) -> None:
    await workspace.policy(backoff_jitter=0.5, max_attempts=20, backoff_factor=1)
    found = await waits(workspace, 12, BUSY)
    assert all(2 <= wait <= 3 for wait in found)
    assert len(set(found)) > 6, "not everybody comes back at the same moment"


async def test_a_wait_that_the_platform_asks_for_is_kept(workspace: Autopost) -> None:
    await workspace.policy(backoff_jitter=0.5, max_attempts=20)
    found = await waits(workspace, 8, BUSY | {"code": "429", "retry_after_ms": 7000})
    assert all(7 <= wait <= 10.5 for wait in found)
    assert len(set(found)) > 4, "with jitter on top"


async def test_a_wait_is_read_in_milliseconds(workspace: Autopost) -> None:
    await workspace.policy(backoff_jitter=0)
    assert await waits(workspace, 1, BUSY | {"retry_after_ms": 1500}) == [1.5]


async def test_no_platform_can_stop_a_delivery_for_longer_than_a_day(workspace: Autopost) -> None:
    await workspace.policy(backoff_jitter=0)
    assert await waits(workspace, 1, BUSY | {"retry_after_ms": 1e15}) == [86400]


async def test_a_file_that_is_not_ready_yet_is_tried_again_soon(workspace: Autopost) -> None:
    await workspace.policy(backoff_jitter=0, max_attempts=20)
    error = BUSY | {"scope": "delivery", "code": "attachment.not.ready"}
    assert await waits(workspace, 7, error) == [1, 2, 3, 4, 5, 5, 5]


async def test_the_callers_own_time_goes_before_the_backoff(workspace: Autopost) -> None:
    row = await begun(workspace)
    at = workspace.now.replace(hour=20)
    await workspace.retry(row["delivery_id"], BUSY, row["lease"], at=at)
    assert (await workspace.delivery(row["delivery_id"]))["next_retry_at"] == at


# The last try


async def test_after_the_last_try_a_delivery_is_dead(workspace: Autopost) -> None:
    row = await begun(workspace)
    outcomes = []
    for _ in range(5):
        outcomes.append(await workspace.retry(row["delivery_id"], BUSY, row["lease"]))
        workspace.wait(hours=1)
        row = next(iter(await workspace.take()), row)
    assert outcomes == ["retry"] * 4 + ["dead"]
    found = await workspace.delivery(row["delivery_id"])
    assert (found["status"], found["attempt"], found["next_retry_at"], found["last_error"]) == ("dead", 5, None, BUSY)
    (event,) = await workspace.events("dead_letter")
    assert (event["attempt"], event["result"], event["error"]) == (5, "error", BUSY)
    assert len(await workspace.events("send_attempt")) == 5


@pytest.mark.parametrize("from_status", ["dead", "failed_permanent"])
async def test_a_requeue_buys_exactly_one_more_try(workspace: Autopost, from_status: str) -> None:
    await workspace.policy(max_attempts=2)
    row = await begun(workspace)
    await workspace.retry(row["delivery_id"], BUSY, row["lease"])
    workspace.wait(hours=1)
    (row,) = await workspace.take()
    end, error = (workspace.retry, BUSY) if from_status == "dead" else (workspace.fail, BAD)
    assert await end(row["delivery_id"], error, row["lease"]) == from_status
    await workspace.sql(
        "update autopost.deliveries set status = 'retry', next_retry_at = %s where workspace_id = %s",
        workspace.now, workspace.workspace,
    )  # fmt: skip
    (row,) = await workspace.take()
    assert (row["attempt"], row["lease"]) == (3, 3)
    assert await workspace.retry(row["delivery_id"], BUSY, row["lease"]) == "dead"
    workspace.wait(days=1)
    assert await workspace.take() == []


# Fencing


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
        await workspace.sql("select autopost.release_claims(%s, '{c1}', 'test', %s)", workspace.workspace, workspace.now)
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
    await refused(workspace, "VM001", workspace.sent(one, 2), workspace.retry(one, BUSY, 2), workspace.fail(one, BAD, 99))
    assert await workspace.sent(one, 1) == "sent"


# Batches


async def test_a_batch_settles_each_by_itself(workspace: Autopost) -> None:
    for n in range(6):
        await workspace.channel(f"c{n}")
    await workspace.push("hi")
    ids = {row["channel_id"]: row["delivery_id"] for row in await workspace.take()}
    await workspace.sent(ids["c5"], 1)
    nobody = uuid4()
    outcomes = await workspace.settle(
        {"delivery_id": str(ids["c0"]), "lease": 1, "provider_message_id": "m0", "meta": {"a": 1}},
        {"delivery_id": str(ids["c1"]), "lease": 1, "error": BUSY},
        {"delivery_id": str(ids["c2"]), "lease": 1, "error": BAD},
        {"delivery_id": str(ids["c3"]), "lease": 9, "provider_message_id": "m3"},
        {"delivery_id": str(ids["c4"]), "provider_message_id": "m4", "sent_at": "2027-03-01T11:59:00Z"},
        {"delivery_id": str(ids["c5"]), "lease": 1, "provider_message_id": "again"},
        {"delivery_id": str(nobody), "lease": 1, "provider_message_id": "m"},
    )
    assert outcomes == {
        ids["c0"]: "sent", ids["c1"]: "retry", ids["c2"]: "failed_permanent", ids["c3"]: "illegal",
        ids["c4"]: "sent", ids["c5"]: "duplicate",
    }  # fmt: skip
    assert await workspace.statuses() == {"sent": 3, "retry": 1, "failed_permanent": 1, "sending": 1}
    assert (await workspace.delivery(ids["c4"]))["sent_at"].minute == 59
    by_channel = {event["channel_id"]: event for event in await workspace.events("sent")}
    assert by_channel["c0"]["meta"]["raw"] == {"a": 1} and by_channel["c4"]["meta"]["provider_message_id"] == "m4"


async def test_a_batch_told_twice_changes_nothing_the_second_time(workspace: Autopost) -> None:
    for n in range(3):
        await workspace.channel(f"c{n}")
    await workspace.push("hi")
    rows = await workspace.take()
    results: list[dict[str, Any]] = [{"delivery_id": str(row["delivery_id"]), "lease": 1} for row in rows]
    results[2]["error"] = BUSY
    assert sorted((await workspace.settle(*results)).values()) == ["retry", "sent", "sent"]
    statuses, sent = await workspace.deliveries(), await workspace.events("sent")
    assert sorted((await workspace.settle(*results)).values()) == ["duplicate", "duplicate", "late"]
    assert await workspace.deliveries() == statuses
    assert await workspace.events("sent") == sent


async def test_one_delivery_twice_in_a_batch_is_settled_once(workspace: Autopost) -> None:
    row = await begun(workspace)
    result = {"delivery_id": str(row["delivery_id"]), "lease": 1, "provider_message_id": "m"}
    assert await workspace.settle(result, result) == {row["delivery_id"]: "sent"}
    assert len(await workspace.events("sent")) == 1


async def test_an_empty_batch_is_nothing(workspace: Autopost) -> None:
    assert await workspace.settle() == {}
