"""Once per channel: the same content goes into a channel again only after its TTL, and never while it is under way."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import psycopg
import pytest

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16

IN_FLIGHT, WITHIN_TTL = "in_flight", "sent_within_ttl"


async def send(workspace: Autopost, text: str = "hi") -> UUID:
    """One delivery, pushed and sent now."""
    await workspace.push(text)
    (row,) = await workspace.take()
    assert await workspace.sent(row["delivery_id"], row["lease"]) == "sent"
    return row["delivery_id"]


async def counts(workspace: Autopost, text: str = "hi") -> tuple[int, int]:
    pushed = await workspace.push(text)
    return pushed["enqueued"], pushed["suppressed"]


async def reasons(workspace: Autopost) -> list[str]:
    return [event["meta"]["reason"] for event in await workspace.events("dedup_suppressed")]


async def test_the_same_post_is_held_back_until_the_second_its_ttl_ends(workspace: Autopost) -> None:
    await workspace.channel()
    await send(workspace)
    workspace.wait(days=7)
    assert await counts(workspace) == (0, 1), "sent exactly seven days ago is within the window"
    workspace.wait(microseconds=1)
    assert await counts(workspace) == (1, 0)
    assert await reasons(workspace) == [WITHIN_TTL]


async def test_the_ttl_is_counted_from_when_it_was_sent_not_from_when_it_was_pushed(workspace: Autopost) -> None:
    await workspace.channel()
    await workspace.push("hi")
    workspace.wait(days=6)
    (row,) = await workspace.take()
    await workspace.sent(row["delivery_id"], row["lease"])
    workspace.wait(days=6)
    assert await counts(workspace) == (0, 1)
    workspace.wait(days=1, seconds=1)
    assert await counts(workspace) == (1, 0)


async def test_what_was_suppressed_does_not_make_the_window_longer(workspace: Autopost) -> None:
    await workspace.channel()
    await send(workspace)
    for _ in range(6):
        workspace.wait(days=1)
        assert await counts(workspace) == (0, 1)
    workspace.wait(days=1, seconds=1)
    assert await counts(workspace) == (1, 0)
    assert await workspace.statuses() == {"sent": 1, "deduped": 6, "queued": 1}


async def test_every_channel_has_its_own_ttl_or_the_policys(workspace: Autopost) -> None:
    await workspace.policy(dedup_ttl_hours=2)
    for channel_id, hours in (("default", 168), ("one", 1), ("policy", None), ("zero", 0)):
        await workspace.channel(channel_id, dedup_ttl_hours=hours)
    await workspace.push("hi")
    for row in await workspace.take():
        await workspace.sent(row["delivery_id"], row["lease"])
    sent_at, free = workspace.now, {}
    for seconds in (1, 3601, 7201):
        workspace.now = sent_at + timedelta(seconds=seconds)
        async with workspace.connection.transaction(force_rollback=True):
            await workspace.push("hi")
            free[seconds] = [row["channel_id"] for row in await workspace.deliveries("queued")]
    assert free == {1: ["zero"], 3601: ["one", "zero"], 7201: ["one", "policy", "zero"]}


async def move_to(workspace: Autopost, status: str) -> None:
    """The one delivery there is, along the legal way."""
    if status in ("claimed", "sending", "retry", "dead", "failed_permanent"):
        await workspace.claim()
    if status in ("sending", "retry", "dead", "failed_permanent"):
        (row,) = await workspace.begin()
        if status == "retry":
            await workspace.retry(row["delivery_id"], lease=row["lease"])
        elif status == "failed_permanent":
            await workspace.fail(row["delivery_id"], lease=row["lease"])
        elif status == "dead":
            await workspace.policy(max_attempts=1)
            await workspace.retry(row["delivery_id"], lease=row["lease"])


@pytest.mark.parametrize("status", ["queued", "claimed", "sending", "retry"])
async def test_nothing_goes_in_beside_the_same_post_under_way(workspace: Autopost, status: str) -> None:
    await workspace.channel()
    await workspace.push("hi")
    await move_to(workspace, status)
    assert await workspace.statuses() == {status: 1}
    workspace.wait(days=30)
    assert await counts(workspace) == (0, 1)
    assert await reasons(workspace) == [IN_FLIGHT]
    assert await workspace.statuses() == {status: 1, "deduped": 1}


@pytest.mark.parametrize("status", ["dead", "failed_permanent"])
async def test_what_was_given_up_does_not_stand_in_the_way(workspace: Autopost, status: str) -> None:
    await workspace.channel()
    await workspace.push("hi")
    await move_to(workspace, status)
    assert await workspace.statuses() == {status: 1}
    assert await counts(workspace) == (1, 0)


async def test_other_channels_and_other_texts_are_not_held_back(workspace: Autopost) -> None:
    await workspace.channel("c1")
    await workspace.channel("c2")
    assert await counts(workspace) == (2, 0)
    await workspace.channel("c3")
    assert await counts(workspace) == (1, 2)
    assert await counts(workspace, "another") == (3, 0)


async def test_another_workspace_is_not_held_back(workspace: Autopost) -> None:
    await workspace.channel()
    await send(workspace)
    neighbour = type(workspace)(workspace.connection, workspace.workspace + "x")
    await neighbour.workspace_row()
    await neighbour.channel()
    assert await counts(neighbour) == (1, 0)


async def test_another_hash_version_is_another_post(workspace: Autopost) -> None:
    """The specification's key has four parts; a new way of hashing must not be held back by the old one."""
    await workspace.channel()
    await send(workspace)
    for tables in (["messages", "deliveries"], ["deliveries"]):
        for table in tables:
            await workspace.sql(
                f"update autopost.{table} set hash_version = 0 where workspace_id = %s", workspace.workspace
            )
        assert await counts(workspace) == (1, 0)
        (row,) = await workspace.take()
        await workspace.sent(row["delivery_id"], row["lease"])


