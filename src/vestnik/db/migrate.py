"""Brings the schema of a database to the one that this program knows, or refuses.

Everything happens in one transaction under one advisory lock: of several processes that start at once, the
first migrates and the others find nothing left to do.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg
from psycopg import AsyncConnection, IsolationLevel, sql
from psycopg.pq import TransactionStatus

from vestnik import __version__
from vestnik.db.schema_files import SQL_ROOT, SqlFile, read_functions, read_migrations
from vestnik.errors import DatabaseError, SchemaMismatch

OLDEST_SERVER = 160000
SEARCH_PATH = ("autopost", "core", "ops", "public")
_LOCK = 0x7665_7374_6E69_6B  # "vestnik"

_FUNCTION = re.compile(r"create or replace function (\w+\.\w+)")

_BOOKKEEPING = """
create schema if not exists core;
create table if not exists core.schema_migrations (
  version    int primary key,
  name       text not null,
  sha256     text not null,
  applied_at timestamptz not null default now()
);
create table if not exists core.schema_functions (
  path   text primary key,
  sha256 text not null
);
alter table core.schema_functions add column if not exists release text not null default '0';
"""


async def migrate(url: str, *, sql_root: Path = SQL_ROOT, release: str = __version__) -> list[str]:
    """Applies what is missing and returns its names; an empty list means that there was nothing to do."""
    migrations, functions = read_migrations(sql_root), read_functions(sql_root)
    async with await connect(url) as connection, connection.transaction():
        await _refuse_unfit_server(connection)
        await connection.execute("set local statement_timeout = 0; set local lock_timeout = 0")
        await connection.execute("select pg_advisory_xact_lock(%s)", (_LOCK,))
        # A long transaction of somebody else must not queue the whole service behind this one for ever.
        await connection.execute("set local lock_timeout = '30s'")
        if not await _has_bookkeeping(connection, "release"):
            await _run(connection, SqlFile("bookkeeping", _BOOKKEEPING))
        done = await _apply_migrations(connection, migrations)
        done += await _apply_functions(connection, functions, release)
        await set_search_path(connection)
        return done


async def check(url: str, *, sql_root: Path = SQL_ROOT, release: str = __version__) -> None:
    """What every process does at its start: raises unless the schema is exactly the one that it knows."""
    migrations, functions = read_migrations(sql_root), read_functions(sql_root)
    async with await connect(url) as connection:
        await _refuse_unfit_server(connection)
        if not await _has_bookkeeping(connection):
            raise SchemaMismatch("the database has no schema of Vestnik yet", hint="vestnik migrate")
        applied = await _applied_migrations(connection)
        _refuse_unknown(applied, migrations)
        missing = [file.name for number, file in migrations.items() if number not in applied]
        if missing or await _applied_functions(connection) != _hashes(functions):
            await _refuse_newer_functions(connection, release)
            what = f"it lacks {', '.join(missing)}" if missing else "its functions differ"
            raise SchemaMismatch(f"the schema is not the one of this program: {what}", hint="vestnik migrate")


async def set_search_path(connection: AsyncConnection[Any]) -> None:
    """Lets people write names without their schema. On a database that is not ours, only for our own role."""
    path = sql.SQL(", ").join(map(sql.Identifier, SEARCH_PATH))
    query = """
        select current_database(), current_user, current_setting('vestnik.embedded', true) = 'on' as ours,
               exists (
                 select from pg_db_role_setting, unnest(setconfig) as setting
                  where setdatabase = (select oid from pg_database where datname = current_database())
                    and setrole in (0, (select oid from pg_roles where rolname = current_user))
                    and setting = %s
               ) as already
    """
    row = await (await connection.execute(query, ("search_path=" + path.as_string(connection),))).fetchone()
    assert row is not None
    database, role, ours, already = row
    if already:
        return
    whose = (
        sql.SQL("alter database {}").format(sql.Identifier(database))
        if ours
        else sql.SQL("alter role {} in database {}").format(sql.Identifier(role), sql.Identifier(database))
    )
    await connection.execute(sql.SQL("{} set search_path = {}").format(whose, path))


async def connect(url: str) -> AsyncConnection[Any]:
    try:
        connection = await AsyncConnection.connect(url, autocommit=True, application_name="vestnik migrate")
    except psycopg.OperationalError as e:
        raise DatabaseError(
            f"the database cannot be reached: {str(e).strip().splitlines()[0]}",
            hint="see whether it runs (vestnik db status) and whether VESTNIK_DATABASE_URL is right",
        ) from e
    # Whatever the database's default is: who waited for the lock must see what its holder did.
    await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
    return connection


async def _refuse_unfit_server(connection: AsyncConnection[Any]) -> None:
    if connection.info.server_version < OLDEST_SERVER:
        raise DatabaseError(
            f"the server is PostgreSQL {connection.info.server_version // 10000}, Vestnik needs 16 or newer",
            hint="upgrade it, or leave VESTNIK_DATABASE_URL empty to use the embedded one",
        )
    query = "select getdatabaseencoding() = 'UTF8' and lower('Ж') = 'ж'"
    if await (await connection.execute(query)).fetchone() != (True,):
        builtin = connection.info.server_version >= 170000
        provider = "builtin builtin_locale 'C.UTF-8' locale 'C'" if builtin else "libc locale 'C.UTF-8'"
        raise DatabaseError(
            "the database cannot tell upper from lower case in Cyrillic",
            hint=f"create database vestnik template template0 encoding 'UTF8' locale_provider {provider}",
        )


async def _has_bookkeeping(connection: AsyncConnection[Any], column: str = "path") -> bool:
    query = """select exists (select from pg_attribute where attrelid = to_regclass('core.schema_functions') and attname = %s)"""
    return await (await connection.execute(query, (column,))).fetchone() == (True,)


async def _apply_migrations(connection: AsyncConnection[Any], known: dict[int, SqlFile]) -> list[str]:
    applied = await _applied_migrations(connection)
    _refuse_unknown(applied, known)
    done = []
    for number, file in known.items():
        if number not in applied:
            await _run(connection, file)
            await connection.execute(
                "insert into core.schema_migrations (version, name, sha256) values (%s, %s, %s)",
                (number, file.name, file.sha256),
            )
            done.append(file.name)
    return done


async def _apply_functions(connection: AsyncConnection[Any], known: dict[str, SqlFile], release: str) -> list[str]:
    """All of them when any changed, because views and functions build on each other.

    Twice, because they also call each other across files: unchecked to have them all, then checked.
    """
    applied, wanted = await _applied_functions(connection), _hashes(known)
    if applied == wanted:
        return []
    await _refuse_newer_functions(connection, release)
    await _drop([file for path, file in known.items() if applied.get(path) != wanted[path]], connection)
    # A file may call what a later one brings; a test reads every body once more with the check on.
    await connection.execute("set local check_function_bodies = off")
    for checked in ("off", "on"):
        await connection.execute(f"set local check_function_bodies = {checked}")
        for file in known.values():
            await _run(connection, file)
    await connection.execute("delete from core.schema_functions")
    async with connection.cursor() as cursor:
        await cursor.executemany(
            "insert into core.schema_functions (path, sha256, release) values (%s, %s, %s)",
            [(path, fingerprint, release) for path, fingerprint in wanted.items()],
        )
    return [path for path in wanted if applied.get(path) != wanted[path]]


def _refuse_unknown(applied: dict[int, tuple[str, str]], known: dict[int, SqlFile]) -> None:
    newer = [name for number, (name, _) in applied.items() if number not in known]
    if newer:
        raise SchemaMismatch(f"the schema is newer than this program: it has {', '.join(newer)}", hint="update Vestnik")
    for number, (name, fingerprint) in applied.items():
        if known[number].sha256 != fingerprint:
            raise SchemaMismatch(
                f"migration {name} was changed after it had been applied",
                hint="put its text back, and make the change in a new migration",
            )


async def _drop(files: list[SqlFile], connection: AsyncConnection[Any]) -> None:
    """What these files bring, as it was before: a new result cannot replace an old one, and new arguments would stand beside it.

    A trigger's function stays, for its trigger needs it and its signature never changes.
    """
    names = [name for file in files for name in _FUNCTION.findall(file.text)]
    cursor = await connection.execute(
        "select oid::regprocedure::text from pg_proc"
        " where pronamespace::regnamespace || '.' || proname = any (%s) and prokind = 'f' and prorettype <> 'trigger'::regtype",
        (names,),
    )
    signatures = [signature async for (signature,) in cursor]
    if signatures:
        await connection.execute(sql.SQL("drop function {}").format(sql.SQL(", ").join(map(sql.SQL, signatures))))


async def _refuse_newer_functions(connection: AsyncConnection[Any], release: str) -> None:
    """A release may change functions alone: an older program would put its own in their place."""
    if not await _has_bookkeeping(connection, "release"):
        return
    cursor = await connection.execute("select distinct release from core.schema_functions")
    newer = [found async for (found,) in cursor if _numbers(found) > _numbers(release)]
    if newer:
        raise SchemaMismatch(
            f"the functions are newer than this program: they are of release {max(newer, key=_numbers)}, this is {release}",
            hint="update Vestnik",
        )


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", release)))


async def _applied_migrations(connection: AsyncConnection[Any]) -> dict[int, tuple[str, str]]:
    cursor = await connection.execute("select version, name, sha256 from core.schema_migrations order by version")
    return {version: (name, fingerprint) async for version, name, fingerprint in cursor}


async def _applied_functions(connection: AsyncConnection[Any]) -> dict[str, str]:
    cursor = await connection.execute("select path, sha256 from core.schema_functions")
    return {path: fingerprint async for path, fingerprint in cursor}


def _hashes(files: dict[str, SqlFile]) -> dict[str, str]:
    return {name: file.sha256 for name, file in files.items()}


async def _run(connection: AsyncConnection[Any], file: SqlFile) -> None:
    try:
        await connection.execute(file.text.encode())
    except psycopg.Error as e:
        position = e.diag.statement_position
        line = f":{file.text.count(chr(10), 0, int(position)) + 1}" if position else ""
        raise DatabaseError(f"{file.name}{line}: {e.diag.message_primary or e}") from e
    if connection.info.transaction_status != TransactionStatus.INTRANS:
        raise DatabaseError(f"{file.name} ends the transaction that it runs in")
