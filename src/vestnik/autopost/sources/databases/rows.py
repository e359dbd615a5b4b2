"""How far one gets in rows that are ordered by a watermark which many of them may share.

A page may end between two rows of the same watermark. So the cursor is the last value whose rows are all taken, and
the keys of those rows that were taken from it on: the next query brings some of them again, whether it asks with
``>`` or ``>=``, and they are left out by their keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from vestnik.autopost.sources.contract import Item, SourceFailed

MOST_TIES: Final = 10_000


@dataclass(frozen=True, slots=True)
class Marked:
    mark: Any
    digest: str
    item: Item


@dataclass(frozen=True, slots=True)
class Progress:
    taken: list[Item]
    mark: Any
    taken_there: list[str]  # digests of the keys at the mark and after it
    more: bool


def progress(rows: Sequence[Marked], mark: Any, known: frozenset[str], *, limit: int, full: bool) -> Progress:
    """``full``: the query gave as many rows as it was allowed, there may be more of the last value."""
    taken, end = _take(rows, known, limit)
    given = known | {row.digest for row in rows[:end]}
    start = _settled(rows, end, full)
    settled = start is not None and not _earlier(rows[start].mark, mark)
    if settled and start is not None:
        mark = rows[start].mark
        kept = [row.digest for row in rows[start:] if row.digest in given]
    else:
        kept = sorted(given)
    if len(kept) > MOST_TIES:
        message = f"more than {MOST_TIES} rows have the same watermark; choose a column that tells them apart"
        raise SourceFailed("too_many_ties", message, permanent=True)
    return Progress(taken, mark, list(dict.fromkeys(kept)), full or end < len(rows))


def _take(rows: Sequence[Marked], known: frozenset[str], limit: int) -> tuple[list[Item], int]:
    """The rows that are new, each key once, and how far down that is."""
    taken: dict[str, Item] = {}
    for at, row in enumerate(rows):
        if row.digest in known or row.digest in taken:
            continue
        if len(taken) == limit:
            return list(taken.values()), at
        taken[row.digest] = row.item
    return list(taken.values()), len(rows)


def _settled(rows: Sequence[Marked], end: int, full: bool) -> int | None:
    """Where the rows of the last value begin that will not be asked for again; None when there is none."""
    if end == 0:
        return None
    last = rows[end - 1].mark
    open_end = full if end == len(rows) else rows[end].mark == last
    at = _run(rows, end - 1)
    if not open_end:
        return at
    return _run(rows, at - 1) if at else None


def _run(rows: Sequence[Marked], at: int) -> int:
    while at and rows[at - 1].mark == rows[at].mark:
        at -= 1
    return at


def _earlier(value: Any, mark: Any) -> bool:
    """A query that looks back a little must not take the cursor with it. Texts are in the database's own order."""
    try:
        return mark is not None and not isinstance(value, str) and bool(value < mark)
    except TypeError:
        return False