async def test_another_hash_version_under_way_is_another_post_too(workspace: Autopost) -> None:
    await workspace.channel()
    await workspace.push("hi")
    await workspace.sql("update autopost.deliveries set hash_version = 0 where workspace_id = %s", workspace.workspace)
    assert await counts(workspace) == (1, 0)


async def test_what_cannot_go_in_at_all_is_no_repetition(workspace: Autopost) -> None:
    """It failed, and that is all it did: it is not counted twice."""
    await workspace.channel()
    await workspace.push("hi")
    await workspace.sql("update autopost.channels set send_mode = 'media' where workspace_id = %s", workspace.workspace)
    again = await workspace.push("hi")
    assert (again["enqueued"], again["suppressed"], again["failed"]) == (0, 0, 1)
    (event,) = await workspace.events("validation_failed")
    assert "reason" not in event["meta"]


async def test_the_same_post_twice_in_one_batch_is_one_delivery(workspace: Autopost) -> None:
    await workspace.channel()
    rows = await workspace.push_batch({"text": "hi"}, {"text": "other"}, {"text": " hi  "}, {"text": "hi"})
    assert [(row["enqueued"], row["suppressed"]) for row in rows] == [(1, 0), (1, 0), (0, 1), (0, 1)]
    assert len({row["message_id"] for row in rows}) == 2
    assert await workspace.statuses() == {"queued": 2, "deduped": 2}


async def test_one_batch_never_holds_a_post_twice_for_one_channel(workspace: Autopost) -> None:
    """The guard against a double enqueue that the specification leaves open is a consequence of the duplicate check."""
    await workspace.channel()
    await workspace.push_batch(*[{"text": "hi"}] * 3)
    same = await workspace.sql(
        "select count(*) as n from autopost.deliveries where workspace_id = %s and status <> 'deduped'"
        " group by enqueue_batch_id, channel_id, hash_version, content_hash",
        workspace.workspace,
    )
    assert [row["n"] for row in same] == [1]


