"""Wake-ups from the database: LISTEN on a connection of its own, which comes back by itself."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

import psycopg
from psycopg import AsyncConnection, sql

from vestnik.db.pool import connection_arguments
from vestnik.log import get_log

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0


@dataclass(frozen=True)
class Wake:
    """A notification. Without a channel: "connected (again), anything may have been missed: look at once"."""

    channel: str | None = None
    payload: str = ""

    @property
    def connected(self) -> bool:
        return self.channel is None


async def listen(url: str, *channels: str, name: str = "vestnik listen") -> AsyncGenerator[Wake, None]:
    """Yields wake-ups for ever, the first and the one after each reconnect being "connected".

    Close it with ``contextlib.aclosing``.
    """
    log = get_log(channels=channels)
    arguments = connection_arguments(url, name=name)
    failures = 0
    while True:
        try:
            async with await AsyncConnection.connect(url, **arguments) as connection:
                for channel in channels:
                    await connection.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))
                failures = 0
                yield Wake()
                async with aclosing(connection.notifies()) as notifications:
                    async for notification in notifications:
                        yield Wake(notification.channel, notification.payload)
        except psycopg.OperationalError as e:
            pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(failures, 10)) * random.uniform(0.5, 1.0)
            failures += 1
            log.warning("db.listen.lost", error=str(e).strip(), retry_in=round(pause, 2))
            await asyncio.sleep(pause)
