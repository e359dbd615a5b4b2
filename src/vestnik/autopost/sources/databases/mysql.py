"""Rows from MySQL or MariaDB, in a read-only transaction. The driver blocks, so it has a thread."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import Any, Final

import pymysql
from pymysql.connections import Connection
from pymysql.cursors import SSCursor

from vestnik.autopost.sources.contract import SourceFailed
from vestnik.autopost.sources.databases.table import CONNECT_TIMEOUT, Question, Table, failed, too_slow, unreachable

_DENIED: Final = {1044, 1045, 1049, 1698}
_SLOW: Final = {1969, 3024, 1317}
_CODES: Final = {
    1146: "missing_table",
    1054: "missing_column",
    1142: "not_allowed",
    1143: "not_allowed",
    1792: "not_read_only",
}
_SETTING: Final = {True: "max_statement_time = %s", False: "max_execution_time = %s"}  # seconds; milliseconds


async def ask(question: Question) -> Table:
    return await asyncio.to_thread(_ask, question)


def _ask(question: Question) -> Table:
    try:
        connection = _connected(question)
    except (pymysql.Error, OSError) as e:
        failure = unreachable(question.dsn, Exception(_words(e)), permanent=_number(e) in _DENIED)
    else:
        try:
            with closing(connection):
                return _rows(connection, question)
        except (pymysql.Error, OSError) as e:
            failure = _failure(question, e)
    raise failure


def _connected(question: Question) -> Connection[SSCursor]:
    dsn = question.dsn
    return pymysql.connect(
        host=dsn.host or "localhost",
        port=dsn.port or 3306,
        user=dsn.user or None,
        password=dsn.password,
        database=dsn.path,
        unix_socket=dsn.options.get("unix_socket"),
        ssl_ca=dsn.options.get("ssl_ca"),
        charset="utf8mb4",
        connect_timeout=CONNECT_TIMEOUT,
        read_timeout=question.timeout + 5,
        cursorclass=SSCursor,
    )


def _rows(connection: Connection[SSCursor], question: Question) -> Table:
    mariadb = "MariaDB" in connection.get_server_info()  # type: ignore[no-untyped-call]
    limit = question.timeout if mariadb else int(question.timeout * 1000)
    with connection.cursor() as cursor:
        cursor.execute(f"set session {_SETTING[mariadb]}, time_zone = '+00:00'", (limit,))
        cursor.execute("start transaction read only")
        cursor.execute(question.query, question.parameters)
        columns = [column[0] for column in cursor.description or ()]
        return Table(columns, list(cursor.fetchmany(question.most)))


def _failure(question: Question, error: Exception) -> SourceFailed:
    number = _number(error)
    if number in _SLOW or isinstance(error, TimeoutError) or "timed out" in str(error):
        return too_slow(question.timeout)
    lost = isinstance(error, OSError | pymysql.InterfaceError) or 2000 <= number < 2100 or number in (1053, 1927, 0)
    if lost:
        return failed(question.dsn, "lost_connection", f"the database went away: {_words(error)}", permanent=False)
    code = _CODES.get(number, "bad_query")
    return failed(question.dsn, code, f"the query fails: {_words(error)}", permanent=True)


def _number(error: Exception) -> int:
    first: Any = error.args[0] if error.args else 0
    return first if isinstance(first, int) else 0


def _words(error: Exception) -> str:
    return str(error.args[1]) if len(error.args) > 1 else str(error)