async def test_a_suppressed_delivery_leaves_a_row_and_an_event(workspace: Autopost) -> None:
    await workspace.channel()
    first = await send(workspace)
    pushed = await workspace.push("hi")
    (row,) = await workspace.deliveries("deduped")
    (event,) = await workspace.events("dedup_suppressed")
    assert row["delivery_id"] == event["delivery_id"] != first
    assert (row["attempt"], row["sent_at"], row["trace_id"]) == (0, None, pushed["trace_id"])
    assert (event["attempt"], event["result"], event["channel_id"]) == (0, "ok", "c1")
    assert event["meta"]["trace_id"] == str(pushed["trace_id"]) and event["meta"]["run_id"] == str(pushed["run_id"])
    workspace.wait(days=1)
    assert await workspace.take() == []


async def test_a_message_keeps_what_was_seen_first_and_counts_the_rest(workspace: Autopost) -> None:
    await workspace.channel()
    first = await workspace.push({"text": "hi", "source": {"n": 1}, "source_ref": "one", "tags": ["a"]})
    began = workspace.now
    workspace.wait(hours=1)
    second = await workspace.push({"text": " hi", "source": {"n": 2}, "source_ref": "two", "tags": ["a"]})
    third = await workspace.push({"text": "hi", "tags": ["a"]})
    assert first["message_id"] == second["message_id"] == third["message_id"]
    (message,) = await workspace.sql("select * from autopost.messages where workspace_id = %s", workspace.workspace)
    assert (message["payload"]["text"], message["source"], message["source_ref"]) == ("hi", {"n": 1}, "one")
    assert (message["first_seen_trace_id"], message["first_ingest_run_id"]) == (first["trace_id"], first["run_id"])
    assert (message["last_ingest_run_id"], message["seen_count"]) == (third["run_id"], 3)
    assert (message["created_at"], message["last_seen_at"]) == (began, workspace.now)


async def test_one_message_per_workspace_hash_version_and_hash(workspace: Autopost) -> None:
    await workspace.push("hi")
    with pytest.raises(psycopg.errors.UniqueViolation):
        await workspace.sql(
            "insert into autopost.messages (workspace_id, message_id, content_hash, payload, first_seen_trace_id,"
            " first_ingest_run_id, last_seen_at, last_ingest_run_id) select workspace_id, gen_random_uuid(), content_hash,"
            " payload, first_seen_trace_id, first_ingest_run_id, last_seen_at, last_ingest_run_id"
            " from autopost.messages where workspace_id = %s",
            workspace.workspace,
        )  # fmt: skip


async def test_other_tags_the_second_time_are_noted_and_route_nothing(workspace: Autopost) -> None:
    await workspace.channel("ru", route_filter={"include_any": ["ru"]})
    await workspace.channel("en", route_filter={"include_any": ["en"]})
    first = await workspace.push({"text": "hi", "tags": ["ru"]})
    assert (first["enqueued"], first["routed_by_tags"], first["warnings"]) == (1, None, [])
    second = await workspace.push({"text": "hi", "tags": ["en"]})
    assert (second["enqueued"], second["suppressed"]) == (0, 1), "routed to the channel of the first tags"
    assert second["routed_by_tags"] == ["ru"]
    assert second["warnings"] == ["the same post came before with other tags; it is routed by those"]
    (event,) = await workspace.events("message_tag_mismatch")
    assert (event["message_id"], event["delivery_id"], event["attempt"]) == (first["message_id"], None, 0)
    assert (event["meta"]["first_seen"], event["meta"]["now"]) == (["ru"], ["en"])
    assert event["meta"]["trace_id"] == str(second["trace_id"])
    assert await workspace.value("select tags from autopost.messages where workspace_id = %s", workspace.workspace) == [
        "ru"
    ]


async def test_the_trace_of_each_push_is_kept_with_its_own_deliveries(workspace: Autopost) -> None:
    await workspace.channel("c1")
    first = await workspace.push("hi")
    await workspace.channel("c2")
    second = await workspace.push("hi")
    traces = {row["channel_id"]: row["trace_id"] for row in await workspace.deliveries("queued")}
    assert traces == {"c1": first["trace_id"], "c2": second["trace_id"]}
    events = {event["channel_id"]: event["meta"]["trace_id"] for event in await workspace.events("enqueue")}
    assert events == {channel_id: str(trace) for channel_id, trace in traces.items()}


