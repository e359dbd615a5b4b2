"""The loop of whoever takes work from the database: round after round over the workspaces that have some."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import psycopg
from psycopg_pool import PoolTimeout

from vestnik.db.refusals import OF_THE_ROWS
from vestnik.log import get_log

UNWELL_FOR = 30.0  # seconds
log = get_log()


class Work(Protocol):
    """What a round asks, and whom it tells."""

    @property
    def free(self) -> int:
        """Places that are free now, of ``concurrency``."""

    def held(self, workspace_id: str) -> int:
        """Places that this workspace's work takes now."""

    async def workspaces(self) -> Sequence[str]:
        """Those that have work, in the order of their turns."""

    async def begin(self, workspace_id: str, limit: int) -> int:
        """Takes up to so many; returns how many."""

    async def until_next(self, workspace_id: str) -> float:
        """Seconds until a workspace that gave nothing is worth another question."""

    async def served(self, workspace_id: str) -> None:
        """Of several, this one was the last of a round in which something began."""


@dataclass(slots=True)
class Rounds:
    """Again at once while something begins, else after a wake-up, the next known moment or the poll. ``name`` begins the
    names of the log lines."""

    name: str
    work: Work
    concurrency: int
    poll: float
    stopping: bool = False
    _awake: asyncio.Event = field(default_factory=asyncio.Event)
    _unwell: dict[str, float] = field(default_factory=dict)  # workspaces that failed, and until when they are left out

    def wake(self) -> None:
        self._awake.set()

    def stop(self) -> None:
        self.stopping = True
        self._awake.set()

    async def run(self) -> None:
        """Until ``stop``. Comes back by itself after the database was away."""
        pause = 0.1
        while not self.stopping:
            self._awake.clear()
            try:
                begun, wait = await self._round()
            except (psycopg.OperationalError, PoolTimeout) as e:
                log.warning(f"{self.name}.database_away", error=str(e).strip(), retry_in=pause)
                await self._wait(pause)
                pause = min(pause * 2, 5.0)
                continue
            pause = 0.1
            if not begun:
                await self._wait(wait)

    async def _round(self) -> tuple[int, float]:
        """Each workspace may take its share of the free places. How many began, and how long to wait if none did."""
        begun, wait, last = 0, self.poll, None
        if not self.work.free:
            return begun, wait
        now = asyncio.get_running_loop().time()
        workspaces = [each for each in await self.work.workspaces() if self._unwell.get(each, now) <= now]
        for n, workspace_id in enumerate(workspaces):
            share = self._share(workspace_id, len(workspaces) - n)
            if not self.work.free or self.stopping:
                break
            if not share:
                continue
            try:
                begun_here = await self.work.begin(workspace_id, share)
                if not begun_here:
                    wait = min(wait, await self.work.until_next(workspace_id))
                begun, last = begun + begun_here, workspace_id
                # Nobody else waits: ask for the next ones at once, so that the database works while these start.
                while (
                    len(workspaces) == 1 and begun_here == share <= self._share(workspace_id, 1) and not self.stopping
                ):
                    begun_here = await self.work.begin(workspace_id, share)
                    begun += begun_here
            except OF_THE_ROWS as e:
                # To ask may have cost the patience for a lock: the others do not wait for it at every round.
                self._unwell[workspace_id] = asyncio.get_running_loop().time() + UNWELL_FOR
                log.error(f"{self.name}.workspace_failed", workspace_id=workspace_id, error=str(e))
        if begun and last and len(workspaces) > 1:
            await self.work.served(last)
        return begun, wait

    def _share(self, workspace_id: str, waiting: int) -> int:
        """Of the free places, for one of so many workspaces. A quarter of all is out of reach for each of them: what
        hangs or is slow in one leaves the others their turn."""
        fair = min(max(self.work.free // waiting, 1), max(self.concurrency // 2, 1))
        most = max(self.concurrency - self.concurrency // 4, 1)
        return max(min(fair, self.work.free, most - self.work.held(workspace_id)), 0)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._awake.wait()
        except TimeoutError:
            pass
