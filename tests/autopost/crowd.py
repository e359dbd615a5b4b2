"""Many hands on one queue: connections that work at the same time, and a way to know that one waits for another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, LiteralString, TypeVar

from psycopg import AsyncConnection
from psycopg.rows import DictRow, dict_row
from psycopg.types.json import Jsonb

from vestnik.db.pool import Pool, call

T = TypeVar("T")
Hand = Any  # the driver of conftest.py, on a connection of its own
Row = Mapping[str, Any]


class Crowd:
    def __init__(self, url: str, driver: Hand) -> None:
        self._url, self._driver = url, driver
        self._connections: list[AsyncConnection[DictRow]] = []

    async def hand(self) -> Hand:
        connection = await AsyncConnection.connect(self._url, autocommit=True, row_factory=dict_row)
        self._connections.append(connection)
        return self._driver.on(connection)

    async def hands(self, count: int) -> list[Hand]:
        return [await self.hand() for _ in range(count)]

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()

    async def blocked(self, hand: Hand, work: Awaitable[T]) -> asyncio.Future[T]:
        """``work``, once it has been begun by ``hand`` and waits for a lock."""
        task = asyncio.ensure_future(work)
        pid = hand.connection.info.backend_pid
        async with asyncio.timeout(10):
            while not await self._driver.value("select cardinality(pg_blocking_pids(%s)) > 0", pid):
                assert not task.done(), "it did not have to wait"
                await asyncio.sleep(0.005)
        return task


async def for_seconds(seconds: float, *work: Callable[[], Awaitable[Any]]) -> list[int]:
    """Each of ``work`` again and again, all at the same time; returns how often each was done."""

    async def again(job: Callable[[], Awaitable[Any]]) -> int:
        rounds = 0
        while asyncio.get_running_loop().time() < until:
            await job()
            rounds += 1
        return rounds

    until = asyncio.get_running_loop().time() + seconds
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(again(job)) for job in work]
    return [task.result() for task in tasks]


async def until(pool: Pool, query: LiteralString, seconds: float = 10) -> None:
    """Until ``query`` finds something."""
    async with asyncio.timeout(seconds):
        while not await call(pool, query):
            await asyncio.sleep(0.005)


async def deadlocks(pool: Pool) -> int:
    """How many the server has broken up in this database."""
    await call(pool, "select pg_stat_force_next_flush()")
    found = await call(pool, "select deadlocks from pg_stat_database where datname = current_database()")
    return int(found[0]["deadlocks"])


# The protocol by the server's own clock, each call a transaction that is repeated when it collides


async def push_now(pool: Pool, *texts: str) -> None:
    payloads = Jsonb([{"text": text} for text in texts])
    query = "select * from autopost.enqueue_batch('w', null, 'webhook_push', array(select jsonb_array_elements(%s)))"
    await call(pool, query, (payloads,))


async def take_now(pool: Pool, limit: int = 100, run: str = "run") -> list[DictRow]:
    return await call(pool, "select * from autopost.claim_and_begin('w', %s, %s)", (run, limit))


async def settle_now(pool: Pool, results: Sequence[Row]) -> list[DictRow]:
    return await call(pool, "select * from autopost.settle_deliveries('w', %s)", (Jsonb(results),))


def sent(row: Row) -> Row:
    return {"delivery_id": str(row["delivery_id"]), "lease": row["lease"], "provider_message_id": "m1"}


def failed(row: Row, code: str, scope: str = "platform") -> Row:
    category = "PERMANENT" if code in ("400", "403") else "TRANSIENT"
    error: dict[str, Any] = {"category": category, "scope": scope, "code": code, "message": "no"}
    if code == "429":
        error["retry_after_ms"] = 5
    return {"delivery_id": str(row["delivery_id"]), "lease": row["lease"], "error": error}


# What the events say of the pace


async def begins_too_close(hand: Hand, which: LiteralString, step: float) -> list[DictRow]:
    """Pairs of begins nearer to each other than a step, as begins of all that ``which`` selects."""
    return await hand.sql(
        "select * from (select e.ts, e.ts - lag(e.ts) over (order by e.ts) as apart from autopost.events e"
        " where e.action = 'send_attempt' and "
        + which
        + ") x where apart < make_interval(secs => %s) - interval '1 microsecond'",
        step,
    )
