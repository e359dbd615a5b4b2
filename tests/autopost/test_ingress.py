"""The gates in front of the queue: whose door it is, how fast it may be used, and what came through it before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from doors import admit, arrive, door, opened_by, refuse, retry_after, rotate

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16


# Whose door


async def test_a_secret_opens_the_one_enabled_endpoint_of_its_kind(workspace: Autopost) -> None:
    secret = f"{workspace.workspace}/door"
    await door(workspace, max_payload_bytes=99)
    assert await opened_by(workspace, secret) == [(workspace.workspace, "door")]
    assert await opened_by(workspace, secret, "bot_webhook") == [], "a secret of the wrong kind opens nothing"
    assert await opened_by(workspace, "unknown") == []
    rows = await workspace.sql("select * from autopost.resolve_endpoint('webhook_push', %s)", secret)
    assert rows[0]["max_payload_bytes"] == 99


async def test_a_disabled_endpoint_opens_nothing(workspace: Autopost) -> None:
    await door(workspace, enabled=False)
    assert await opened_by(workspace, f"{workspace.workspace}/door") == []


@pytest.mark.parametrize(("status", "doors", "enqueued"), [("active", 1, 1), ("paused", 1, 1), ("disabled", 0, None)])
async def test_a_paused_workspace_takes_posts_and_a_disabled_one_does_not(
    workspace: Autopost, status: str, doors: int, enqueued: int | None
) -> None:
    await workspace.channel()
    await door(workspace)
    await workspace.sql("update core.workspaces set status = %s where workspace_id = %s", status, workspace.workspace)
    assert len(await opened_by(workspace, f"{workspace.workspace}/door")) == doors
    if enqueued:
        assert (await workspace.push("hi"))["enqueued"] == enqueued
        return
    with pytest.raises(psycopg.Error, match="it is disabled") as refused:
        await workspace.push("hi")
    assert refused.value.sqlstate == "VN001"
    assert await workspace.deliveries() == []


async def test_a_post_into_a_workspace_that_is_not_there_is_refused_by_name(workspace: Autopost) -> None:
    nowhere = type(workspace)(workspace.connection, workspace.workspace + "x")
    with pytest.raises(psycopg.Error, match="no workspace") as refused:
        await nowhere.push("hi")
    assert refused.value.sqlstate == "VN001"


async def test_one_secret_opens_one_door_and_may_come_back_once_the_old_one_is_shut(workspace: Autopost) -> None:
    await door(workspace, "a", secret_hash=f"{workspace.workspace}/s")
    with pytest.raises(psycopg.errors.UniqueViolation):
        await door(workspace, "b", secret_hash=f"{workspace.workspace}/s")
    await door(workspace, "other-kind", kind="bot_webhook", secret_hash=f"{workspace.workspace}/s")
    await door(workspace, "history", enabled=False, secret_hash=f"{workspace.workspace}/s")
    await workspace.sql(
        "update autopost.workspace_endpoints set enabled = false where workspace_id = %s and endpoint_id = 'a'",
        workspace.workspace,
    )
    await door(workspace, "b", secret_hash=f"{workspace.workspace}/s")
    assert await opened_by(workspace, f"{workspace.workspace}/s") == [(workspace.workspace, "b")]


async def test_rotation_opens_the_new_door_and_keeps_the_old_row(workspace: Autopost) -> None:
    old, new = f"{workspace.workspace}/door", f"{workspace.workspace}/new"
    await door(workspace, ingress_rps=7, max_payload_bytes=1000, hash_drop_window_sec=3)
    assert await rotate(workspace, "door", new) == "door-v2"
    assert await opened_by(workspace, old) == []
    assert await opened_by(workspace, new) == [(workspace.workspace, "door-v2")]
    rows = await workspace.sql(
        "select * from autopost.workspace_endpoints where workspace_id = %s order by endpoint_id", workspace.workspace
    )
    assert [(row["endpoint_id"], row["enabled"], row["secret_hash"]) for row in rows] == [
        ("door", False, old), ("door-v2", True, new),
    ]  # fmt: skip
    kept = ("kind", "ingress_rps", "max_payload_bytes", "hash_drop_window_sec")
    assert [rows[0][key] for key in kept] == [rows[1][key] for key in kept]
    assert rows[1]["meta"] == {"rotated_from": "door"}
    assert await rotate(workspace, "door-v2", new + "er") == "door-v3"


async def test_rotation_to_a_secret_in_use_changes_nothing(workspace: Autopost) -> None:
    await door(workspace)
    await door(workspace, "second")
    with pytest.raises(psycopg.errors.UniqueViolation):
        await rotate(workspace, "door", f"{workspace.workspace}/second")
    assert len(await opened_by(workspace, f"{workspace.workspace}/door")) == 1


@pytest.mark.parametrize("prepare", ["missing", "disabled"])
async def test_only_an_open_door_can_be_rotated(workspace: Autopost, prepare: str) -> None:
    if prepare == "disabled":
        await door(workspace, enabled=False)
    with pytest.raises(psycopg.Error, match="no enabled endpoint door") as refused:
        await rotate(workspace, "door", "new")
    assert refused.value.sqlstate == "VN001"


# How fast


async def test_a_door_lets_its_rate_through_and_not_one_more(workspace: Autopost) -> None:
    await door(workspace, ingress_rps=5)
    assert await admit(workspace, 3) == 3
    assert await admit(workspace, 3) == 2, "what still fits passes, the rest does not"
    assert await admit(workspace) == 0
    workspace.wait(milliseconds=199)
    assert await admit(workspace) == 0
    workspace.wait(milliseconds=1)
    assert await admit(workspace, 9) == 1


async def test_a_request_every_third_of_a_second_passes_a_door_of_three(workspace: Autopost) -> None:
    """A third is no whole number of microseconds."""
    await door(workspace, ingress_rps=3)
    assert await admit(workspace, 9) == 3
    for _ in range(3):
        workspace.wait(microseconds=333_333)
        assert await admit(workspace, 9) == 1


@pytest.mark.parametrize("rps", [0.5, 1, 3, 2.5, 7])
async def test_in_any_window_at_most_the_rate_and_one_burst_pass(workspace: Autopost, rps: float) -> None:
    await door(workspace, ingress_rps=rps)
    passed, began = 0, workspace.now
    for _ in range(60):
        passed += await admit(workspace)
        workspace.wait(milliseconds=90)
    seconds = (workspace.now - began).total_seconds()
    assert rps * seconds - 1 <= passed <= rps * seconds + max(rps, 1)


async def test_a_refused_request_is_told_when_to_come_again(workspace: Autopost) -> None:
    await door(workspace, ingress_rps=2)
    assert await admit(workspace, 2) == 2
    assert await admit(workspace) == 0
    wait = await retry_after(workspace)
    assert wait == 0.5
    workspace.wait(seconds=wait)
    assert await retry_after(workspace) == 0
    assert await admit(workspace) == 1


async def test_doors_do_not_share_their_rate(workspace: Autopost) -> None:
    await door(workspace, "a", ingress_rps=1)
    await door(workspace, "b", ingress_rps=1)
    assert await admit(workspace, 5, "a") == await admit(workspace, 5, "b") == 1


async def test_the_rate_of_a_door_that_is_not_there_is_an_error(workspace: Autopost) -> None:
    with pytest.raises(psycopg.Error, match="no endpoint door") as refused:
        await admit(workspace)
    assert refused.value.sqlstate == "VN001"


async def test_admission_touches_one_small_table(workspace: Autopost) -> None:
    await door(workspace)
    before = await workspace.sql(
        "select * from autopost.workspace_endpoints where workspace_id = %s", workspace.workspace
    )
    await admit(workspace)
    after = await workspace.sql(
        "select * from autopost.workspace_endpoints where workspace_id = %s", workspace.workspace
    )
    assert before == after
    for table in ("messages", "events", "ingest_runs", "ingress_receipts"):
        assert not await workspace.sql(f"select 1 from autopost.{table} where workspace_id = %s", workspace.workspace)


# What stays of it


async def test_refusals_are_kept_as_one_event_per_door_second_and_reason(workspace: Autopost) -> None:
    await door(workspace)
    for _ in range(3):
        await refuse(workspace, "ingress_rate_limited", "rate", 5)
        workspace.wait(milliseconds=300)
    await refuse(workspace, "ingress_payload_rejected", "too_large")
    await refuse(workspace, "ingress_payload_rejected", "invalid")
    workspace.wait(seconds=1)
    await refuse(workspace, "ingress_dedup_dropped", "seen_before", 2)
    found = [
        (e["action"], e["meta"]["reason"], e["meta"]["count"], e["result"], e["attempt"])
        for e in await workspace.events()
    ]
    assert sorted(found) == [
        ("ingress_dedup_dropped", "seen_before", 2, "ok", 0),
        ("ingress_payload_rejected", "invalid", 1, "error", 0),
        ("ingress_payload_rejected", "too_large", 1, "error", 0),
        ("ingress_rate_limited", "rate", 15, "error", 0),
    ]
    assert {e["meta"]["endpoint_id"] for e in await workspace.events()} == {"door"}


async def test_drops_and_accepts_are_counted_in_ingest_runs(workspace: Autopost) -> None:
    await door(workspace)
    await arrive(workspace, {"text": "a"}, {"text": "b"}, {"text": 3})
    await refuse(workspace, "ingress_rate_limited", "rate", 4)
    await refuse(workspace, "ingress_payload_rejected", "invalid", 1)
    await refuse(workspace, "ingress_dedup_dropped", "seen_before", 2)
    await refuse(workspace, "ingress_dedup_dropped", "seen_before", 2)
    runs = await workspace.sql("select * from autopost.ingest_runs where workspace_id = %s", workspace.workspace)
    totals = {
        key: sum(run["stats_json"].get(key, 0) for run in runs)
        for key in ("accepted", "rate_limited", "payload_rejected", "dedup_dropped")
    }
    assert totals == {"accepted": 2, "rate_limited": 4, "payload_rejected": 1, "dedup_dropped": 4}
    assert len(runs) == 2
    assert {(run["kind"], run["stats_json"]["endpoint_id"]) for run in runs} == {("push", "door")}
    assert all(run["finished_at"] >= run["started_at"] for run in runs)


async def test_calls_that_share_a_run_add_up_in_it(workspace: Autopost) -> None:
    run = await workspace.value("select gen_random_uuid()")
    for text in ("a", "b", "c"):
        await workspace.sql(
            "select * from enqueue_messages_and_deliveries(%s, null, 'pull', jsonb_build_object('text', %s::text), %s, %s)",
            workspace.workspace, text, workspace.now, run,
        )  # fmt: skip
    (row,) = await workspace.sql("select * from autopost.ingest_runs where workspace_id = %s", workspace.workspace)
    assert (row["run_id"], row["kind"], row["stats_json"]["accepted"]) == (run, "pull", 3)
