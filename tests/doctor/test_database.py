"""What the doctor sees of the database as a server."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import psycopg
import pytest
from clinic import Clinic

from vestnik.db.pool import make_pool
from vestnik.doctor import database as checks
from vestnik.doctor.database import DATABASE
from vestnik.doctor.examination import examine
from vestnik.doctor.findings import Check, Finding, Looked, Patient

pytestmark = pytest.mark.pg16


async def test_a_database_of_the_service_is_in_order(clinic: Clinic, pg_version: int) -> None:
    await clinic.sql("select autopost.ensure_event_partitions()")
    found = {each.check: each for each in await examine(clinic.patient(), DATABASE)}
    assert found["database.version"].said.startswith(f"PostgreSQL {pg_version}.")
    # The server of the tests is fast and not durable, which the doctor sees; and its tables were never analyzed.
    wrong = {name for name, each in found.items() if each.status != "ok"}
    assert wrong <= {"database.settings", "database.connections"}


@pytest.mark.parametrize(
    ("options", "subject", "status"),
    [
        ("-c synchronous_commit=off", "synchronous_commit", "fail"),
        ("-c statement_timeout=0", "statement_timeout", "warn"),
        ("-c idle_in_transaction_session_timeout=0", "idle_in_transaction_session_timeout", "warn"),
        ("-c timezone=Europe/Moscow", "timezone", "warn"),
        ("-c default_transaction_read_only=on", "default_transaction_read_only", "fail"),
    ],
)
async def test_a_setting_that_hurts_is_named_with_its_cure(
    clinic: Clinic, database: str, options: str, subject: str, status: str
) -> None:
    async with make_pool(psycopg.conninfo.make_conninfo(database, options=options)) as pool:
        found = await examine(
            replace(clinic.patient(), pool=pool), [c for c in DATABASE if c.name == "database.settings"]
        )
    of = {each.subject: each for each in found}
    assert of[subject].status == status and of[subject].fix


def test_the_settings_of_a_durable_server_are_in_order() -> None:
    good = {
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "on",
        "autovacuum": "on",
        "track_counts": "on",
    }
    good |= {"shared_buffers": "32768", "statement_timeout": "30000", "idle_in_transaction_session_timeout": "30000"}
    good |= {"TimeZone": "UTC", "default_transaction_read_only": "off"}
    assert list(checks._wrong_settings(good)) == []
    for name, bad in (("fsync", "off"), ("full_page_writes", "off"), ("autovacuum", "off"), ("shared_buffers", "1024")):
        assert [each.subject for each in checks._wrong_settings({**good, name: bad})] == [name]


async def test_partitions_that_are_not_ahead_and_events_astray(clinic: Clinic) -> None:
    await clinic.sql("select autopost.ensure_event_partitions(now() - interval '20 days')")
    assert (await clinic.one(DATABASE, "database.partitions")).status == "warn"
    await clinic.sql("select autopost.ensure_event_partitions()")
    found = await clinic.one(DATABASE, "database.partitions")
    assert (found.status, found.said) == ("ok", "events have their days, 14 ahead")
    await clinic.sql(
        "insert into autopost.events (workspace_id, id, ts, action) values ('shop', core.uuid7(now()), '2020-01-01', 'sent')"
    )
    found = await clinic.one(DATABASE, "database.partitions")
    assert found.status == "warn" and "drain_default_partition" in (found.fix or "")


async def test_a_transaction_that_stays_open_is_named(
    clinic: Clinic, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "LONG_TRANSACTION", 0)
    async with await psycopg.AsyncConnection.connect(database, application_name="somebody's report") as reader:
        await reader.execute("select 1")
        found = await clinic.look(DATABASE, "database.transactions")
        one = next(each for each in found if "somebody's report" in each.said)
        assert one.status == "warn" and one.fix == f"end it: select pg_terminate_backend({reader.info.backend_pid})"
        monkeypatch.setattr(checks, "ENDLESS_TRANSACTION", 0)
        found = await clinic.look(DATABASE, "database.transactions")
        assert any(each.status == "fail" and "somebody's report" in each.said for each in found)


async def test_names_without_their_schema_that_find_nothing(clinic: Clinic, database: str) -> None:
    astray = psycopg.conninfo.make_conninfo(database, options="-c search_path=public")
    async with make_pool(astray) as pool:
        check = [c for c in DATABASE if c.name == "database.search_path"]
        (found,) = await examine(replace(clinic.patient(), pool=pool), check)
    assert (found.status, found.said) == ("warn", "names without a schema do not find autopost, core, ops")


async def test_tables_full_of_dead_rows_are_named(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "DEAD_ROWS", 0)
    async with clinic.pool.connection() as connection:
        await connection.execute("alter table core.workspaces set (autovacuum_enabled = off)")
        for _ in range(3):
            await connection.execute("update core.workspaces set name = name || '.'")
        await connection.execute("select pg_stat_force_next_flush()")
        await connection.execute("select 1")
    found = {each.subject: each for each in await clinic.look(DATABASE, "database.bloat")}
    assert found["workspaces"].status == "warn" and "dead rows" in found["workspaces"].said


async def test_a_check_that_hangs_or_breaks_is_a_finding_and_the_others_are_made(clinic: Clinic) -> None:
    async def hang(patient: Patient) -> Looked:
        await asyncio.Event().wait()
        raise AssertionError

    async def lacks(patient: Patient) -> Looked:
        return Finding("ok", str(await patient.value("select n from autopost.no_such_table")))

    async def wrong(patient: Patient) -> Looked:
        return Finding("ok", str(await patient.value("select 1 / 0")))

    async def fine(patient: Patient) -> Looked:
        return Finding("ok", "fine")

    ended: list[str] = []
    made = [Check("hang", hang, patience=0.05), Check("lacks", lacks), Check("wrong", wrong), Check("fine", fine)]
    found = await examine(clinic.patient(), made, lambda check: ended.append(check.name))
    assert [(each.check, each.status) for each in found] == [
        ("hang", "fail"), ("lacks", "skipped"), ("wrong", "fail"), ("fine", "ok")
    ]  # fmt: skip
    assert "no answer within" in found[0].said and "division by zero" in found[2].said
    assert sorted(ended) == ["fine", "hang", "lacks", "wrong"]
