"""Rows of a database become posts, from the watermark on, whatever shares it; on every engine that is there."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from databases_rig import MARIADBD, Database, mariadb_database, mariadb_server, postgres_database, sqlite_file
from sources_rig import Sources

Row = dict[str, Any]
QUERY = "select id, at, title from news where at >= :watermark order by at, id limit :limit"
STRICT = QUERY.replace(">=", ">")


@pytest.fixture(scope="session")
def mariadb(run_folder: Path) -> Iterator[str]:
    if MARIADBD is None:
        pytest.skip("no mariadbd on this machine; test_mysql_protocol.py stands in for it")
    with mariadb_server(run_folder / f"mariadb-{uuid.uuid4().hex[:8]}") as socket:
        yield socket


@pytest.fixture(params=["postgresql", "sqlite", "mysql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        with sqlite_file(tmp_path) as database:
            yield database
    elif request.param == "postgresql":
        with postgres_database(request.getfixturevalue("empty_database")) as database:
            yield database
    else:
        with mariadb_database(request.getfixturevalue("mariadb"), f"d{uuid.uuid4().hex}") as database:
            yield database


async def declare(sources: Sources, database: Database, query: str = QUERY, **config: Any) -> None:
    sources.secrets["db"] = database.dsn
    config = {"watermark": {"column": "at", "start": 0}, "key": "id", "mapping": {"text": "{title}"}} | config
    await sources.declare("db", {"secret_ref": "db", "query": query} | config)


def make_table(database: Database, kind: str = "integer") -> None:
    database.run(f"create table news (id integer primary key, at {kind}, title text)")


def add(database: Database, *rows: tuple[Any, ...]) -> None:
    database.run("insert into news values (?, ?, ?)", *rows)


def numbered(*numbers: int, at: int | None = None) -> list[tuple[Any, ...]]:
    return [(n, n if at is None else at, f"R{n}") for n in numbers]


def texts(*numbers: int) -> list[str]:
    return [f"R{n}" for n in numbers]


@pytest.mark.parametrize("query", [QUERY, STRICT], ids=["from", "after"])
async def test_a_run_goes_on_where_the_last_one_ended(sources: Sources, database: Database, query: str) -> None:
    make_table(database)
    add(database, *numbered(2, 1))
    await declare(sources, database, query)
    assert (await sources.pull())["taken"] == 2
    add(database, *numbered(4, 3))
    assert (await sources.pull())["taken"] == 2
    assert (await sources.pull())["new"] == 0
    assert await sources.texts() == texts(1, 2, 3, 4)
    assert (await sources.cursor())["watermark"] == {"type": "int", "value": 4}


@pytest.mark.parametrize("query", [QUERY, STRICT], ids=["from", "after"])
async def test_rows_that_share_a_watermark_are_all_taken_though_a_page_ends_between_them(
    sources: Sources, database: Database, query: str
) -> None:
    make_table(database)
    add(database, *numbered(*range(1, 400)), *numbered(*range(400, 1700), at=400), *numbered(*range(1700, 1800)))
    await declare(sources, database, query)
    assert (await sources.pull())["taken"] == 1799
    assert await sources.texts() == texts(*range(1, 1800))


async def test_a_late_row_of_the_same_watermark_is_taken_when_the_query_asks_for_it(
    sources: Sources, database: Database
) -> None:
    make_table(database)
    add(database, *numbered(1, 2, at=5))
    await declare(sources, database)
    await sources.pull()
    add(database, *numbered(3, at=5))
    await sources.pull()
    assert await sources.texts() == texts(1, 2, 3)


async def test_rows_without_a_watermark_are_told_and_the_others_taken(sources: Sources, database: Database) -> None:
    make_table(database)
    add(database, (1, None, "R1"), (2, 1, "R2"))
    await declare(sources, database, QUERY.replace("at >=", "at is null or at >="))
    stats = await sources.pull()
    assert await sources.texts() == texts(2)
    assert stats["reasons"] == [{"reason": "1 row has no at and cannot be taken"}]


@pytest.mark.parametrize(
    ("kind", "start", "marks"),
    [
        ("varchar(20)", "", ["a", "b", "c"]),
        ("decimal(20, 6)", 0, ["0.000001", "12345678901234.5", "12345678901234.75"]),
        ("timestamp", "1970-01-02 00:00:00", ["2026-11-01 10:00:00", "2026-11-01 10:00:01", "2026-12-01 00:00:00"]),
        ("date", "1970-01-02", ["2026-11-01", "2026-11-02", "2027-01-01"]),
        ("double precision", 0, ["0.5", "0.75", "1e9"]),
    ],
)
async def test_a_watermark_comes_back_as_the_value_that_it_was(
    sources: Sources, database: Database, kind: str, start: Any, marks: list[str]
) -> None:
    make_table(database, kind)
    for n, mark in enumerate(marks[:2], 1):
        add(database, (n, mark, f"R{n}"))
    await declare(sources, database, STRICT, watermark={"column": "at", "start": start})
    assert (await sources.pull())["taken"] == 2
    add(database, (3, marks[2], "R3"))
    stats = await sources.pull()
    assert (stats["read"], stats["taken"]) == (1, 1)
    assert await sources.texts() == texts(1, 2, 3)


async def test_a_vanished_table_is_told_and_nothing_is_lost_when_it_is_back(
    sources: Sources, database: Database
) -> None:
    make_table(database)
    add(database, *numbered(1))
    await declare(sources, database)
    await sources.pull()
    before = await sources.cursor()
    database.run("alter table news rename to olds")
    error = await sources.fails()
    assert (error.code, error.permanent, await sources.cursor()) == ("missing_table", True, before)
    assert "news" in str(error)
    database.run("alter table olds rename to news")
    add(database, *numbered(2))
    await sources.pull()
    assert await sources.texts() == texts(1, 2)


@pytest.mark.parametrize(
    ("query", "code", "said"),
    [
        (QUERY.replace("order by at", "order by -at"), "unordered", "ordered by at, smallest first"),
        (
            "select id, at, title from news where at >= :watermark and :limit > 0 order by at, id",
            "limit_ignored",
            "more rows than :limit",
        ),
        (QUERY.replace("id, at", "id"), "missing_column", "gives no column at; it gives id, title"),
        (QUERY.replace("title from", "title, id from"), "bad_query", "two columns with the name id"),
        (QUERY.replace("title", "subject"), "missing_column", "subject"),
        (QUERY.replace("limit", "limitless"), "bad_query", "the query fails"),
    ],
)
async def test_a_query_that_cannot_be_followed_is_refused_in_words(
    sources: Sources, database: Database, query: str, code: str, said: str
) -> None:
    make_table(database)
    add(database, *numbered(*range(1, 600)))
    await declare(sources, database, query.replace(":limitless", ":limit"))
    error = await sources.fails()
    assert (error.code, error.permanent) == (code, True) and said in str(error)
    assert await sources.texts() == []


async def test_a_column_that_changes_its_type_is_told(sources: Sources, database: Database) -> None:
    make_table(database)
    add(database, *numbered(1))
    await declare(sources, database)
    await sources.pull()
    before = await sources.cursor()
    database.run("drop table news")
    make_table(database, "date")
    add(database, (2, "2026-11-02", "R2"))
    if database.engine == "postgresql":
        error = await sources.fails()
        assert (error.code, error.permanent, await sources.cursor()) == ("bad_query", True, before)
        assert "operator does not exist" in str(error)
    else:
        # These compare whatever they are given.
        await sources.pull()
        assert await sources.texts() == texts(1, 2)


async def test_one_key_for_all_rows_does_not_go_round_for_ever(sources: Sources, database: Database) -> None:
    make_table(database)
    add(database, *numbered(*range(1, 1700), at=1))
    await declare(sources, database, QUERY.replace("select id", "select 1 as id"))
    error = await sources.fails()
    assert (error.code, error.permanent) == ("no_progress", True)


async def test_bytes_are_refused_where_somebody_asks_for_them(sources: Sources, database: Database) -> None:
    kind = "bytea" if database.engine == "postgresql" else "blob"
    database.run(f"create table news (id integer primary key, at integer, title text, picture {kind})")
    database.run("insert into news values (?, ?, ?, ?)", (1, 1, "R1", b"\xff\xfe"), (2, 2, "R2", None))
    query = QUERY.replace("title", "title, picture")
    await declare(sources, database, query)
    await sources.pull()
    assert await sources.texts() == texts(1, 2)
    await sources.declare(
        "db",
        {
            "secret_ref": "db", "query": query, "key": ["id", "title"], "watermark": {"column": "at", "start": 0},
            "mapping": {"text": "{title} {picture?}"},
        },
        "other",
    )  # fmt: skip
    stats = await sources.pull("other")
    assert (stats["taken"], stats["invalid"]) == (1, 1)
    assert stats["reasons"][0] == {
        "key": '["1", "R1"]',
        "reason": "column picture holds bytes, which cannot become text",
    }


SLOW = {
    "postgresql": "select 1 as id, 1 as at, pg_sleep(60)::text as title where 0 < :limit and 0 <= :watermark",
    "mysql": "select 1 as id, 1 as at, sleep(60) as title from dual where 0 < :limit and 0 <= :watermark",
    "sqlite": "with recursive x (at) as (select 1 union all select at + 1 from x) select max(at) as id, 1 as at,"
    " 'x' as title from x where 0 <= :watermark limit :limit",
}


async def test_a_query_that_takes_too_long_is_ended(sources: Sources, database: Database) -> None:
    await declare(sources, database, SLOW[database.engine], timeout=0.2)
    error = await sources.fails()
    assert (error.code, error.permanent) == ("timeout", False)


BY_FUNCTION = "select id, at, title from news where at >= :watermark and writes() = 0 order by at limit :limit"
WRITES = [
    (
        "postgresql",
        "with gone as (delete from news returning id, at, title) select * from gone where at >= :watermark limit :limit",
        "bad_query",
    ),
    ("postgresql", BY_FUNCTION, "not_read_only"),
    ("mysql", BY_FUNCTION, "not_read_only"),
]
FUNCTION = {
    "postgresql": "create function writes() returns integer language plpgsql as"
    " 'begin delete from news; return 0; end'",
    "mysql": "create function writes() returns integer modifies sql data begin delete from news; return 0; end",
}


@pytest.mark.parametrize(("database", "query", "code"), WRITES, indirect=["database"])
async def test_nothing_can_be_written(sources: Sources, database: Database, query: str, code: str) -> None:
    make_table(database)
    add(database, *numbered(1))
    database.run(FUNCTION[database.engine])
    await declare(sources, database, query)
    error = await sources.fails()
    assert (error.code, error.permanent) == (code, True)
    cursor = database.connection.cursor()
    cursor.execute("select count(*) from news")
    assert cursor.fetchone()[0] == 1
