"""``fanout``: one message to 10,000 channels, beside a plain INSERT of the very rows that it makes."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from vestnik.bench import rival_tables
from vestnik.bench.ground import BenchError, Ground
from vestnik.bench.report import Figures
from vestnik.bench.workload import WORKSPACE, make_channels, make_workspace, post
from vestnik.db.pool import Connection, connection_arguments, make_pool

AIMS = {"vs_plain_insert": ">= 0.6"}


@dataclass(frozen=True)
class Size:
    channels: int = 10_000
    messages: int = 7


TINY = Size(channels=50, messages=2)


async def run(ground: Ground, size: Size, turn: int) -> Figures:
    async with ground.database("fanout") as url:
        async with make_pool(url, max_size=1) as pool:
            await make_workspace(pool)
            await make_channels(pool, size.channels)
        ground.say("writing the rows once, to have them for the plain INSERT")
        async with await psycopg.AsyncConnection.connect(url, **connection_arguments(url)) as connection:
            await _make_rival(connection, size)
            await ground.settle(url)
            return await _measure(ground, connection, size, turn)


async def _make_rival(connection: Connection, size: Size) -> None:
    """For each message a copy of the rows that it becomes. Message 0 is for warming up only: the first call in a session plans, the real ones work."""
    await rival_tables.create(connection)
    for number in range(size.messages + 1):
        await _fan_out(connection, size, number)
        await rival_tables.copy_rows(connection, number)
        await connection.execute("truncate autopost.messages, autopost.deliveries, autopost.events")


async def _measure(ground: Ground, connection: Connection, size: Size, turn: int) -> Figures:
    """One after the other, first one first, then the other: both fill their tables at the same pace."""
    ours, plain = [], []
    for number in range(size.messages + 1):
        ground.say(f"message {number + 1} of {size.messages + 1}")
        if (number + turn) % 2:
            ours.append(await _fan_out(connection, size, number))
            plain.append(await rival_tables.insert_part(connection, number))
        else:
            plain.append(await rival_tables.insert_part(connection, number))
            ours.append(await _fan_out(connection, size, number))
    await _refuse_difference(connection)
    seconds, plain_seconds = statistics.median(ours[1:]), statistics.median(plain[1:])
    return {
        "rows_per_s": size.channels / seconds,
        "plain_rows_per_s": size.channels / plain_seconds,
        "vs_plain_insert": plain_seconds / seconds,
        "message_ms": seconds * 1000,
    }


async def _fan_out(connection: Connection, size: Size, number: int) -> float:
    payload = Jsonb({"text": post(number), "parse_mode": "HTML", "tags": ["Bench"]})
    began = time.perf_counter()
    cursor = await connection.execute(_ENQUEUE, (WORKSPACE, payload))
    answer = await cursor.fetchone()
    taken = time.perf_counter() - began
    if answer is None or answer["enqueued"] != size.channels:
        raise BenchError(f"the message did not reach its {size.channels} channels: {answer}")
    return taken


async def _refuse_difference(connection: Connection) -> None:
    for table in rival_tables.TABLES:
        cursor = await connection.execute(
            sql.SQL("select count(*) as n from autopost.{}").format(sql.Identifier(table))
        )
        row = await cursor.fetchone()
        if row is None or row["n"] != await rival_tables.count(connection, table):
            raise BenchError(f"the two sides did not write the same number of {table}")


_ENQUEUE = "select * from autopost.enqueue_messages_and_deliveries(%s, null, 'webhook_push', %s)"
