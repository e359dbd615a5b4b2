"""Connections, and the way to use them: whole transactions that are repeated when they collide."""

from __future__ import annotations

import asyncio
import random
import select
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg import AsyncConnection, sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.errors import DeadlockDetected, SerializationFailure
from psycopg.rows import DictRow, dict_row
from psycopg.types.json import set_json_dumps, set_json_loads
from psycopg_pool import AsyncConnectionPool
from pydantic_core import from_json, to_json

from vestnik.db.refusals import refusals_as_errors

Connection = AsyncConnection[DictRow]
Pool = AsyncConnectionPool[Connection]
T = TypeVar("T")

# A delivery carries several JSON columns; this parser reads them five times faster than the standard one.
set_json_loads(from_json)
set_json_dumps(to_json)

_ATTEMPTS = 8
_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 0.5
_GIVE_UP_CONNECTING = 5.0


def make_pool(
    url: str,
    *,
    min_size: int = 1,
    max_size: int = 10,
    name: str = "vestnik",
    statement_timeout: float = 30.0,
    lock_timeout: float = 10.0,
    checkout_timeout: float = 30.0,
) -> Pool:
    """A closed pool; open it with ``async with``.

    Its connections are in autocommit: the call of one SQL function is one transaction, in one round trip.
    Timeouts are in seconds.
    """

    async def check(connection: Connection) -> None:
        try:
            await _refuse_dead(connection)
        except psycopg.Error:
            # Most likely the server restarted and all the others are dead as well; the pool by itself would
            # try them one by one, with longer and longer pauses.
            await pool.drain()
            raise

    arguments = connection_arguments(url, name=name, statement_timeout=statement_timeout, lock_timeout=lock_timeout)
    pool: Pool = AsyncConnectionPool(
        url,
        kwargs=arguments,
        connection_class=AsyncConnection[DictRow],
        min_size=min_size,
        max_size=max_size,
        timeout=checkout_timeout,
        name=name,
        check=check,
        # The pauses between attempts double, so short series follow each other while the server is away.
        reconnect_timeout=_GIVE_UP_CONNECTING,
        reconnect_failed=Pool.check,
        open=False,
    )
    return pool


def connection_arguments(
    url: str, *, name: str = "vestnik", statement_timeout: float = 30.0, lock_timeout: float = 10.0
) -> dict[str, Any]:
    """What every connection of the service is opened with, beside its address."""
    session = {
        "statement_timeout": _milliseconds(statement_timeout),
        "lock_timeout": _milliseconds(lock_timeout),
        "idle_in_transaction_session_timeout": _milliseconds(statement_timeout),
        # What the SQL functions are written for, whatever the defaults of the database are.
        "default_transaction_isolation": r"read\ committed",
        "timezone": "UTC",
    }
    options = " ".join(f"-c {key}={value}" for key, value in session.items())
    given = conninfo_to_dict(url).get("options") or ""
    return {
        "autocommit": True,
        "row_factory": dict_row,
        "application_name": name,
        "connect_timeout": 10,
        # The address's own options come last, so they win.
        "options": f"{options} {given}".strip(),
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
    }


def _milliseconds(seconds: float) -> str:
    return str(round(seconds * 1000))


async def retrying(pool: Pool, work: Callable[[Connection], Awaitable[T]]) -> T:
    """Runs ``work`` in a transaction, all of it again when it met a deadlock or a serialization failure."""

    async def attempt() -> T:
        async with pool.connection() as connection, connection.transaction():
            return await work(connection)

    return await _repeated(attempt)


async def call(
    pool: Pool,
    query: LiteralString | sql.SQL | sql.Composed,
    parameters: Sequence[Any] | Mapping[str, Any] = (),
) -> list[DictRow]:
    """One statement, repeated like ``retrying``, without the price of BEGIN and COMMIT."""

    async def attempt() -> list[DictRow]:
        async with pool.connection() as connection:
            cursor = await connection.execute(query, parameters)
            return await cursor.fetchall() if cursor.description else []

    return await _repeated(attempt)


async def _repeated(attempt: Callable[[], Awaitable[T]]) -> T:
    for pause in _pauses():
        try:
            with refusals_as_errors():
                return await attempt()
        except (DeadlockDetected, SerializationFailure):
            await asyncio.sleep(pause)
    with refusals_as_errors():
        return await attempt()


def _pauses() -> list[float]:
    # Two that collided must not come back at the same moment.
    ceilings = (min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**n) for n in range(_ATTEMPTS - 1))
    return [random.uniform(0.0, ceiling) for ceiling in ceilings]


async def _refuse_dead(connection: Connection) -> None:
    """An idle connection has nothing to say: something to read is a goodbye, and only then it pays to ask."""
    waiting = select.poll()
    waiting.register(connection.fileno(), select.POLLIN)
    if waiting.poll(0):
        await AsyncConnectionPool.check_connection(connection)
