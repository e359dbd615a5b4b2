"""From one major version of PostgreSQL to the next."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from vestnik.db.embedded import EmbeddedServer
from vestnik.db.migrate import check, migrate
from vestnik.errors import EmbeddedServerError

Ask = Callable[[str, str], Any]


@pytest.fixture
def old(own_folder: Path) -> EmbeddedServer:
    """A server of version 16 that is not running, with a table in its database."""
    server = EmbeddedServer(own_folder, 16, durability=False)
    with server.running() as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create schema shop create table goods (name text primary key)")
        connection.execute("insert into shop.goods values ('Ёлка'), ('шар')")
        connection.execute("create function shop.count() returns bigint return (select count(*) from shop.goods)")
    return server


@pytest.fixture
def new(own_folder: Path) -> EmbeddedServer:
    return EmbeddedServer(own_folder, 18, durability=False)


def test_another_major_version_is_refused(old: EmbeddedServer, new: EmbeddedServer) -> None:
    with pytest.raises(EmbeddedServerError, match=r"PostgreSQL 16.* 18") as caught:
        new.start()
    assert caught.value.hint == "vestnik db upgrade"


def test_upgrade_takes_everything_along_and_keeps_the_old(old: EmbeddedServer, new: EmbeddedServer, ask: Ask) -> None:
    kept = new.upgrade()
    with new.running() as url:
        assert ask(url, "select string_agg(lower(name), ' ' order by name) from shop.goods") == "ёлка шар"
        assert ask(url, "select shop.count()") == 2
        assert ask(url, "select rolname from pg_class, pg_roles r where relname = 'goods' and r.oid = relowner") == (
            "vestnik"
        )
        assert ask(url, "select datlocprovider from pg_database where datname = 'vestnik'") == "b"
        assert ask(url, "show server_version_num").startswith("18")
    assert kept is not None
    assert (kept / "data" / "PG_VERSION").read_text().strip() == "16"
    assert new.upgrade() is None


async def test_an_upgraded_schema_is_the_one_of_this_program(own_folder: Path, new: EmbeddedServer) -> None:
    with EmbeddedServer(own_folder, 16, durability=False).running() as url:
        await migrate(url)
    new.upgrade()
    with new.running() as url:
        await check(url)
        assert await migrate(url) == []


def test_a_running_server_is_not_upgraded(old: EmbeddedServer, new: EmbeddedServer) -> None:
    with old.running(), pytest.raises(EmbeddedServerError, match="is running"):
        new.upgrade()


def test_an_upgrade_that_fails_changes_nothing(
    old: EmbeddedServer, new: EmbeddedServer, own_folder: Path, ask: Ask
) -> None:
    with old.running():
        with psycopg.connect(old.superuser_url, autocommit=True) as admin:
            admin.execute("create role guest")
        with psycopg.connect(old.superuser_url.replace("/postgres?", "/vestnik?"), autocommit=True) as admin:
            admin.execute("create table of_a_guest ()")
            admin.execute("alter table of_a_guest owner to guest")
    with pytest.raises(EmbeddedServerError, match="guest") as caught:
        new.upgrade()
    assert "untouched" in (caught.value.hint or "")
    with old.running() as url:
        assert ask(url, "select shop.count()") == 2
    assert [path.name for path in own_folder.glob("postgres/pg*")] == ["pg16"]


def test_there_is_no_way_back(own_folder: Path, old: EmbeddedServer, new: EmbeddedServer) -> None:
    new.upgrade()
    with pytest.raises(EmbeddedServerError, match="newer"):
        old.upgrade()
    with pytest.raises(EmbeddedServerError, match=r"PostgreSQL 18.* 16"):
        old.start()
