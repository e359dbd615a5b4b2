"""A send that takes long says that it is alive: its deadline and its lease begin anew while something moves.

What moves is told from deep inside (a piece of a file that was read, a call that was acknowledged), so the pulse of a
send is found through its task's context.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg import OperationalError
from psycopg.types.json import Jsonb

from vestnik.adapters.contract import SendError
from vestnik.db.pool import Pool, call
from vestnik.log import get_log

BEAT_SHARE = 0.2  # of the lease between two beats that are written down
LEASE_SHARE = 0.9  # of a lease that a send may be silent: the sweep must not give away what is still under way
ASK_AGAIN = 0.1  # seconds after which a database that failed is asked again
log = get_log()


@dataclass(slots=True)
class Pulse:
    pool: Pool
    workspace_id: str
    delivery_id: UUID
    lease: int
    lease_seconds: float
    deadline: float
    _clock: asyncio.Timeout
    _written: float

    @property
    def ends_at(self) -> float:
        """When this send is given up, by the loop's clock, unless something moves."""
        return self._clock.when() or float("inf")

    async def beat(self) -> None:
        """Something moved. Raises SendError when the delivery is somebody else's by now: then this send must stop."""
        now = asyncio.get_running_loop().time()
        to_write = now - self._written > BEAT_SHARE * self.lease_seconds
        if to_write:
            self._written = now
        # A beat that is not written down does not make the lease longer.
        self._clock.reschedule(min(now + self.deadline, self._written + LEASE_SHARE * self.lease_seconds))
        if to_write:
            query = "select autopost.extend_sending(%s, %s, %s) as alive"
            self._stop_unless(
                (await call(self.pool, query, (self.workspace_id, self.delivery_id, self.lease)))[0]["alive"]
            )

    async def rest(self, seconds: float) -> None:
        """Waits, and stays alive meanwhile. Raises SendError when it is cancelled by others than its own clock: what was sent
        before is acknowledged and written down, so nothing is in doubt."""
        loop = asyncio.get_running_loop()
        until, longest = loop.time() + seconds, min(self.deadline / 2, BEAT_SHARE * self.lease_seconds)
        try:
            while (left := until - loop.time()) > 0:
                await asyncio.sleep(min(left, longest))
                await self.beat()
        except asyncio.CancelledError:
            if self._clock.expired():
                raise
            raise SendError(
                category="TRANSIENT",
                scope="delivery",
                code="shutdown",
                message="the dispatcher stopped between two calls of a series",
                raw={"outcome": "not_sent"},
            ) from None

    async def acknowledged(
        self, calls: int, message_ids: Sequence[str], items: Sequence[int], plan: Mapping[str, Any] | None = None
    ) -> None:
        """So many calls of the delivery were, and must not be repeated: a database that fails is asked again, as long as
        the delivery is this sender's."""
        loop = asyncio.get_running_loop()
        self._clock.reschedule(self._written + LEASE_SHARE * self.lease_seconds)
        query = "select autopost.record_progress(%s, %s, %s, %s, %s, %s, %s) as alive"
        pinned = None if plan is None else Jsonb(plan)
        row = (self.workspace_id, self.delivery_id, self.lease, calls, list(message_ids), list(items), pinned)
        while True:
            asked = loop.time()
            try:
                alive = (await call(self.pool, query, row))[0]["alive"]
                break
            except OperationalError as e:
                log.warning(
                    "progress.unwritten", delivery_id=str(self.delivery_id), calls=calls, reason=type(e).__name__
                )
                await asyncio.sleep(ASK_AGAIN)
        self._written = asked
        self._clock.reschedule(asked + self.deadline)
        self._stop_unless(alive)

    def _stop_unless(self, alive: bool) -> None:
        if not alive:
            raise SendError(
                category="TRANSIENT",
                scope="delivery",
                code="lease_lost",
                message="the send took longer than its lease, and the delivery is somebody else's now",
                raw={"outcome": "unknown"},
            )


_PULSE: ContextVar[Pulse | None] = ContextVar("pulse", default=None)


@asynccontextmanager
async def pulse_of(pool: Pool, workspace_id: str, row: Any, deadline: float) -> AsyncIterator[Pulse]:
    """TimeoutError when nothing has moved for ``deadline`` seconds."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(deadline) as clock:
        pulse = Pulse(
            pool, workspace_id, row["delivery_id"], row["lease"], row["lease_seconds"], deadline, clock, loop.time()
        )
        token = _PULSE.set(pulse)
        try:
            yield pulse
        finally:
            _PULSE.reset(token)


async def beat() -> None:
    """Something of this task's send moved. Outside of a send it is nobody's pulse."""
    pulse = _PULSE.get()
    if pulse is not None:
        await pulse.beat()
