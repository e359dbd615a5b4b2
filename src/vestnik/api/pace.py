"""How fast one caller may ask: a bucket each, in this process alone. Two processes together let pass twice as much."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

_MOST = 10_000  # buckets; whoever was longest away is forgotten first, and begins with a full one


class Buckets:
    """``rate`` drops come in a second, up to ``size``; each request takes one."""

    def __init__(self, rate: float, size: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._size, self._clock = rate, size, clock
        self._full_at: OrderedDict[Hashable, float] = OrderedDict()

    def take(self, whose: Hashable) -> float:
        """Seconds to wait; 0 when one was taken."""
        now = self._clock()
        full_at = max(self._full_at.get(whose, now), now) + 1 / self._rate
        wait = full_at - now - self._size / self._rate
        if wait > 0:
            return wait
        self._full_at[whose] = full_at
        self._full_at.move_to_end(whose)
        if len(self._full_at) > _MOST:
            self._full_at.popitem(last=False)
        return 0.0

    def wait(self, whose: Hashable) -> float:
        """Seconds until there is one to take; takes none."""
        now = self._clock()
        return max(max(self._full_at.get(whose, now), now) + 1 / self._rate - now - self._size / self._rate, 0.0)
