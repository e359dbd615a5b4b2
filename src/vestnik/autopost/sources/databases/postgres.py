"""Rows from PostgreSQL, in a read-only transaction."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection

from vestnik.autopost.sources.contract import SourceFailed
from vestnik.autopost.sources.databases.table import CONNECT_TIMEOUT, Question, Table, failed, too_slow, unreachable

_CODES: Final = {
    "42P01": "missing_table",
    "3F000": "missing_table",
    "42703": "missing_column",
    "42501": "not_allowed",
    "25006": "not_read_only",
}


async def ask(question: Question) -> Table:
    # Raised outside the except blocks: psycopg's errors hold the connection, and its address with the password.
    try:
        connection = await AsyncConnection.connect(
            question.dsn.text, connect_timeout=CONNECT_TIMEOUT, application_name="vestnik"
        )
    except psycopg.Error as e:
        refused = any(words in str(e) for words in ("authentication failed", "does not exist", "invalid"))
        failure = unreachable(question.dsn, e, permanent=refused)
    else:
        try:
            # The server's own timeout comes first; a server that is gone without a word has none.
            async with asyncio.timeout(question.timeout + 5), connection:
                return await _rows(connection, question)
        except TimeoutError:
            failure = too_slow(question.timeout)
        except psycopg.Error as e:
            failure = _failure(question, e)
    raise failure


async def _rows(connection: AsyncConnection[Any], question: Question) -> Table:
    await connection.set_read_only(True)
    await connection.execute("select set_config('statement_timeout', %s, true)", (f"{question.timeout:g}s",))
    # A cursor of the server's takes nothing but a query, and gives no more rows than are fetched.
    async with connection.cursor("vestnik_source") as cursor:
        await cursor.execute(question.query, question.parameters)
        rows = await cursor.fetchmany(question.most)
        return Table([column.name for column in cursor.description or []], rows)


def _failure(question: Question, error: psycopg.Error) -> SourceFailed:
    state = error.sqlstate or ""
    if state == "57014":
        return too_slow(question.timeout)
    words = error.diag.message_primary or str(error)
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return failed(question.dsn, "lost_connection", f"the database went away: {words}", permanent=False)
    return failed(question.dsn, _CODES.get(state, "bad_query"), f"the query fails: {words}", permanent=True)
