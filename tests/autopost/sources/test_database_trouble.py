"""A database that cannot be reached or read: what is wrong is said, and a password never is."""

from __future__ import annotations

import sqlite3
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sources_rig import Sources

from vestnik.autopost.sources import validate
from vestnik.db.pool import make_pool
from vestnik.errors import ConfigError

Row = dict[str, Any]
QUERY = "select id, at, title from news where at >= :watermark order by at limit :limit"
CONFIG: Row = {"query": QUERY, "watermark": {"column": "at", "start": 0}, "key": "id", "mapping": {"text": "{title}"}}


async def declare(sources: Sources, dsn: str, **config: Any) -> None:
    sources.secrets["db"] = dsn
    await sources.declare("db", {"secret_ref": "db"} | CONFIG | config)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    file = tmp_path / "shop.db"
    with closing(sqlite3.connect(file)) as db:
        db.execute("create table news (id integer, at integer, title text)")
        db.execute("insert into news values (1, 1, 'R1')")
        db.commit()
    return file


@pytest.mark.parametrize(
    ("dsn", "code", "permanent"),
    [
        ("postgresql://reader:hunter2@127.0.0.1:1/shop", "no_connection", False),
        ("mysql://reader:hunter2@127.0.0.1:1/shop", "no_connection", False),
        ("sqlite:///nowhere/hunter2.db", "no_connection", True),
        ("redis://reader:hunter2@127.0.0.1/", "bad_secret", True),
        ("mysql://reader:hunter2@127.0.0.1/shop?init_command=x", "bad_secret", True),
        ("hunter2", "bad_secret", True),
    ],
)
async def test_a_database_that_is_not_there_is_told_without_its_password(
    sources: Sources, dsn: str, code: str, permanent: bool
) -> None:
    await declare(sources, dsn)
    error = await sources.fails()
    assert (error.code, error.permanent) == (code, permanent)
    assert "hunter2" not in str(error).replace("/nowhere/hunter2.db", "")
    assert error.__cause__ is None


async def test_a_refused_password_is_for_somebody_to_change(sources: Sources, empty_database: str) -> None:
    right = psycopg.conninfo.conninfo_to_dict(empty_database)
    wrong = empty_database.replace(str(right["password"]), "hunter2")
    assert wrong != empty_database
    await declare(sources, wrong)
    error = await sources.fails()
    assert (error.code, error.permanent) == ("no_connection", True)
    assert "hunter2" not in str(error)


async def test_a_missing_right_is_told(sources: Sources, empty_database: str) -> None:
    await declare(
        sources,
        empty_database,
        query="select oid::int as id, 1 as at, rolpassword as title from pg_authid where :watermark < 1 limit :limit",
    )
    error = await sources.fails()
    assert (error.code, error.permanent) == ("not_allowed", True)


async def test_a_server_that_hangs_up_in_the_middle_is_tried_again_later(sources: Sources, empty_database: str) -> None:
    query = "select 1 as id, 1 as at, pg_terminate_backend(pg_backend_pid())::text as title where :watermark < 1 limit :limit"
    await declare(sources, empty_database, query=query)
    error = await sources.fails()
    assert (error.code, error.permanent) == ("lost_connection", False)


@pytest.mark.parametrize("mark", ["'infinity'::timestamp", "'NaN'::numeric", "'{}'::jsonb", "'4 days'::interval"])
async def test_a_watermark_that_is_no_place_is_told(sources: Sources, empty_database: str, mark: str) -> None:
    query = f"select 1 as id, {mark} as at, 'x'::text as title where :watermark is not null limit :limit"
    await declare(sources, empty_database, query=query, watermark={"column": "at", "start": "x"})
    try:
        stats = await sources.pull()
    except Exception as e:
        assert type(e).__name__ == "SourceFailed"
    else:
        assert stats["taken"] == 0 and "no at" in stats["reasons"][0]["reason"]


async def test_uuids_arrays_and_documents_become_text(sources: Sources, empty_database: str) -> None:
    name = uuid.uuid4()
    query = (
        f"select '{name}'::uuid as id, 1 as at, array['a', 'b'] as list, '{{\"of\": [7]}}'::jsonb as document, true as yes"
        " where :watermark < 2 limit :limit"
    )
    await declare(sources, empty_database, query=query, mapping={"text": "{list} {document.of.0} {yes}"})
    await sources.pull()
    assert await sources.texts() == ["a, b 7 true"]
    assert (await sources.cursor())["last_seen_id"] == str(name)


async def test_a_uuid_can_be_the_watermark(sources: Sources, empty_database: str) -> None:
    names = sorted(uuid.uuid4() for _ in range(3))
    with psycopg.connect(empty_database) as db:
        db.execute("create table news (at uuid, title text)")
        for n, name in enumerate(names[:2]):
            db.execute("insert into news values (%s, %s)", (name, f"R{n}"))
    config = {"key": "at", "query": "select * from news where at > :watermark::uuid order by at limit :limit"}
    await declare(sources, empty_database, watermark={"column": "at", "start": str(uuid.UUID(int=0))}, **config)
    await sources.pull()
    with psycopg.connect(empty_database) as db:
        db.execute("insert into news values (%s, 'R2')", (names[2],))
    assert (await sources.pull())["read"] == 1
    assert await sources.texts() == ["R0", "R1", "R2"]


