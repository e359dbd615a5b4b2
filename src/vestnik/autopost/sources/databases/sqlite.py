"""Rows from a SQLite file, opened to be read only. The library blocks, so it has a thread."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from vestnik.autopost.sources.contract import SourceFailed
from vestnik.autopost.sources.databases.table import Question, Table, failed, too_slow, unreachable

_STEPS = 10_000  # of its virtual machine, between two looks at the clock
_WORDS = {
    "no such table": "missing_table",
    "no such column": "missing_column",
    "readonly database": "not_read_only",
}


async def ask(question: Question) -> Table:
    return await asyncio.to_thread(_ask, question)


def _ask(question: Question) -> Table:
    try:
        connection = _connected(question)
    except sqlite3.Error as e:
        # Without a file there is nothing to wait for; a file that is there may be held by somebody for a while.
        raise unreachable(question.dsn, e, permanent=not Path(question.dsn.path).is_file()) from None
    try:
        with closing(connection):
            return _rows(connection, question)
    except sqlite3.Error as e:
        raise _failure(question, e) from None


def _connected(question: Question) -> sqlite3.Connection:
    connection = sqlite3.connect(f"file:{quote(question.dsn.path)}?mode=ro", uri=True, timeout=question.timeout)
    connection.text_factory = _text
    return connection


def _rows(connection: sqlite3.Connection, question: Question) -> Table:
    connection.execute("pragma query_only = on")
    until = time.monotonic() + question.timeout
    connection.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
    cursor = connection.execute(question.query, question.parameters)
    return Table([column[0] for column in cursor.description or ()], cursor.fetchmany(question.most))


def _text(stored: bytes) -> str | bytes:
    """Text that is none stays bytes: one row's fault, not the table's."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored


def _failure(question: Question, error: sqlite3.Error) -> SourceFailed:
    words = str(error)
    if "interrupted" in words:
        return too_slow(question.timeout)
    if "locked" in words or "busy" in words:
        return failed(question.dsn, "locked", f"the file is held by somebody: {words}", permanent=False)
    if isinstance(error, sqlite3.DatabaseError) and ("not a database" in words or "malformed" in words):
        return failed(question.dsn, "not_a_database", f"this is no SQLite database: {words}", permanent=True)
    code = next((code for part, code in _WORDS.items() if part in words), "bad_query")
    return failed(question.dsn, code, f"the query fails: {words}", permanent=True)
