"""What a dead or hanging dispatcher leaves behind comes back by itself, and only that."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from psycopg import AsyncConnection

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16


async def under_way(workspace: Autopost, count: int = 1, **columns: Any) -> list[Any]:
    await workspace.channel(**{"max_parallel": count} | columns)
    for n in range(count):
        await workspace.push(f"post {n}")
    return await workspace.take()


async def claims(workspace: Autopost, count: int = 1, **columns: Any) -> None:
    """A second after the posts came in: their slots are not their places in the queue."""
    await workspace.channel(**columns)
    for n in range(count):
        await workspace.push(f"post {n}")
    workspace.wait(seconds=1)
    assert len(await workspace.claim()) == count


async def close(workspace: Autopost, column: str, value: Any) -> None:
    await workspace.sql(
        f"update autopost.channels set {column} = %s where workspace_id = %s", value, workspace.workspace
    )


# Sends


async def test_a_send_whose_lease_ran_out_is_tried_again_shortly(workspace: Autopost) -> None:
    (row,) = await under_way(workspace)
    workspace.wait(seconds=300)
    assert await workspace.sweep() == (0, 0), "to the second"
    workspace.wait(microseconds=1)
    assert await workspace.sweep() == (1, 0)
    found = await workspace.delivery(row["delivery_id"])
    assert (found["status"], found["next_retry_at"]) == ("retry", workspace.now + timedelta(seconds=15))
    assert (found["attempt"], found["lease"], found["settled_lease"]) == (1, 1, 0), "the attempt is not counted again"
    assert (found["claimed_at"], found["claim_token"], found["sending_started_at"]) == (None, None, None)
    assert (found["last_error"]["code"], found["last_error"]["outcome"]) == ("lease_expired", "unknown")
    (event,) = await workspace.events("sending_lease_expired")
    assert (event["delivery_id"], event["attempt"], event["result"]) == (row["delivery_id"], 1, "error")
    assert event["meta"] == {"trace_id": str(row["trace_id"]), "lease": 1}
    assert await workspace.sweep() == (0, 0), "and only once"


async def test_a_send_lost_on_the_last_attempt_is_dead(workspace: Autopost) -> None:
    await workspace.policy(max_attempts=1)
    (row,) = await under_way(workspace)
    workspace.wait(seconds=301)
    assert await workspace.sweep() == (1, 0)
    found = await workspace.delivery(row["delivery_id"])
    assert (found["status"], found["attempt"], found["next_retry_at"]) == ("dead", 1, None)
    actions = sorted(event["action"] for event in await workspace.events("sending_lease_expired", "dead_letter"))
    assert actions == ["dead_letter", "sending_lease_expired"]


async def test_where_a_duplicate_is_worse_than_a_gap_an_unknown_outcome_is_held(workspace: Autopost) -> None:
    await workspace.policy(max_attempts=1)
    (row,) = await under_way(workspace, on_unknown="hold")
    workspace.wait(seconds=301)
    assert await workspace.sweep() == (1, 0)
    found = (await workspace.sql(
        "select status, held_at, next_retry_at::text from autopost.deliveries where delivery_id = %s", row["delivery_id"]
    ))[0]  # fmt: skip
    assert found == {"status": "retry", "held_at": workspace.now, "next_retry_at": "infinity"}
    assert len(await workspace.events("held")) == 1
    workspace.wait(days=365)
    assert await workspace.take() == []
    assert (await workspace.push("post 0"))["suppressed"] == 1, "it is still in flight"


async def test_a_held_row_that_a_person_lets_go_is_not_held_any_more(workspace: Autopost) -> None:
    for way in ("take", "claim"):
        (row,) = await under_way(workspace, channel_id=way, target_id=way, on_unknown="hold")
        workspace.wait(seconds=301)
        await workspace.sweep()
        await workspace.sql(
            "update autopost.deliveries set next_retry_at = %s where workspace_id = %s and channel_id = %s",
            workspace.now, workspace.workspace, way,
        )  # fmt: skip
        await getattr(workspace, way)()
        await workspace.begin()
        found = await workspace.delivery(row["delivery_id"])
        assert (found["status"], found["held_at"]) == ("sending", None)
        await workspace.sent(row["delivery_id"], found["lease"])
        await workspace.sql("update autopost.channels set enabled = false where workspace_id = %s", workspace.workspace)


async def test_lost_sends_come_back_from_behind_every_gate(workspace: Autopost) -> None:
    """The places that they fill would never be free again."""
    await under_way(workspace)
    await close(workspace, "enabled", False)
    await close(workspace, "paused_until", "infinity")
    await workspace.sql("update core.workspaces set status = 'paused' where workspace_id = %s", workspace.workspace)
    workspace.wait(seconds=301)
    assert await workspace.sweep() == (1, 0)


async def test_a_sweep_is_bounded_and_pages_on(workspace: Autopost) -> None:
    await under_way(workspace, 5)
    workspace.wait(seconds=301)
    pages = [
        await workspace.value("select autopost.sweep_sending(%s, 2, %s)", workspace.workspace, workspace.now)
        for _ in range(4)
    ]
    assert pages == [2, 2, 1, 0]


async def test_a_sweep_passes_over_rows_that_somebody_holds(workspace: Autopost, worker_database: str) -> None:
    rows = await under_way(workspace, 2)
    workspace.wait(seconds=301)
    async with await AsyncConnection.connect(worker_database) as holder:
        await holder.execute(
            "select 1 from autopost.deliveries where delivery_id = %s for no key update", (rows[0]["delivery_id"],)
        )
        await workspace.sql("set lock_timeout = '2s'")
        assert await workspace.sweep() == (1, 0)
    assert await workspace.sweep() == (1, 0)


async def test_a_sweep_keeps_to_its_workspace(workspace: Autopost) -> None:
    await under_way(workspace)
    neighbour = type(workspace)(workspace.connection, workspace.workspace + "x")
    await neighbour.workspace_row()
    neighbour.now = workspace.now + timedelta(hours=1)
    assert await neighbour.sweep() == (0, 0)


# Claims


async def test_a_claim_that_nobody_begins_goes_back_to_the_queue(workspace: Autopost) -> None:
    await claims(workspace)
    (before,) = await workspace.deliveries()
    workspace.wait(seconds=300)
    assert await workspace.sweep() == (0, 0)
    workspace.wait(microseconds=1)
    assert await workspace.sweep() == (0, 1)
    (found,) = await workspace.deliveries()
    assert (found["status"], found["attempt"], found["lease"]) == ("queued", 0, 0)
    assert (found["claimed_at"], found["claim_token"], found["not_before"]) == (None, None, before["created_at"])
    (event,) = await workspace.events("claimed_lease_expired")
    assert (event["delivery_id"], event["attempt"], event["result"]) == (found["delivery_id"], 0, "error")
    assert await workspace.sweep() == (0, 0)
    assert len(await workspace.take()) == 1


async def test_a_retry_that_was_claimed_and_never_begun_keeps_its_attempts(workspace: Autopost) -> None:
    (row,) = await under_way(workspace)
    await workspace.retry(row["delivery_id"], lease=row["lease"])
    workspace.wait(hours=1)
    await workspace.claim()
    workspace.wait(seconds=301)
    assert await workspace.sweep() == (0, 1)
    (again,) = await workspace.take()
    assert again["attempt"] == 2


async def test_a_claim_whose_slot_has_not_come_is_not_stale(workspace: Autopost) -> None:
    await workspace.policy(claim_horizon="1 hour")
    await claims(workspace, 2, rate_rps=0.001)
    workspace.wait(seconds=301)
    assert await workspace.sweep() == (0, 1)
    assert await workspace.statuses() == {"queued": 1, "claimed": 1}


async def test_claims_of_a_channel_that_is_only_slow_stay(workspace: Autopost) -> None:
    """All its places are taken, and its sends are alive."""
    await claims(workspace, 3)
    workspace.wait(seconds=200)
    (row,) = await workspace.begin()
    workspace.wait(seconds=200)
    assert await workspace.sweep() == (0, 0)
    assert await workspace.statuses() == {"sending": 1, "claimed": 2}
    workspace.wait(seconds=101)
    assert await workspace.sweep() == (1, 2), "its send fell silent: they are stale after all"
    assert (await workspace.delivery(row["delivery_id"]))["status"] == "retry"


async def test_claims_behind_sends_that_fell_silent_are_stale_whoever_is_swept_first(workspace: Autopost) -> None:
    await claims(workspace, 2)
    await workspace.begin()
    workspace.wait(seconds=301)
    assert await workspace.value("select autopost.sweep_claimed(%s, 500, %s)", workspace.workspace, workspace.now) == 1


async def test_claims_of_a_channel_with_a_free_place_are_stale(workspace: Autopost) -> None:
    await claims(workspace, 3, max_parallel=2)
    await workspace.begin(limit=1)
    workspace.wait(seconds=301)
    await workspace.sql("update autopost.deliveries set sending_started_at = %s where workspace_id = %s and status = 'sending'",
                        workspace.now, workspace.workspace)  # fmt: skip
    assert await workspace.sweep() == (0, 2)


@pytest.mark.parametrize(("column", "value"), [("enabled", False), ("paused_until", "infinity")])
async def test_claims_of_a_channel_closed_by_hand_go_back_at_once(workspace: Autopost, column: str, value: Any) -> None:
    await claims(workspace, 2)
    await close(workspace, column, value)
    assert await workspace.sweep() == (0, 2)
    events = await workspace.events("claim_released", "claimed_lease_expired")
    assert {(event["action"], event["result"], event["attempt"]) for event in events} == {("claim_released", "ok", 0)}
    assert await workspace.statuses() == {"queued": 2}


async def test_a_sweep_of_claims_is_bounded(workspace: Autopost) -> None:
    await claims(workspace, 5)
    workspace.wait(seconds=301)
    pages = [
        await workspace.value("select autopost.sweep_claimed(%s, 2, %s)", workspace.workspace, workspace.now)
        for _ in range(4)
    ]
    assert pages == [2, 2, 1, 0]


async def test_waiting_and_finished_rows_are_never_swept(workspace: Autopost) -> None:
    rows = await under_way(workspace, 4)
    await workspace.sent(rows[0]["delivery_id"], 1)
    await workspace.fail(rows[1]["delivery_id"], lease=1)
    await workspace.retry(rows[2]["delivery_id"], lease=1)
    await workspace.sent(rows[3]["delivery_id"], 1)
    await workspace.push("later")
    before = await workspace.deliveries()
    workspace.wait(days=10)
    assert await workspace.sweep() == (0, 0)
    assert await workspace.deliveries() == before