async def requeue(workspace: Autopost, delivery_id: UUID) -> None:
    """As the runbook does it."""
    await workspace.sql(
        "update autopost.deliveries set status = 'retry', next_retry_at = %s, updated_at = %s"
        " where workspace_id = %s and delivery_id = %s",
        workspace.now, workspace.now, workspace.workspace, delivery_id,
    )  # fmt: skip


@pytest.mark.parametrize("rate", [None, 10], ids=["free", "paced"])
async def test_a_requeued_row_that_was_overtaken_is_dropped(workspace: Autopost, rate: float | None) -> None:
    await workspace.channel(rate_rps=rate)
    await workspace.push("hi")
    await move_to(workspace, "dead")
    (dead,) = await workspace.deliveries()
    workspace.wait(minutes=1)
    await send(workspace)
    await requeue(workspace, dead["delivery_id"])
    assert await workspace.take() == []
    row = await workspace.delivery(dead["delivery_id"])
    assert (row["status"], row["next_retry_at"], row["attempt"]) == ("deduped", None, 1)
    (event,) = await workspace.events("dedup_suppressed")
    assert (event["delivery_id"], event["attempt"], event["meta"]["reason"]) == (dead["delivery_id"], 1, WITHIN_TTL)


async def test_a_requeued_row_goes_out_once_the_window_is_over(workspace: Autopost) -> None:
    await workspace.channel(dedup_ttl_hours=1)
    await workspace.push("hi")
    await move_to(workspace, "failed_permanent")
    (failed,) = await workspace.deliveries()
    await send(workspace)
    workspace.wait(hours=1, microseconds=1)
    await requeue(workspace, failed["delivery_id"])
    assert [row["delivery_id"] for row in await workspace.take()] == [failed["delivery_id"]]


@pytest.mark.parametrize("status", ["queued", "claimed", "sending", "retry"])
async def test_a_requeued_row_gives_way_to_the_same_post_under_way(workspace: Autopost, status: str) -> None:
    """Whichever of the two is looked at first: exactly one goes out."""
    await workspace.channel(max_parallel=2)
    await workspace.push("hi")
    await move_to(workspace, "dead")
    (dead,) = await workspace.deliveries()
    await workspace.policy(max_attempts=5)
    workspace.wait(minutes=1)
    await workspace.push("hi")
    await move_to(workspace, status)
    await requeue(workspace, dead["delivery_id"])
    workspace.wait(hours=1)
    begun = await workspace.take() + await workspace.take()
    for row in begun:
        await workspace.sent(row["delivery_id"], row["lease"])
    begun += await workspace.take()
    assert len(begun) == (0 if status == "sending" else 1)
    assert (await workspace.delivery(dead["delivery_id"]))["status"] in ("deduped", "sent")
    assert (await workspace.statuses())["deduped"] == 1


async def test_a_row_refused_at_the_door_and_requeued_gives_way_too(workspace: Autopost) -> None:
    """It was never tried, but it comes back: the channel's send_mode was put right meanwhile, and the post sent."""
    await workspace.channel(send_mode="media")
    await workspace.push("hi")
    (failed,) = await workspace.deliveries("failed_permanent")
    await workspace.sql("update autopost.channels set send_mode = 'text' where workspace_id = %s", workspace.workspace)
    workspace.wait(minutes=1)
    await send(workspace)
    await requeue(workspace, failed["delivery_id"])
    assert await workspace.take() == []
    assert await workspace.statuses() == {"sent": 1, "deduped": 1}


async def test_of_two_requeued_rows_of_one_post_the_older_goes_out(workspace: Autopost) -> None:
    await workspace.channel(max_parallel=2)
    dead = []
    for _ in range(2):
        await workspace.push("hi")
        await move_to(workspace, "dead")
        dead = [row["delivery_id"] for row in await workspace.deliveries("dead")]
        workspace.wait(minutes=1)
    for delivery_id in dead:
        await requeue(workspace, delivery_id)
    assert [row["delivery_id"] for row in await workspace.take()] == dead[:1]
    assert (await workspace.delivery(dead[1]))["status"] == "deduped"