async def test_a_file_that_somebody_holds_is_waited_for_and_then_told(sources: Sources, shop: Path) -> None:
    await declare(sources, f"sqlite://{shop}", timeout=0.1)
    with closing(sqlite3.connect(shop, isolation_level=None)) as holder:
        holder.execute("begin exclusive")
        error = await sources.fails()
        assert (error.code, error.permanent) == ("locked", False)
    assert (await sources.pull())["taken"] == 1


async def test_a_file_that_is_no_database_is_told(sources: Sources, tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("no database at all, " * 100)
    await declare(sources, f"sqlite://{tmp_path}/x.db")
    error = await sources.fails()
    assert (error.code, error.permanent) == ("not_a_database", True)


async def test_letters_that_cannot_be_read_are_one_rows_fault(sources: Sources, shop: Path) -> None:
    with closing(sqlite3.connect(shop)) as db:
        db.execute("insert into news values (2, 2, cast(x'ff00' as text)), (3, 3, 'R3'), (4, 4, 'a' || char(0))")
        db.commit()
    await declare(sources, f"sqlite://{shop}")
    stats = await sources.pull()
    assert await sources.texts() == ["R1", "R3"]
    assert (stats["taken"], stats["invalid"]) == (2, 2)


async def test_a_text_watermark_that_cannot_be_kept_is_told(sources: Sources, shop: Path) -> None:
    with closing(sqlite3.connect(shop)) as db:
        db.execute("update news set at = 'a' || char(0)")
        db.commit()
    await declare(sources, f"sqlite://{shop}")
    error = await sources.fails()
    assert (error.code, error.permanent) == ("bad_watermark", True)


async def test_another_watermark_column_begins_anew_and_posts_nothing_twice(sources: Sources, shop: Path) -> None:
    await declare(sources, f"sqlite://{shop}")
    await sources.pull()
    query = QUERY.replace("at >=", "id >=").replace("order by at", "order by id")
    await declare(sources, f"sqlite://{shop}", query=query, watermark={"column": "id", "start": 0})
    stats = await sources.pull()
    assert (stats["read"], stats["new"]) == (1, 0)


async def test_a_long_table_is_no_backlog_for_a_first_run(sources: Sources, shop: Path) -> None:
    with closing(sqlite3.connect(shop)) as db:
        db.execute(
            "with recursive n (i) as (select 2 union all select i + 1 from n where i < 60000)"
            " insert into news select i, i, 'R' || i from n"
        )
        db.commit()
    await sources.declare("db", {"dsn": f"sqlite://{shop}"} | CONFIG, backlog=2)
    error = await sources.fails()
    assert (error.code, await sources.cursor()) == ("long_backlog", {})
    await sources.declare(
        "db", {"dsn": f"sqlite://{shop}"} | CONFIG | {"watermark": {"column": "at", "start": 59000}}, backlog=2
    )
    assert (await sources.pull())["skipped"] == 999
    assert await sources.texts() == ["R59999", "R60000"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"dsn": None}, "one of dsn and secret_ref is needed"),
        ({"dsn": "postgresql://a:hunter2@db/shop"}, "dsn has a password in it"),
        ({"dsn": "postgresql://db/shop?password=hunter2"}, "dsn has a password in it"),
        ({"dsn": "sqlite://shop.db"}, "must name the whole path"),
        ({"dsn": "mysql://db/"}, "names no database"),
        ({"query": "delete from news where :watermark < :limit"}, "must be one statement that reads"),
        ({"query": QUERY + "; drop table news"}, "without a semicolon inside"),
        ({"query": "select 1"}, "must use :watermark and :limit"),
        ({"query": QUERY.replace(":limit", ":most")}, "knows :watermark and :limit, not :most"),
        ({"query": QUERY.replace("from news", "into outfile '/x' from news")}, "it has an INTO"),
        ({"query": QUERY.replace("title from", "'title from")}, "a quote that is never closed"),
        ({"key": []}, "key"),
    ],
)
def test_a_wrong_configuration_is_refused_in_words(change: Row, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        validate("db", {k: v for k, v in ({"dsn": "sqlite:///srv/shop.db"} | CONFIG | change).items() if v is not None})
    assert said in str(refused.value) and "hunter2" not in str(refused.value)


async def test_a_page_that_takes_too_long_to_keep_is_told_as_that(sources: Sources, shop: Path) -> None:
    await declare(sources, f"sqlite://{shop}")
    patient = sources.puller.pool
    async with make_pool(patient.conninfo, max_size=2, statement_timeout=0.3) as hurried, patient.connection() as other:
        sources.puller.pool = hurried
        async with other.transaction():
            # The page waits for the row of its cursor, which somebody else has.
            await other.execute(
                "insert into autopost.pull_cursors (workspace_id, source_id) values (%s, 's')", (sources.id,)
            )
            error = await sources.fails()
    assert (error.code, error.permanent) == ("took_too_long", False), error
    assert "took too long" in str(error)
