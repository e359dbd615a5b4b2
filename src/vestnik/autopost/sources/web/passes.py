"""A listing that is longer than one reading, given piece by piece.

The cursor of a pass says how many items were given and which they were. Whoever goes on from it, this reader or
another after a crash, goes on behind them as long as the listing still begins with them, and begins anew if not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vestnik.autopost.sources.contract import Item, Reading, fingerprint
from vestnik.autopost.sources.web.fetch import STATE


@dataclass(frozen=True, slots=True)
class Listing:
    """All that a source has to give now; ``cursor`` is where that leads once it is all taken."""

    items: list[Item]
    cursor: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    more: bool = False


class Passes:
    """Keeps the rest of one listing, so that going on need not read it again."""

    def __init__(self) -> None:
        self._kept: tuple[dict[str, Any], Listing] | None = None

    def kept(self, cursor: Mapping[str, Any]) -> Listing | None:
        """The listing that this very cursor stands in the middle of."""
        return self._kept[1] if self._kept and "pass" in cursor and self._kept[0] == cursor else None

    def reading(self, listing: Listing, cursor: Mapping[str, Any], limit: int) -> Reading:
        keys = [item.key for item in listing.items]
        at = _given(keys, cursor)
        end = at + max(1, limit)
        notes = listing.notes if at == 0 else []
        self._kept = None
        if end >= len(keys):
            return Reading(listing.items[at:], listing.cursor, notes=notes, more=listing.more)
        # Without the state of the document: until all of it is taken, it has to be given again.
        going_on = {k: v for k, v in cursor.items() if k not in STATE}
        going_on["config"] = listing.cursor["config"]
        going_on["pass"] = {"given": end, "keys": fingerprint(*keys[:end])}
        self._kept = (going_on, listing)
        return Reading(listing.items[at:end], going_on, notes=notes, more=True)


def _given(keys: list[str], cursor: Mapping[str, Any]) -> int:
    place = cursor.get("pass")
    if not place or place["given"] > len(keys):
        return 0
    given = int(place["given"])
    return given if fingerprint(*keys[:given]) == place["keys"] else 0
