"""The log: every change of state is in it, with the attempt it belongs to, and no write fails for lack of a day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16


async def a_whole_life(workspace: Autopost) -> Any:
    """enqueue, try, 503, try, lost, try, sent; the same post again; a bad one; one refused, one given up."""
    await workspace.policy(max_attempts=3)
    await workspace.channel("c1")
    await workspace.channel("mx", platform="max")
    await workspace.push("hi")
    workspace.wait(seconds=1)
    rows = {row["channel_id"]: row for row in await workspace.take()}
    workspace.wait(seconds=1)
    await workspace.fail(rows["mx"]["delivery_id"], {"scope": "channel", "code": "403"}, 1)
    await workspace.retry(rows["c1"]["delivery_id"], lease=1)
    workspace.wait(minutes=2)
    await workspace.take()
    workspace.wait(minutes=6)
    await workspace.sweep()
    workspace.wait(minutes=1)
    await workspace.claim()
    workspace.wait(minutes=6)
    await workspace.sweep()
    workspace.wait(seconds=1)
    await workspace.take()
    workspace.wait(seconds=1)
    await workspace.sent(rows["c1"]["delivery_id"], 3)
    await workspace.push("hi")
    await workspace.push("Ж" * 4097)
    return rows


async def test_every_change_of_state_has_its_event(workspace: Autopost) -> None:
    rows = await a_whole_life(workspace)
    story = [
        (event["action"], event["attempt"])
        for event in await workspace.events() if event["delivery_id"] == rows["c1"]["delivery_id"]
    ]  # fmt: skip
    assert story == [
        ("enqueue", 0),
        ("send_attempt", 1),
        ("retry_scheduled", 1),
        ("send_attempt", 2),
        ("sending_lease_expired", 2),
        ("claimed_lease_expired", 2),
        ("send_attempt", 3),
        ("sent", 3),
    ]


async def test_an_event_has_the_attempt_of_its_delivery_or_none(workspace: Autopost) -> None:
    rows = await a_whole_life(workspace)
    events = await workspace.events()
    attempts: dict[Any, int] = {}
    for event in events:
        if event["delivery_id"] is None:
            assert event["attempt"] == 0, event["action"]
        else:
            now = attempts.get(event["delivery_id"], 0) + (event["action"] == "send_attempt")
            attempts[event["delivery_id"]] = now
            assert event["attempt"] == now, event["action"]
    assert attempts[rows["c1"]["delivery_id"]] == 3
    by_action = {event["action"]: event for event in events}
    assert {by_action[action]["attempt"] for action in ("enqueue", "dedup_suppressed", "validation_failed")} == {0}
    assert by_action["channel_paused"]["delivery_id"] is None


async def test_every_event_of_a_delivery_names_its_trace_its_message_and_its_channel(workspace: Autopost) -> None:
    await a_whole_life(workspace)
    deliveries = {row["delivery_id"]: row for row in await workspace.deliveries()}
    told = [event for event in await workspace.events() if event["delivery_id"]]
    for event in told:
        row = deliveries[event["delivery_id"]]
        assert (event["message_id"], event["channel_id"]) == (row["message_id"], row["channel_id"])
        assert event["meta"]["trace_id"] == str(row["trace_id"])
    assert {event["delivery_id"] for event in told} == set(deliveries)


async def test_errors_are_results_with_an_error_and_the_rest_is_ok(workspace: Autopost) -> None:
    await a_whole_life(workspace)
    wrong = {event["action"] for event in await workspace.events() if event["result"] == "error"}
    right = {event["action"] for event in await workspace.events() if event["result"] == "ok"}
    assert wrong == {
        "retry_scheduled", "sending_lease_expired", "claimed_lease_expired", "failed_permanent", "channel_paused",
        "validation_failed",
    }  # fmt: skip
    assert right == {"enqueue", "send_attempt", "sent", "dedup_suppressed"}
    for event in await workspace.events("retry_scheduled", "failed_permanent", "validation_failed"):
        assert event["error"].keys() >= {"category", "scope", "code"}


async def test_a_state_and_its_event_are_written_together_or_not_at_all(workspace: Autopost) -> None:
    await workspace.channel()
    with pytest.raises(psycopg.errors.CheckViolation):
        async with workspace.connection.transaction():
            # A log that takes nothing: the state must not change without it.
            await workspace.sql("alter table autopost.events add constraint shut check (workspace_id <> %s) not valid"
                                .replace("%s", f"'{workspace.workspace}'"))  # fmt: skip
            await workspace.push("hi")
    assert await workspace.deliveries() == [] == await workspace.events()


@pytest.mark.parametrize("action", ["", "enqueued", "SENT"])
async def test_an_action_that_nobody_knows_cannot_be_written(workspace: Autopost, action: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        await workspace.sql(
            "insert into autopost.events (workspace_id, id, action) values (%s, gen_random_uuid(), %s)",
            workspace.workspace, action,
        )  # fmt: skip


SPECIFIED = """
enqueue validation_failed send_attempt sent retry_scheduled dedup_suppressed failed_permanent dead_letter channel_paused
channel_disabled channel_enabled message_tag_mismatch sending_lease_expired claimed_lease_expired manual_requeue auth_rotated
ingress_rate_limited ingress_payload_rejected ingress_dedup_dropped
"""


async def test_every_action_of_the_specification_can_be_written(workspace: Autopost) -> None:
    await workspace.sql(
        "insert into autopost.events (workspace_id, id, action) select %s, gen_random_uuid(), unnest(%s::text[])",
        workspace.workspace, SPECIFIED.split(),
    )  # fmt: skip
    assert len(await workspace.events()) == 19


async def test_the_log_refers_to_rows_without_holding_them(workspace: Autopost) -> None:
    """No foreign keys: it is written fast, and it outlives what it tells of."""
    keys = await workspace.value(
        "select count(*) from pg_constraint where contype = 'f' and conrelid = 'autopost.events'::regclass"
    )
    assert keys == 0
    await workspace.channel()
    await workspace.push("hi")
    await workspace.sql("delete from autopost.deliveries where workspace_id = %s", workspace.workspace)
    assert len(await workspace.events("enqueue")) == 1


# Days


@pytest.mark.parametrize("year", [1970, 1999, 2027, 2099, 9999])
async def test_no_write_fails_for_lack_of_a_partition(workspace: Autopost, year: int) -> None:
    workspace.now = datetime(year, 6, 1, tzinfo=UTC)
    await workspace.channel()
    await workspace.push("hi")
    assert len(await workspace.take()) == 1
    assert [event["ts"].year for event in await workspace.events()] == [year, year]


async def ensure(autopost: Autopost, ahead: int = 14) -> int:
    return await autopost.value("select autopost.ensure_event_partitions(%s, %s)", autopost.now, ahead)


async def partitions(autopost: Autopost) -> dict[str, str]:
    rows = await autopost.sql(
        "select c.relname as name, pg_get_expr(c.relpartbound, c.oid) as bounds from pg_inherits i"
        " join pg_class c on c.oid = i.inhrelid where i.inhparent = 'autopost.events'::regclass"
    )
    return {row["name"]: row["bounds"] for row in rows}


async def lying_in(autopost: Autopost) -> dict[str, int]:
    rows = await autopost.sql("select tableoid::regclass::text as name, count(*) as n from autopost.events group by 1")
    return {row["name"].removeprefix("autopost."): row["n"] for row in rows}


async def test_days_are_made_ahead_and_only_once(autopost: Autopost) -> None:
    autopost.now = datetime(2031, 5, 1, 22, 30, tzinfo=UTC)
    before = await partitions(autopost)
    assert await ensure(autopost) == 16
    made = (await partitions(autopost)).keys() - before.keys()
    assert min(made) == "events_20310430" and max(made) == "events_20310515" and len(made) == 16
    assert await ensure(autopost) == 0
    autopost.wait(hours=1, minutes=30)
    assert await ensure(autopost) == 1, "one more day after midnight, in UTC"
    await autopost.channel()
    await autopost.push("hi")
    assert await lying_in(autopost) == {"events_20310502": 1}


async def test_days_begin_and_end_at_midnight_in_utc_whatever_the_sessions_time_zone(autopost: Autopost) -> None:
    autopost.now = datetime(2031, 5, 1, 22, 30, tzinfo=UTC)
    await autopost.sql("set timezone = 'Asia/Vladivostok'")
    await ensure(autopost, 0)
    await autopost.sql("set timezone = 'UTC'")
    assert (await partitions(autopost))["events_20310501"] == (
        "FOR VALUES FROM ('2031-05-01 00:00:00+00') TO ('2031-05-02 00:00:00+00')"
    )


async def test_a_day_that_the_default_partition_holds_is_drained_by_a_person(autopost: Autopost) -> None:
    await autopost.channel()
    for _ in range(2):
        await autopost.push(f"post {autopost.now}")
        autopost.wait(days=1)
    assert await lying_in(autopost) == {"events_default": 2}
    autopost.wait(days=-1)
    assert await ensure(autopost, 1) == 1, "tomorrow; yesterday and today have rows in the default partition"
    before = await autopost.events()
    assert await autopost.value("select autopost.drain_default_partition()") == 2
    assert await lying_in(autopost) == {"events_20270301": 1, "events_20270302": 1}
    assert await autopost.events() == before
    assert await autopost.value("select autopost.drain_default_partition()") == 0
    indexes = await autopost.sql(
        "select tablename as name, count(*) as n from pg_indexes where tablename in ('events_20270301', 'events_20270303')"
        " group by 1"
    )
    assert len({row["n"] for row in indexes}) == 1 and len(indexes) == 2, "a drained day has the indexes of any other"


async def test_while_one_makes_the_days_the_others_leave(autopost: Autopost, database: str) -> None:
    autopost.now += timedelta(days=900)
    async with await psycopg.AsyncConnection.connect(database) as busy:
        await busy.execute("select autopost.ensure_event_partitions(%s, 0)", (autopost.now,))
        await autopost.sql("set lock_timeout = '2s'")
        assert await ensure(autopost) == 0
        await busy.commit()
    assert await ensure(autopost) == 14
