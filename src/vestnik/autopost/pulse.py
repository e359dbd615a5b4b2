"""A send that takes long says that it is alive: its deadline and its lease begin anew while something moves.

What moves is told from deep inside (a piece of a file that was read, a call that was acknowledged), so the pulse of a
send is found through its task's context.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from vestnik.adapters.contract import SendError
from vestnik.db.pool import Pool, call

BEAT_SHARE = 0.2  # of the lease between two beats that are written down
LEASE_SHARE = 0.9  # of a lease that a send may be silent: the sweep must not give away what is still under way


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

    async def acknowledged(self, message_ids: Sequence[str], items: Sequence[int]) -> None:
        """One more call of the delivery was: whatever happens from now on, it is not repeated."""
        now = asyncio.get_running_loop().time()
        self._clock.reschedule(now + self.deadline)
        self._written = now
        query = "select autopost.record_progress(%s, %s, %s, %s, %s) as alive"
        row = (self.workspace_id, self.delivery_id, self.lease, list(message_ids), list(items))
        self._stop_unless((await call(self.pool, query, row))[0]["alive"])

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
