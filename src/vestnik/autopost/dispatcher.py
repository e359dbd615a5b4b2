"""The dispatcher: takes what may go now from the database, hands it to the adapters, writes back what they say.

It decides nothing. Which delivery, when, how many at once, what an answer means: the SQL functions know. What it
owns is time: sleep no longer than needed, wake when somebody enqueues, stop without losing a send.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any
from uuid import uuid4

from vestnik.adapters.contract import Adapter
from vestnik.autopost import measured
from vestnik.autopost.housekeeping import keep_sweeping
from vestnik.autopost.payloads.keeper import Keeper
from vestnik.autopost.pulse import LEASE_SHARE
from vestnik.autopost.sender import Result, released, send
from vestnik.autopost.settler import Settler
from vestnik.db.listen import listen
from vestnik.db.pool import Pool, call
from vestnik.db.rounds import Rounds
from vestnik.log import get_log

WAKE_CHANNEL = "vestnik_wake"
DUE_BUT_TAKEN = 0.05  # seconds before looking again
DEAF_AFTER = 1.0  # seconds that a cancelled send may take to end
log = get_log()


class Dispatcher:
    """``concurrency`` bounds the rows in ``sending``, and so the unknown outcomes that a crash can leave."""

    def __init__(
        self,
        url: str,
        pool: Pool,
        adapters: Mapping[str, Adapter],
        *,
        concurrency: int = 1000,
        poll: float = 0.5,
        deadline: float = 60.0,
        grace: float = 20.0,
        keeper: Keeper | None = None,
    ) -> None:
        self._url, self._pool, self._adapters = url, pool, adapters
        self._concurrency, self._poll, self._deadline, self._grace = concurrency, poll, deadline, grace
        self._keeper = keeper
        self.token = str(uuid4())
        self._free = concurrency
        self._sends: dict[asyncio.Task[Result], tuple[str, Mapping[str, Any]]] = {}
        self._held: Counter[str] = Counter()  # how many of them are whose
        self._rounds = Rounds("dispatcher", self, concurrency, poll)
        self._settler = Settler(pool, self._settled)

    def stop(self) -> None:
        """Begin nothing more; ``run`` returns when what is under way has ended."""
        self._rounds.stop()

    async def run(self) -> None:
        """Until ``stop``; raises when a part of it fails, for then nothing may go on as if all were well."""
        log.info("dispatcher.started", dispatcher=self.token, concurrency=self._concurrency)
        settling = asyncio.create_task(self._settler.run())
        parts = [asyncio.create_task(part) for part in (self._rounds.run(), self._listen(), keep_sweeping(self._pool))]
        try:
            done, _ = await asyncio.wait([settling, *parts], return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                part.result()
        finally:
            for part in parts:
                part.cancel()
            await asyncio.wait(parts)
            await self._end_sends()
            await self._settler.end(settling, self._grace)
            log.info("dispatcher.stopped", dispatcher=self.token)

    @property
    def free(self) -> int:
        return self._free

    def held(self, workspace_id: str) -> int:
        return self._held[workspace_id]

    async def workspaces(self) -> list[str]:
        found = await call(self._pool, "select w from autopost.workspaces_with_work(autopost.workspace_place()) w")
        return [row["w"] for row in found]

    async def begin(self, workspace_id: str, limit: int) -> int:
        asked = time.time_ns()
        rows = await call(self._pool, _CLAIM, (*[workspace_id] * 4, self.token, limit))
        measured.claimed(workspace_id, rows, asked)
        for row in rows:
            deadline = min(self._deadline, LEASE_SHARE * row["lease_seconds"])
            task = asyncio.create_task(send(self._pool, workspace_id, row, self._adapters, deadline, self._keeper))
            self._sends[task] = (workspace_id, row)
            task.add_done_callback(self._done)
        self._free -= len(rows)
        self._held[workspace_id] += len(rows)
        return len(rows)

    async def until_next(self, workspace_id: str) -> float:
        """Seconds to the next slot, by the database's clock. One that is due but did not begin is somebody else's."""
        query = "select extract(epoch from autopost.next_begin_at(%s) - clock_timestamp())::float8 as seconds"
        seconds = (await call(self._pool, query, (workspace_id,)))[0]["seconds"]
        if seconds is None:
            return self._poll
        return min(seconds, self._poll) if seconds > 0 else DUE_BUT_TAKEN

    async def served(self, workspace_id: str) -> None:
        await call(self._pool, "select autopost.remember_workspace(%s)", (workspace_id,))

    def _done(self, task: asyncio.Task[Result]) -> None:
        workspace_id, row = self._sends.pop(task)
        self._held[workspace_id] -= 1
        self._settler.put(released(workspace_id, row) if task.cancelled() else task.result())

    def _settled(self, count: int) -> None:
        self._free += count
        self._rounds.wake()

    async def _listen(self) -> None:
        async with aclosing(listen(self._url, WAKE_CHANNEL, name="vestnik dispatcher listen")) as wakes:
            async for _ in wakes:
                self._rounds.wake()

    async def _end_sends(self) -> None:
        """What is under way may finish; what has not by the end of the grace goes back to the queue."""
        if self._sends:
            log.info("dispatcher.draining", sends=len(self._sends))
            _, late = await asyncio.wait(list(self._sends), timeout=self._grace)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=DEAF_AFTER)
            await asyncio.sleep(0)  # lets the last done-callbacks hand over their results
        for task in list(self._sends):
            # It does not even listen to its cancellation: the end of the process will end it.
            log.error("dispatcher.send_will_not_end", delivery_id=str(self._sends[task][1]["delivery_id"]))
            task.remove_done_callback(self._done)
            self._settler.put(released(*self._sends.pop(task)))


# Only what a send needs: what is not asked for need not be read.
_CLAIM = """
select delivery_id, lease, trace_id::text, channel_id, platform, target_id, auth_ref, rate_group, settings, rendered_text, render_meta,
       case when b.payload ? 'media' then autopost.media_of(%s, b.payload -> 'media') end as media,
       case when b.payload ? 'media' or b.render_meta ? 'long_text' then autopost.series_pace(%s, b.channel_id) end as pace,
       (select extract(epoch from p.sending_lease)::float8 from autopost.policies p where p.workspace_id = %s) as lease_seconds
from autopost.claim_and_begin(%s, %s, %s) b
"""
