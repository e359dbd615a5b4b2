"""What is said to a MySQL server and what is made of its answers, also where none is installed.

``test_databases.py`` reads from a real MariaDB wherever there is one; here a server of our own says what a real one would not on demand.
"""

from __future__ import annotations

from typing import Any

import pytest
from mysql_speaker import BIGINT, BLOB, DATETIME, DECIMAL, TEXT, Answer, speaking
from sources_rig import Sources

COLUMNS = [("id", BIGINT), ("at", DATETIME), ("title", TEXT), ("price", DECIMAL), ("picture", BLOB)]
QUERY = "select * from news where at >= :watermark and title like '%a%' order by at limit :limit"


async def declare(sources: Sources, dsn: str, **config: Any) -> None:
    sources.secrets["db"] = dsn
    mapping = {"mapping": {"text": "{title}: {price}"}, "key": "id", "query": QUERY, "secret_ref": "db"}
    await sources.declare("db", mapping | {"watermark": {"column": "at", "start": "1970-01-01"}} | config)


def rows(*found: tuple[bytes | None, ...]) -> Any:
    return lambda statement: Answer(COLUMNS, list(found)) if statement.startswith("select *") else None


@pytest.mark.parametrize(
    ("version", "limit"),
    [("8.4.0", "max_execution_time = 1500"), ("5.5.5-11.4.2-MariaDB", "max_statement_time = 1.5e0")],
)
async def test_a_query_is_asked_in_a_read_only_transaction_with_a_limit_of_time(
    sources: Sources, version: str, limit: str
) -> None:
    found = rows(
        (b"1", b"2026-11-01 10:00:00", "Чай 🍵".encode(), b"12.50", b"\xff\xfe"),
        (b"2", b"2026-11-02 10:00:00", b"Jar", None, None),
    )
    async with speaking(found, version=version) as (dsn, told):
        await declare(sources, dsn, timeout=1.5)
        stats = await sources.pull()
    assert (stats["taken"], stats["invalid"]) == (1, 1)
    assert await sources.texts() == ["Чай 🍵: 12.50"]
    asked = [statement for statement in told if not statement.lower().startswith(("set names", "set autocommit"))]
    assert asked == [
        f"set session {limit}, time_zone = '+00:00'",
        "start transaction read only",
        "select * from news where at >= '1970-01-01' and title like '%a%' order by at limit 500",
    ]
    assert (await sources.cursor())["watermark"] == {"type": "datetime", "value": "2026-11-02T10:00:00"}


@pytest.mark.parametrize(
    ("number", "code", "permanent"),
    [
        (1146, "missing_table", True),
        (1054, "missing_column", True),
        (1064, "bad_query", True),
        (1142, "not_allowed", True),
        (1792, "not_read_only", True),
        (3024, "timeout", False),
        (1969, "timeout", False),
        (1053, "lost_connection", False),
        (1927, "lost_connection", False),
    ],
)
async def test_an_error_of_the_server_is_told_for_what_it_is(
    sources: Sources, number: int, code: str, permanent: bool
) -> None:
    def answer(statement: str) -> Answer | None:
        return Answer(error=(number, "no, said hunter2")) if statement.startswith("select *") else None

    async with speaking(answer) as (dsn, _):
        await declare(sources, dsn)
        error = await sources.fails()
    assert (error.code, error.permanent) == (code, permanent)
    assert "hunter2" not in str(error)


@pytest.mark.parametrize(("number", "permanent"), [(1045, True), (1049, True), (1040, False)])
async def test_a_refused_connection_is_told_without_the_password(
    sources: Sources, number: int, permanent: bool
) -> None:
    async with speaking(lambda _: None, refuse=(number, "not with hunter2")) as (dsn, _):
        await declare(sources, dsn)
        error = await sources.fails()
    assert (error.code, error.permanent) == ("no_connection", permanent)
    assert "hunter2" not in str(error)


async def test_a_server_that_hangs_up_is_tried_again_later(sources: Sources) -> None:
    def answer(statement: str) -> Answer | None:
        return Answer(hang_up=True) if statement.startswith("select *") else None

    async with speaking(answer) as (dsn, _):
        await declare(sources, dsn)
        error = await sources.fails()
    assert (error.code, error.permanent) == ("lost_connection", False)
