"""Which media travel together: the same for every platform but for the names of the families."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise

from vestnik.adapters.contract import MediaItem


def together(families: Sequence[str | None], most: int) -> list[list[int]]:
    """The places of consecutive items of one family, order kept; an item of no family is alone.

    More than ``most`` of one family are shared out evenly, so that none is left over: 11 are 6 and 5, not 10 and 1.
    """
    found: list[list[int]] = []
    for family, run in groupby(range(len(families)), key=lambda place: families[place]):
        places = list(run)
        found += _shared_out(places, 1 if family is None else most)
    return found


def identity(item: MediaItem) -> tuple[str, str | None]:
    """Equal for what is uploaded once: the same bytes, sent as the same thing."""
    return item.type, item.blob_ref or item.url


def slots(items: Sequence[MediaItem]) -> list[str]:
    """A name for each item's handle as long as nobody knows it; the same media has the same name."""
    first: dict[tuple[str, str | None], int] = {}
    return [f"attach://media{first.setdefault(identity(item), place)}" for place, item in enumerate(items)]


def _shared_out(places: list[int], most: int) -> list[list[int]]:
    count = -(-len(places) // most)
    least, more = divmod(len(places), count)
    ends = [least * n + min(n, more) for n in range(count + 1)]
    return [places[start:end] for start, end in pairwise(ends)]
