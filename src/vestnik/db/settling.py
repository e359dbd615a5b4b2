"""Results on their way back into the database, in batches: whatever has come in while the last batch was being written
is the next one."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import psycopg
from psycopg_pool import PoolTimeout

from vestnik.errors import VestnikError
from vestnik.log import get_log

BATCH = 500


class Settled(Protocol):
    @property
    def workspace_id(self) -> str: ...


R = TypeVar("R", bound=Settled)


class Settling(ABC, Generic[R]):
    """Nothing is dropped while the database is away. ``settled`` hears how many were written, ``log_as`` begins the names
    of the log lines."""

    def __init__(self, log_as: str, settled: Callable[[int], None]) -> None:
        self._log_as, self._settled = log_as, settled
        self._log = get_log()
        self._waiting: dict[str, list[R]] = {}  # by workspace
        self._something = asyncio.Event()
        self._closing = False

    @abstractmethod
    async def write(self, workspace_id: str, batch: list[R]) -> None:
        """All of them, in one transaction."""

    @abstractmethod
    def bare(self, result: R) -> R:
        """Only what decides, and of it only what any database can store."""

    @abstractmethod
    def names(self, result: R) -> dict[str, str]:
        """What a log line calls it."""

    def put(self, result: R) -> None:
        self._waiting.setdefault(result.workspace_id, []).append(result)
        self._something.set()

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    def close(self) -> None:
        """Lets ``run`` end once everything that was put has been written."""
        self._closing = True
        self._something.set()

    async def end(self, running: asyncio.Task[None], grace: float) -> None:
        """Everything that was put is written down, unless the database stays away: then the lease sweep finds it."""
        self.close()
        _, unfinished = await asyncio.wait([running], timeout=grace)
        for task in unfinished:
            self._log.error(f"{self._log_as}.results_not_written", results=self.waiting)
            task.cancel()
            await asyncio.wait([task])

    async def run(self) -> None:
        pause = 0.1
        while self._waiting or not self._closing:
            if not self._waiting:
                self._something.clear()
                await self._something.wait()
                continue
            workspace_id, results = next(iter(self._waiting.items()))
            batch = results[:BATCH]
            try:
                await self._write_or_singly(workspace_id, batch)
            except (psycopg.OperationalError, PoolTimeout) as e:
                # What was in fact committed is recognised by its lease the second time. The other workspaces come
                # first then: a lock that this one waits for is none of theirs.
                self._waiting[workspace_id] = self._waiting.pop(workspace_id)
                self._log.warning(
                    f"{self._log_as}.database_away", results=self.waiting, error=str(e).strip(), retry_in=pause
                )
                await asyncio.sleep(pause)
                pause = min(pause * 2, 5.0)
                continue
            pause = 0.1
            del results[: len(batch)]
            self._next_ones_turn(workspace_id, results)
            self._settled(len(batch))

    def _next_ones_turn(self, workspace_id: str, left: list[R]) -> None:
        del self._waiting[workspace_id]
        if left:
            self._waiting[workspace_id] = left

    async def _write_or_singly(self, workspace_id: str, batch: list[R]) -> None:
        if not await self._written(workspace_id, batch, "batch_refused", results=str(len(batch))):
            for result in batch:
                await self._write_one(workspace_id, result)

    async def _write_one(self, workspace_id: str, result: R) -> None:
        """What somebody said may be something that cannot be stored. The result itself counts, so it goes without. Where
        even that cannot be, something in this workspace is wrong: the sweep takes the row back when its lease has run out."""
        names = self.names(result)
        if not await self._written(workspace_id, [result], "answer_not_stored", **names):
            await self._written(workspace_id, [self.bare(result)], "left_to_the_lease", **names)

    async def _written(self, workspace_id: str, batch: list[R], otherwise: str, **names: str) -> bool:
        try:
            await self.write(workspace_id, batch)
        except psycopg.OperationalError:
            raise
        except (psycopg.DatabaseError, ValueError, VestnikError) as e:
            # Not its text, which may quote what could not be stored.
            self._log.error(
                f"{self._log_as}.{otherwise}", workspace_id=workspace_id, error_type=type(e).__name__, **names
            )
            return False
        return True
