"""Counters and histograms as plain numbers: they are moved on the hot path, in one event loop, and read by a scrape.

What they are called outside, ``exposition.py`` says. Names of labels and of metrics follow Prometheus's conventions: a unit
is in the name, a counter is called so without its ``_total``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

Labels = tuple[str, ...]
OTHER = "other"


class Counter:
    def __init__(self, name: str, told: str, labels: Sequence[str] = ()) -> None:
        self.name, self.told, self.labels = name, told, tuple(labels)
        self.values: dict[Labels, float] = {}

    def add(self, *labels: str, by: float = 1.0) -> None:
        self.values[labels] = self.values.get(labels, 0.0) + by


class Histogram:
    """``values`` holds for each set of labels how many fell into each bucket, the one without a bound, and the sum."""

    def __init__(self, name: str, told: str, labels: Sequence[str] = (), *, bounds: Sequence[float]) -> None:
        self.name, self.told, self.labels, self.bounds = name, told, tuple(labels), tuple(bounds)
        self.values: dict[Labels, list[float]] = {}

    def observe(self, value: float, *labels: str) -> None:
        found = self.values.get(labels)
        if found is None:
            found = self.values[labels] = [0.0] * (len(self.bounds) + 2)
        found[bisect_left(self.bounds, value)] += 1
        found[-1] += value


class Bounded:
    """The first so many names; whatever comes later is one: what is open to the world must not make series without end."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._known: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        known = self._known.get(name)
        if known is None:
            known = name if len(self._known) < self.most else OTHER
            if known is name:
                self._known[name] = name
        return known
