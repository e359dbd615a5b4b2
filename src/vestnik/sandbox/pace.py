"""A rate with a burst, as platforms keep it: the generic cell rate algorithm."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Pace:
    due: float = 0.0  # when the next one would come if all of them came evenly

    def wait(self, now: float, rate: float | None, burst: int) -> float:
        """Seconds until one more is allowed; 0 if it is allowed now."""
        return max(0.0, self.due - (burst - 1) / rate - now) if rate else 0.0

    def take(self, now: float, rate: float | None, count: int = 1) -> None:
        """Several at once may pass where one may; the next one waits for all of them."""
        if rate:
            self.due = max(now, self.due) + count / rate
