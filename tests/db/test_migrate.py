"""The schema gets to where the program is, once, or the program refuses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

from vestnik.db.embedded import EmbeddedServer
from vestnik.db.embedded.product import create_database
from vestnik.db.migrate import SEARCH_PATH, check, migrate
from vestnik.errors import ConfigError, DatabaseError, SchemaMismatch

Ask = Callable[[str, str], Any]

MIGRATE = """
import asyncio, json, sys
from pathlib import Path
from vestnik.db.migrate import migrate
print(json.dumps(asyncio.run(migrate(sys.argv[1], sql_root=Path(sys.argv[2])))), flush=True)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """SQL of a small product: one migration, one function that uses another in a later file."""
    write(tmp_path, "migrations/0001_goods.sql", "create schema shop; create table shop.goods (name text);")
    write(
        tmp_path,
        "functions/a.sql",
        "create or replace function shop.total() returns bigint language sql as 'select shop.counted()';",
    )
    write(
        tmp_path,
        "functions/shop/b.sql",
        "create or replace function shop.counted() returns bigint language sql as $$"
        " select count(*) from shop.goods $$;",
    )
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


async def test_applies_what_is_missing_and_says_what(empty_database: str, root: Path, ask: Ask) -> None:
    everything = ["0001_goods", "functions/a.sql", "functions/shop/b.sql"]
    assert await migrate(empty_database, sql_root=root) == everything
    assert await migrate(empty_database, sql_root=root) == []
    assert ask(empty_database, "select shop.total()") == 0
    write(root, "migrations/0002_price.sql", "alter table shop.goods add price int")
    assert await migrate(empty_database, sql_root=root) == ["0002_price"]


async def test_a_changed_function_is_applied_anew(empty_database: str, root: Path, ask: Ask) -> None:
    await migrate(empty_database, sql_root=root)
    changed = "create or replace function shop.counted() returns bigint language sql as 'select 7::bigint';"
    write(root, "functions/shop/b.sql", changed)
    with pytest.raises(SchemaMismatch, match="functions differ"):
        await check(empty_database, sql_root=root)
    assert await migrate(empty_database, sql_root=root) == ["functions/shop/b.sql"]
    assert ask(empty_database, "select shop.total()") == 7
    (root / "functions/a.sql").unlink()
    assert await migrate(empty_database, sql_root=root) == []
    await check(empty_database, sql_root=root)


async def test_a_function_with_another_result_and_other_arguments_takes_the_place_of_the_old(
    empty_database: str, root: Path, ask: Ask
) -> None:
    await migrate(empty_database, sql_root=root)
    changed = "create or replace function shop.counted(a int default 1) returns table (n text) language sql as $$ select 'new' $$;"
    write(root, "functions/shop/b.sql", changed)
    total = "create or replace function shop.total() returns text language sql as $$ select n from shop.counted() $$;"
    write(root, "functions/a.sql", total)
    await migrate(empty_database, sql_root=root)
    assert ask(empty_database, "select shop.total()") == "new"
    assert ask(empty_database, "select count(*) from pg_proc where proname = 'counted'") == 1


async def test_the_product_own_schema_migrates_on_this_server(database: str) -> None:
    await check(database)
    assert await migrate(database) == []


async def test_several_at_once_migrate_once(empty_database: str, root: Path) -> None:
    write(root, "migrations/0002_slow.sql", "select pg_sleep(0.3); create table shop.once ();")
    done = await asyncio.gather(*(migrate(empty_database, sql_root=root) for _ in range(5)))
    assert sorted(map(len, done)) == [0, 0, 0, 0, 4]


async def test_defaults_of_the_database_do_not_disturb(own_server: EmbeddedServer, root: Path) -> None:
    with psycopg.connect(own_server.url, autocommit=True) as connection:
        connection.execute("alter role vestnik set default_transaction_isolation = 'serializable'")
        connection.execute("alter role vestnik set statement_timeout = '200ms'")
    write(root, "migrations/0002_slow.sql", "select pg_sleep(0.3)")
    done = await asyncio.gather(*(migrate(own_server.url, sql_root=root) for _ in range(3)))
    assert sorted(map(len, done)) == [0, 0, 4]


async def test_several_processes_migrate_once(empty_database: str, root: Path, run: Callable[..., Any]) -> None:
    programs = [run(MIGRATE, empty_database, root) for _ in range(3)]
    assert sorted(len(json.loads(program.line())) for program in programs) == [0, 0, 3]


async def test_check_asks_for_migrate(empty_database: str, root: Path) -> None:
    with pytest.raises(SchemaMismatch, match="no schema") as caught:
        await check(empty_database, sql_root=root)
    assert caught.value.hint == "vestnik migrate"
    await migrate(empty_database, sql_root=root)
    await check(empty_database, sql_root=root)
    write(root, "migrations/0002_price.sql", "alter table shop.goods add price int")
    with pytest.raises(SchemaMismatch, match="0002_price") as caught:
        await check(empty_database, sql_root=root)
    assert caught.value.hint == "vestnik migrate"


async def test_a_newer_schema_is_refused(empty_database: str, root: Path) -> None:
    write(root, "migrations/0002_price.sql", "alter table shop.goods add price int")
    await migrate(empty_database, sql_root=root)
    (root / "migrations/0002_price.sql").unlink()
    for refuse in (check, migrate):
        with pytest.raises(SchemaMismatch, match=r"newer.*0002_price") as caught:
            await refuse(empty_database, sql_root=root)
        assert caught.value.hint == "update Vestnik"


