"""The dispatcher: takes what may go now from the database, hands it to the adapters, writes back what they say.

It decides nothing. Which delivery, when, how many at once, what an answer means: the SQL functions know. What it
owns is time: sleep no longer than needed, wake when somebody enqueues, stop without losing a send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any
from uuid import uuid4

import psycopg
from psycopg_pool import PoolTimeout

from vestnik.adapters.contract import Adapter
from vestnik.autopost.housekeeping import keep_sweeping
from vestnik.autopost.pulse import LEASE_SHARE
from vestnik.autopost.sender import Result, released, send
from vestnik.autopost.settler import Settler
from vestnik.db.listen import listen
from vestnik.db.pool import Pool, call
from vestnik.db.refusals import OF_THE_ROWS
from vestnik.log import get_log

WAKE_CHANNEL = "vestnik_wake"
DUE_BUT_TAKEN = 0.05  # seconds before looking again
DEAF_AFTER = 1.0  # seconds that a cancelled send may take to end
UNWELL_FOR = 30.0  # seconds
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
    ) -> None:
        self._url, self._pool, self._adapters = url, pool, adapters
        self._concurrency, self._poll, self._deadline, self._grace = concurrency, poll, deadline, grace
        self.token = str(uuid4())
        self._free = concurrency
        self._sends: dict[asyncio.Task[Result], tuple[str, Mapping[str, Any]]] = {}
        self._unwell: dict[str, float] = {}  # workspaces that could not be served, and until when they are left out
        self._awake = asyncio.Event()
        self._stopping = False
        self._settler = Settler(pool, self._settled)

    def stop(self) -> None:
        """Begin nothing more; ``run`` returns when what is under way has ended."""
        self._stopping = True
        self._awake.set()

    async def run(self) -> None:
        """Until ``stop``; raises when a part of it fails, for then nothing may go on as if all were well."""
        log.info("dispatcher.started", token=self.token, concurrency=self._concurrency)
        settling = asyncio.create_task(self._settler.run())
        parts = [asyncio.create_task(part) for part in (self._loop(), self._listen(), keep_sweeping(self._pool))]
        try:
            done, _ = await asyncio.wait([settling, *parts], return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                part.result()
        finally:
            for part in parts:
                part.cancel()
            await asyncio.wait(parts)
            await self._end_sends()
            await self._end_settling(settling)
            log.info("dispatcher.stopped", token=self.token)

    async def _loop(self) -> None:
        pause = 0.1
        while not self._stopping:
            self._awake.clear()
            try:
                begun, wait = await self._round()
            except (psycopg.OperationalError, PoolTimeout) as e:
                log.warning("dispatcher.database_away", error=str(e).strip(), retry_in=pause)
                await self._wait(pause)
                pause = min(pause * 2, 5.0)
                continue
            pause = 0.1
            if not begun:
                await self._wait(wait)

    async def _round(self) -> tuple[int, float]:
        """Once around the workspaces that have work; each may take its share of the free places.

        Returns how many sends began, and how long to wait if none did.
        """
        begun, wait, served = 0, self._poll, None
        if not self._free:
            return begun, wait
        found = await call(self._pool, "select w from autopost.workspaces_with_work(autopost.workspace_place()) w")
        now = asyncio.get_running_loop().time()
        workspaces = [row["w"] for row in found if self._unwell.get(row["w"], now) <= now]
        for n, workspace_id in enumerate(workspaces):
            share = min(max(self._free // (len(workspaces) - n), 1), max(self._concurrency // 2, 1))
            if self._free < share or self._stopping:
                break
            try:
                begun_here = await self._begin(workspace_id, share)
                if not begun_here:
                    wait = min(wait, await self._until_next(workspace_id))
                begun, served = begun + begun_here, workspace_id
                # Nobody else waits: ask for the next ones at once, so that the database works while these sends start.
                while len(workspaces) == 1 and begun_here == share <= self._free and not self._stopping:
                    begun_here = await self._begin(workspace_id, share)
                    begun += begun_here
            except OF_THE_ROWS as e:
                # To ask may have cost the patience for a lock: the others do not wait for it at every round.
                self._unwell[workspace_id] = asyncio.get_running_loop().time() + UNWELL_FOR
                log.error("dispatcher.workspace_failed", workspace_id=workspace_id, error=str(e))
        if begun and served and len(workspaces) > 1:
            await call(self._pool, "select autopost.remember_workspace(%s)", (served,))
        return begun, wait

    async def _begin(self, workspace_id: str, limit: int) -> int:
        rows = await call(self._pool, _CLAIM, (workspace_id, workspace_id, workspace_id, self.token, limit))
        for row in rows:
            deadline = min(self._deadline, LEASE_SHARE * row["lease_seconds"])
            task = asyncio.create_task(send(self._pool, workspace_id, row, self._adapters, deadline))
            self._sends[task] = (workspace_id, row)
            task.add_done_callback(self._done)
        self._free -= len(rows)
        return len(rows)

    async def _until_next(self, workspace_id: str) -> float:
        """Seconds to the next slot, by the database's clock. One that is due but did not begin is somebody else's."""
        query = "select extract(epoch from autopost.next_begin_at(%s) - clock_timestamp())::float8 as seconds"
        seconds = (await call(self._pool, query, (workspace_id,)))[0]["seconds"]
        if seconds is None:
            return self._poll
        return min(seconds, self._poll) if seconds > 0 else DUE_BUT_TAKEN

    def _done(self, task: asyncio.Task[Result]) -> None:
        workspace_id, row = self._sends.pop(task)
        self._settler.put(released(workspace_id, row) if task.cancelled() else task.result())

    def _settled(self, count: int) -> None:
        self._free += count
        self._awake.set()

    async def _listen(self) -> None:
        async with aclosing(listen(self._url, WAKE_CHANNEL, name="vestnik dispatcher listen")) as wakes:
            async for _ in wakes:
                self._awake.set()

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._awake.wait()
        except TimeoutError:
            pass

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

    async def _end_settling(self, settling: asyncio.Task[None]) -> None:
        """Everything that was sent is written down, unless the database stays away: then the lease sweep finds it."""
        self._settler.close()
        _, unfinished = await asyncio.wait([settling], timeout=self._grace)
        for task in unfinished:
            log.error("dispatcher.results_not_written", results=self._settler.waiting)
            task.cancel()
            await asyncio.wait([task])


# Only what a send needs: what is not asked for need not be read.
_CLAIM = """
select delivery_id, lease, trace_id::text, channel_id, platform, target_id, auth_ref, rate_group, settings, rendered_text, render_meta,
       case when b.payload ? 'media' then autopost.media_of(%s, b.payload -> 'media') end as media,
       (select extract(epoch from p.sending_lease)::float8 from autopost.policies p where p.workspace_id = %s) as lease_seconds
from autopost.claim_and_begin(%s, %s, %s) b
"""
