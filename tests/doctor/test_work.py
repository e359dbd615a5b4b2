"""What the doctor sees of the work: stuck rows, what nobody takes, what was given up, who is alive."""

from __future__ import annotations

import psycopg
import pytest
from clinic import Clinic
from psycopg.types.json import Jsonb

from vestnik.doctor.work import PROCESSES, WORK


async def test_a_workspace_without_trouble_is_in_order(clinic: Clinic) -> None:
    await clinic.channel("news")
    await clinic.push()
    for check in WORK:
        assert (await clinic.one(WORK, check.name)).status == "ok", check.name


@pytest.mark.parametrize("status", ["sending", "claimed"])
async def test_rows_beyond_their_lease_are_stuck(clinic: Clinic, status: str) -> None:
    await clinic.channel("news", **({} if status == "sending" else {"rate_rps": 1000.0}))
    await clinic.push()
    if status == "sending":
        await clinic.sql("select autopost.claim_and_begin('shop', 'run', 10)")
        await clinic.sql("update autopost.deliveries set sending_started_at = now() - interval '7 minutes'")
    else:
        await clinic.sql("select autopost.claim_deliveries('shop', 'run', 10)")
        await clinic.sql("update autopost.deliveries set claimed_at = now() - interval '7 minutes'")
    found = await clinic.one(WORK, "work.sending")
    assert (found.status, found.subject, found.workspace_id) == ("warn", status, "shop"), found
    assert "release-stuck shop" in (found.fix or "")


async def test_what_is_due_with_no_gate_in_its_way_is_waiting_for_nobody(clinic: Clinic) -> None:
    await clinic.channel("news")
    await clinic.push()
    await clinic.sql("update autopost.deliveries set not_before = now() - interval '10 minutes'")
    found = await clinic.one(WORK, "work.waiting")
    assert found.status == "fail" and found.said == "a delivery is due for 10 minutes, and nobody takes it"
    await clinic.sql("update autopost.channels set paused_until = now() + interval '1 hour'")
    assert (await clinic.one(WORK, "work.waiting")).status == "ok", "it is paused, which is a reason"
    await clinic.sql("update autopost.channels set paused_until = null")
    await clinic.sql(
        "insert into autopost.platform_limits (workspace_id, platform, rate_group, cooldown_until)"
        " values ('shop', 'telegram', 'bot', 'infinity')"
    )
    assert (await clinic.one(WORK, "work.waiting")).status == "ok", (
        "its group cools, which only the delivery itself tells"
    )
    await clinic.sql("delete from autopost.platform_limits")
    await clinic.sql("update core.workspaces set status = 'paused'")
    assert (await clinic.one(WORK, "work.waiting")).status == "ok", "its workspace is"


async def test_a_role_is_alive_when_it_listens(clinic: Clinic, database: str) -> None:
    await clinic.channel("news")
    found = {each.subject: each for each in await clinic.look(PROCESSES, "work.processes")}
    assert {name: each.status for name, each in found.items()} == {"dispatcher": "warn", "jobs": "warn"}
    await clinic.push()
    found = {each.subject: each for each in await clinic.look(PROCESSES, "work.processes")}
    assert found["dispatcher"].status == "fail" and found["jobs"].status == "warn"
    name = "vestnik dispatcher listen"
    async with await psycopg.AsyncConnection.connect(database, application_name=name):
        found = {each.subject: each for each in await clinic.look(PROCESSES, "work.processes")}
        assert (found["dispatcher"].status, found["dispatcher"].said) == ("ok", "1 runs")


async def test_what_was_given_up_is_counted_with_its_reason(clinic: Clinic) -> None:
    await clinic.channel("news")
    await clinic.push()
    row = (await clinic.sql("select delivery_id, lease from autopost.claim_and_begin('shop', 'run', 10)"))[0]
    error = Jsonb({"code": "message_too_long", "scope": "delivery", "category": "PERMANENT"})
    await clinic.sql("select autopost.fail_permanent('shop', %s, %s, %s)", row["delivery_id"], error, row["lease"])
    found = await clinic.one(WORK, "work.failures")
    assert found.status == "warn" and "1 delivery of the last day ended failed_permanent" in found.said
    assert "message_too_long" in found.said and "by a new push only" in (found.fix or "")
    await clinic.sql("update autopost.deliveries set updated_at = now() - interval '2 days'")
    assert (await clinic.one(WORK, "work.failures")).status == "ok"


async def test_channels_that_refusals_have_shut_are_named(clinic: Clinic) -> None:
    await clinic.channel("a", target_id="1", enabled=False, error_streak=3)
    await clinic.channel("b", target_id="2", paused_until="infinity", error_streak=1)
    await clinic.channel("c", target_id="3", enabled=False)
    found = await clinic.one(WORK, "work.channels")
    assert found.status == "warn" and found.said.startswith("1 channel disabled, 1 paused after refusals, such as a")


async def test_dead_letters_of_jobs_show_by_kind(clinic: Clinic) -> None:
    await clinic.sql(
        "insert into ops.jobs (workspace_id, job_id, kind, status) values ('shop', core.uuid7(now()), 'media.fetch', 'dead')"
    )
    found = await clinic.one(WORK, "work.jobs")
    assert (found.status, found.subject, found.said) == ("warn", "media.fetch", "1 dead letter of media.fetch")
    assert (await clinic.one(WORK, "work.jobs", workspace_id="other")).status == "ok"


async def test_an_alert_that_is_on_is_repeated(clinic: Clinic) -> None:
    await clinic.sql("select ops.put_alert('shop', 'deliveries.dead', '', 'critical', '3 deliveries are dead', '{}')")
    found = await clinic.one(WORK, "work.alerts")
    assert found.status == "warn" and found.subject == "deliveries.dead" and "3 deliveries are dead" in found.said
    await clinic.sql("select ops.clear_alert('shop', 'deliveries.dead', '')")
    assert (await clinic.one(WORK, "work.alerts")).status == "ok"


async def test_one_that_a_gate_holds_does_not_hide_another(clinic: Clinic) -> None:
    await clinic.channel("cooling", target_id="1", rate_group="tired")
    await clinic.channel("open", target_id="2")
    await clinic.sql(
        "insert into autopost.platform_limits (workspace_id, platform, rate_group, cooldown_until)"
        " values ('shop', 'telegram', 'tired', 'infinity')"
    )
    await clinic.push()
    await clinic.sql(
        "update autopost.deliveries set not_before = now() - interval '1 hour' - interval '1 hour' * (channel_id = 'cooling')::integer"
    )
    found = await clinic.one(WORK, "work.waiting")
    assert found.status == "fail" and found.said.startswith("a delivery is due for 60 minutes")
