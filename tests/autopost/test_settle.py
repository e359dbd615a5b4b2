"""Settle: what the platform said becomes the state of the delivery, once, and only by the newest lease."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from sends import BAD, BUSY, begun, everything

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16


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
    assert (event["delivery_id"], event["attempt"], event["result"], event["error"]) == (
        row["delivery_id"],
        1,
        "ok",
        None,
    )
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
        "raw": {"answer": "t" * 5000}, "stack": "s" * 5000,
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


async def test_a_late_result_beside_the_current_one_is_still_told(workspace: Autopost) -> None:
    row = await begun(workspace)
    workspace.wait(seconds=301)
    await workspace.sweep()
    workspace.wait(seconds=60)
    (again,) = await workspace.take()
    late = {"delivery_id": str(row["delivery_id"]), "lease": row["lease"], "error": BUSY}
    current = {"delivery_id": str(row["delivery_id"]), "lease": again["lease"], "provider_message_id": "m"}
    await workspace.settle(late, current)
    assert (await workspace.delivery(row["delivery_id"]))["status"] == "sent"
    assert len(await workspace.events("late_result")) == 1


async def test_an_unknown_outcome_is_held_where_a_duplicate_is_worse_than_a_gap(workspace: Autopost) -> None:
    """Whoever says so: a lost lease (the sweep), or an answer that never came."""
    await workspace.policy(max_attempts=1)
    row = await begun(workspace)
    await workspace.sql("update autopost.channels set on_unknown = 'hold' where workspace_id = %s", workspace.workspace)
    unknown = {"code": "timeout", "scope": "platform", "raw": {"outcome": "unknown"}}
    assert await workspace.retry(row["delivery_id"], unknown, row["lease"]) == "held"
    found = (await workspace.sql(
        "select status, held_at, next_retry_at::text from autopost.deliveries where delivery_id = %s", row["delivery_id"]
    ))[0]  # fmt: skip
    assert found == {"status": "retry", "held_at": workspace.now, "next_retry_at": "infinity"}
    assert [event["action"] for event in await workspace.events("held", "retry_scheduled")] == ["held"]
    workspace.wait(days=365)
    assert await workspace.take() == []


async def test_a_refusal_is_not_unknown_so_it_is_not_held(workspace: Autopost) -> None:
    row = await begun(workspace)
    await workspace.sql("update autopost.channels set on_unknown = 'hold' where workspace_id = %s", workspace.workspace)
    assert await workspace.retry(row["delivery_id"], {"code": "500", "scope": "platform"}, row["lease"]) == "retry"


async def test_what_is_refused_for_good_is_not_held_whatever_is_known_of_it(workspace: Autopost) -> None:
    await workspace.channel(on_unknown="hold")
    row = await begun(workspace)
    error = {"scope": "delivery", "code": "400", "raw": {"outcome": "unknown"}}
    assert await workspace.fail(row["delivery_id"], error, row["lease"]) == "failed_permanent"
    assert (await workspace.delivery(row["delivery_id"]))["held_at"] is None


async def test_an_empty_batch_is_nothing(workspace: Autopost) -> None:
    assert await workspace.settle() == {}
