"""What the service itself does again and again: each kind has one schedule, made anew whenever a runner starts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from vestnik.db.pool import Pool
from vestnik.ops.jobs.clock import Missed
from vestnik.ops.jobs.registry import JobKind
from vestnik.ops.jobs.verbs import SERVICE, put_schedule


@dataclass(frozen=True, slots=True)
class Recurring:
    """Either ``every`` or ``cron`` (UTC). One job at a time; who wants it to rest pauses its kind."""

    kind: JobKind
    every: timedelta | None = None
    cron: str | None = None
    missed: Missed = "once"

    @property
    def schedule_id(self) -> str:
        return f"service:{self.kind.name}"


async def put_recurring(pool: Pool, recurring: Iterable[Recurring]) -> None:
    for each in recurring:
        await put_schedule(
            pool,
            SERVICE,
            each.schedule_id,
            each.kind.name,
            every=each.every,
            cron=each.cron,
            missed=each.missed,
            overlap=False,
        )