async def test_newer_functions_are_refused(empty_database: str, root: Path, ask: Ask) -> None:
    await migrate(empty_database, sql_root=root, release="0.9.2")
    newer = "create or replace function shop.counted() returns bigint language sql as 'select 7::bigint';"
    ours = (root / "functions/shop/b.sql").read_text()
    write(root, "functions/shop/b.sql", newer)
    await migrate(empty_database, sql_root=root, release="0.10.0")
    write(root, "functions/shop/b.sql", ours)
    for refuse in (check, migrate):
        with pytest.raises(SchemaMismatch, match=r"newer.*0\.10\.0") as caught:
            await refuse(empty_database, sql_root=root, release="0.9.2")
        assert caught.value.hint == "update Vestnik"
    assert ask(empty_database, "select shop.total()") == 7


async def test_an_older_release_that_brings_the_same_is_welcome(empty_database: str, root: Path) -> None:
    await migrate(empty_database, sql_root=root, release="0.10.0")
    await check(empty_database, sql_root=root, release="0.9.2")
    assert await migrate(empty_database, sql_root=root, release="0.9.2") == []


async def test_a_database_from_before_releases_were_noted_is_brought_up(empty_database: str, root: Path) -> None:
    await migrate(empty_database, sql_root=root)
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute("alter table core.schema_functions drop column release")
    await check(empty_database, sql_root=root)
    write(root, "migrations/0002_price.sql", "alter table shop.goods add price int")
    assert await migrate(empty_database, sql_root=root) == ["0002_price"]
    await check(empty_database, sql_root=root)


async def test_a_changed_migration_is_refused(empty_database: str, root: Path, ask: Ask) -> None:
    await migrate(empty_database, sql_root=root)
    write(root, "migrations/0001_goods.sql", "create schema shop; create table shop.wares (name text);")
    for refuse in (check, migrate):
        with pytest.raises(SchemaMismatch, match="0001_goods was changed"):
            await refuse(empty_database, sql_root=root)
    assert ask(empty_database, "select to_regclass('shop.wares')") is None


async def test_a_failure_names_the_line_and_leaves_nothing(empty_database: str, root: Path, ask: Ask) -> None:
    write(root, "migrations/0002_wrong.sql", "create table shop.half ();\n\nselect nonsense;\n")
    with pytest.raises(DatabaseError, match=r'0002_wrong:3: column "nonsense" does not exist'):
        await migrate(empty_database, sql_root=root)
    assert ask(empty_database, "select to_regnamespace('shop')") is None


async def test_a_function_with_a_wrong_body_is_refused(empty_database: str, root: Path, ask: Ask) -> None:
    body = "create or replace function shop.wrong() returns int language sql as 'select nonsense';"
    write(root, "functions/wrong.sql", body)
    with pytest.raises(DatabaseError, match=r"functions/wrong\.sql"):
        await migrate(empty_database, sql_root=root)
    assert ask(empty_database, "select to_regnamespace('shop')") is None


async def test_a_file_cannot_end_the_transaction(empty_database: str, root: Path) -> None:
    write(root, "migrations/0002_commits.sql", "commit")
    with pytest.raises(DatabaseError, match="0002_commits ends the transaction"):
        await migrate(empty_database, sql_root=root)


@pytest.mark.parametrize("name", ["2_price.sql", "0001_other.sql"])
async def test_names_are_unambiguous(empty_database: str, root: Path, name: str) -> None:
    write(root, f"migrations/{name}", "select 1")
    with pytest.raises(ConfigError):
        await migrate(empty_database, sql_root=root)


@pytest.mark.parametrize("kind", ["encoding 'UTF8' locale_provider libc locale 'C'", "encoding 'KOI8R' locale 'C'"])
async def test_a_database_without_cyrillic_is_refused_with_the_way_to_make_one(
    own_server: EmbeddedServer, root: Path, kind: LiteralString
) -> None:
    url = own_server.url
    with psycopg.connect(own_server.superuser_url, autocommit=True) as admin:
        admin.execute("drop database vestnik")
        admin.execute("create database vestnik owner vestnik template template0 " + kind)
        for refuse in (check, migrate):
            with pytest.raises(DatabaseError, match="Cyrillic") as caught:
                await refuse(url, sql_root=root)
        assert caught.value.hint is not None
        admin.execute("drop database vestnik with (force)")
        admin.execute(caught.value.hint.encode() + b" owner vestnik")
    assert await migrate(url, sql_root=root)


async def test_a_server_that_is_not_there_is_an_error_of_ours(own_folder: Path) -> None:
    with pytest.raises(DatabaseError, match="cannot be reached"):
        await migrate(f"postgresql://x@/x?host={own_folder}")


async def test_our_own_database_gets_the_search_path_for_everybody(
    own_server: EmbeddedServer, root: Path, ask: Ask
) -> None:
    await migrate(own_server.url, sql_root=root)
    for url in (own_server.url, own_server.superuser_url.replace("/postgres?", "/vestnik?")):
        assert ask(url, "show search_path") == ", ".join(SEARCH_PATH)


async def test_on_a_foreign_database_only_our_role_gets_it(own_server: EmbeddedServer, root: Path, ask: Ask) -> None:
    with psycopg.connect(own_server.superuser_url, autocommit=True) as admin:
        create_database(admin, "foreign_one")
    url = own_server.url.replace("/vestnik?", "/foreign_one?")
    await migrate(url, sql_root=root)
    assert ask(url, "show search_path") == ", ".join(SEARCH_PATH)
    admins = own_server.superuser_url.replace("/postgres?", "/foreign_one?")
    assert ask(admins, "show search_path") == '"$user", public'
    assert ask(own_server.url, "show search_path") == '"$user", public'
