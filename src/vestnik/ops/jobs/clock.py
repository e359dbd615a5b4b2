"""When a schedule ticks: cron expressions in a time zone, or plain intervals. Pure: nothing here asks what time it is.

Cron is Debian's, with its rules for the two days of the year: a job at a fixed time that the clocks skip ticks right
after the gap, and one in the hour that comes twice ticks once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from vestnik.errors import ConfigError

Missed = Literal["skip", "once", "all"]
LATE_AFTER = timedelta(seconds=60)  # a tick that nobody fired within this time was missed
_LOOK_BACK = (timedelta(hours=1), timedelta(days=1), timedelta(days=32))  # so that a long absence costs a short search
SELDOM = timedelta(days=3650)
MOST_AT_ONCE = 500  # ticks of one schedule; what is left comes with the next look


@dataclass(frozen=True, slots=True)
class Rule:
    """Either ``cron`` in ``timezone``, or ``every``."""

    cron: str | None = None
    every: timedelta | None = None
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        if (self.cron is None) == (self.every is None):
            raise ConfigError("a schedule has either cron or every")
        if self.every is not None and self.every < timedelta(seconds=1):
            raise ConfigError(f"every {self.every} is too often", hint="a second is the shortest interval")
        if self.every is not None and self.every > SELDOM:
            raise ConfigError(f"every {self.every} is too seldom", hint="ten years are the longest interval")
        _zone(self.timezone)
        if self.cron is not None:
            try:
                self.first_after(datetime(2027, 1, 1, tzinfo=UTC))
            except (CronSimError, StopIteration):
                raise ConfigError(
                    f"{self.cron!r} is no cron expression, or never comes true",
                    hint="minute hour day month weekday, as in '*/15 * * * *' or '0 9 * * MON-FRI'",
                ) from None

    def first_after(self, moment: datetime) -> datetime:
        """The first tick of a schedule that is made at ``moment``."""
        return moment + self.every if self.every is not None else next(self._cron_ticks(moment))

    def ticks_from(self, tick: datetime) -> Iterator[datetime]:
        """``tick`` and all that follow it."""
        yield tick
        if self.every is None:
            yield from self._cron_ticks(tick)
            return
        while True:
            tick += self.every
            yield tick

    def last_until(self, tick: datetime, now: datetime) -> tuple[datetime, datetime]:
        """From ``tick`` on, the last one not after ``now`` and the first one after it, however many lie between."""
        if self.every is not None:
            last = tick + (now - tick) // self.every * self.every
            return last, last + self.every
        for back in _LOOK_BACK:
            if now - back > tick and (found := self._around(now - back, now)):
                return found
        return self._around(tick, now) or (tick, self.first_after(now))

    def _around(self, start: datetime, now: datetime) -> tuple[datetime, datetime] | None:
        """The last tick after ``start`` that is not after ``now``, if there is one, and the first one after it."""
        last = None
        for following in self._cron_ticks(start):
            if following > now:
                return (last, following) if last else None
            last = following
        return None

    def _cron_ticks(self, moment: datetime) -> Iterator[datetime]:
        assert self.cron is not None
        last = moment
        for local in CronSim(self.cron, moment.astimezone(_zone(self.timezone))):
            tick = local.astimezone(UTC)
            # In the hour that comes twice the wall clock goes back; ticks do not.
            if tick > last:
                last = tick
                yield tick


def due(rule: Rule, missed: Missed, next_at: datetime, now: datetime) -> tuple[list[datetime], datetime]:
    """Which ticks to fire at ``now``, when the one that stands next is due, and which one stands next then.

    Late ticks are missed: all of them are fired, or only the last one, or none.
    """
    if missed == "all":
        fired: list[datetime] = []
        for tick in rule.ticks_from(next_at):
            if tick > now or len(fired) == MOST_AT_ONCE:
                return fired, tick
            fired.append(tick)
    last, following = rule.last_until(next_at, now)
    return ([] if missed == "skip" and now - last > LATE_AFTER else [last]), following


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ConfigError(f"there is no time zone {name!r}", hint="a name like Europe/Moscow") from None
