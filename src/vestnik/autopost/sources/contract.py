"""What a source is to the rest: something that can be read from where the last run ended."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Protocol

from vestnik.autopost.payload import screen
from vestnik.errors import InvalidPayload, VestnikError

LONGEST_KEY = 512

Secrets = Callable[[str], Awaitable[str]]
"""The name of a credential of the workspace → its secret; raises NotFound."""


class SourceFailed(VestnikError):
    """A source could not be read. ``permanent``: it will not heal by itself, somebody has to change something.
    ``repeated``: so did the run before this one, for the same reason."""

    repeated = False

    def __init__(self, code: str, message: str, *, permanent: bool) -> None:
        super().__init__(message)
        self.code = code
        self.permanent = permanent

    def __reduce__(self) -> tuple[Any, ...]:
        """It may have to come out of another process."""
        return partial(SourceFailed, permanent=self.permanent), (self.code, str(self))


@dataclass(frozen=True, slots=True)
class Item:
    """One thing in a source. With a ``problem`` it cannot be taken, with ``skip`` it is left out on purpose, and why."""

    key: str
    payload: dict[str, Any]
    published_at: datetime | None = None
    problem: str | None = None
    skip: str | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read, oldest first, and where to go on once that is committed. ``more``: call again at once."""

    items: list[Item]
    cursor: dict[str, Any]
    unchanged: bool = False
    notes: list[str] = field(default_factory=list)
    more: bool = False


class SourceReader(Protocol):
    """A reader may give an item again, never skip one: whoever takes the items knows them by their keys."""

    async def read(self, config: Any, cursor: Mapping[str, Any], *, limit: int) -> Reading: ...


def make_item(key: str, payload: dict[str, Any], published_at: datetime | None = None) -> Item:
    """An item that can be stored, or one with the reason why not."""
    try:
        screen(json.dumps(payload).encode())
    except InvalidPayload as e:
        return Item(key, {}, published_at, str(e))
    return Item(key, payload, published_at)


def stable_key(text: str) -> str:
    """The source's own name of an item; where it cannot be a key, a hash of it."""
    usable = 0 < len(text) <= LONGEST_KEY and text.isprintable()
    return text if usable else f"sha256:{fingerprint(text, length=64)}"


def fingerprint(*parts: str, length: int = 16) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()[:length]


def in_words(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def listed(names: Sequence[str], most: int = 3) -> str:
    """``a, b, c and 4 more``: enough of them to know which are meant."""
    shown = ", ".join(name[:80] for name in names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
