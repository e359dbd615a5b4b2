"""What the superuser sets up in a fresh cluster: the product's role and its database."""

from __future__ import annotations

from typing import LiteralString

import psycopg
from psycopg import sql

from vestnik.db.embedded.place import ROLE
from vestnik.errors import EmbeddedServerError

DATABASE = "vestnik"
_MARK = "vestnik.embedded=on"


def furnish(superuser_url: str, password: str) -> None:
    """Makes what is missing, so that a start that was cut short is completed by the next one."""
    with psycopg.connect(superuser_url, autocommit=True) as connection:
        if not _finds(connection, "select from pg_roles where rolname = %s", ROLE):
            role = sql.SQL("create role {} login password {}")
            connection.execute(role.format(sql.Identifier(ROLE), sql.Literal(password)))
        if not _finds(connection, "select from pg_database where datname = %s", DATABASE):
            create_database(connection, DATABASE)
        # The mark tells migrate that this database is ours to configure.
        if not _finds(connection, "select from pg_db_role_setting where %s = any(setconfig)", _MARK):
            mark = sql.SQL("alter database {} set vestnik.embedded = 'on'")
            connection.execute(mark.format(sql.Identifier(DATABASE)))


def create_database(connection: psycopg.Connection, name: str) -> None:
    """A UTF-8 database in which Cyrillic has upper and lower case, whatever the locale of this machine is."""
    builtin = connection.info.server_version >= 170000
    provider = sql.SQL("builtin builtin_locale 'C.UTF-8'" if builtin else "libc")
    # Beside the builtin provider, libc's LC_CTYPE only serves the full-text parser, which can do with C.
    for ctype in ("C.UTF-8", "C.utf8", "C") if builtin else ("C.UTF-8", "C.utf8"):
        statement = sql.SQL(
            "create database {} owner {} template template0 encoding 'UTF8' "
            "lc_collate 'C' lc_ctype {} locale_provider {}"
        ).format(sql.Identifier(name), sql.Identifier(ROLE), sql.Literal(ctype), provider)
        try:
            connection.execute(statement)
        except psycopg.errors.WrongObjectType:
            continue
        return
    raise EmbeddedServerError(
        "this system has no locale C.UTF-8, which PostgreSQL 16 needs",
        hint="use the embedded PostgreSQL 18",
    )


def _finds(connection: psycopg.Connection, query: LiteralString, value: str) -> bool:
    return connection.execute(query, (value,)).fetchone() is not None
