"""The schema in the database is the one in the files, no less and no more, and its dump is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from psycopg import AsyncConnection
from psycopg.rows import DictRow

from sql_text import functions
from vestnik.db.dump import SCHEMA, dump_schema
from vestnik.db.embedded import EmbeddedServer
from vestnik.db.embedded.binaries import NEWEST
from vestnik.db.migrate import migrate
from vestnik.db.schema_files import read_functions

ROOT = Path(__file__).parents[2]
Database = AsyncConnection[DictRow]

# What every orchestrator may count on: these arguments in this order. More come last, with defaults.
PROTOCOL = {
    "enqueue_messages_and_deliveries": ["text", "text", "text", "jsonb", "timestamptz"],
    "claim_deliveries": ["text", "text", "int"],
    "begin_sending": ["text", "text", "int"],
    "mark_sent": ["text", "uuid", "text", "timestamptz", "jsonb"],
    "schedule_retry": ["text", "uuid", "timestamptz", "jsonb"],
    "fail_permanent": ["text", "uuid", "jsonb"],
}


async def test_the_dump_is_true(own_folder: Path) -> None:
    with EmbeddedServer(own_folder, NEWEST, durability=False).running() as url:
        await migrate(url)
        assert (ROOT / SCHEMA).read_text("utf-8") == dump_schema(url), "run: make db-dump"


@pytest.mark.pg16
async def test_the_database_has_the_functions_of_the_files_and_no_other(db: Database) -> None:
    """An overload that a changed signature left behind would go on being called."""
    signatures = {f"{f}({', '.join(map(_type_of, f.arguments))})" for f in functions()}
    found = await _rows(db, "select s, to_regprocedure(s)::oid as oid from unnest(%s::text[]) s", sorted(signatures))
    assert [row["s"] for row in found if row["oid"] is None] == []
    there = await _rows(
        db,
        "select oid, oid::regprocedure::text as s from pg_proc"
        " where pronamespace::regnamespace::text in ('autopost', 'core', 'ops')",
    )
    wanted = {row["oid"] for row in found}
    assert [row["s"] for row in there if row["oid"] not in wanted] == []


@pytest.mark.pg16
async def test_every_body_passes_the_check(db: Database) -> None:
    async with db.transaction(force_rollback=True):
        await db.execute("set local check_function_bodies = on")
        for file in read_functions().values():
            await db.execute(file.text.encode())


@pytest.mark.pg16
@pytest.mark.parametrize("name", PROTOCOL)
async def test_a_function_of_the_protocol_takes_what_the_specification_says(db: Database, name: str) -> None:
    (found,) = await _rows(
        db,
        "select pronargs - pronargdefaults as required, pg_function_is_visible(oid) as visible,"
        " array(select t from unnest(proargtypes::oid[]) with ordinality x (t, n) where n <= %s order by n)"
        " = array(select t::regtype::oid from unnest(%s::text[]) t) as as_specified from pg_proc where proname = %s",
        len(PROTOCOL[name]),
        PROTOCOL[name],
        name,
    )
    assert found["as_specified"]
    assert found["visible"], "people call it without its schema"
    assert found["required"] <= len(PROTOCOL[name])


def _type_of(argument: str) -> str:
    return re.split(r" default ", argument.split(" ", 1)[1])[0]


async def _rows(db: Database, query: str, *arguments: object) -> list[DictRow]:
    return await (await db.execute(query.encode(), arguments)).fetchall()
