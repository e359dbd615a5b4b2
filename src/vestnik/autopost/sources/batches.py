"""What a run takes, in the pieces in which it is committed; the dry run looks at the very same ones."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any, Final

from vestnik.autopost.sources.contract import Item, Reading, SourceFailed, SourceReader

MOST_OF_A_FIRST_RUN: Final = 50_000  # items looked through to find the newest ones
OLD: Final = "it was there before the first run"


async def batches(
    reader: SourceReader, config: Any, cursor: Mapping[str, Any], backlog: int | None, *, size: int
) -> AsyncIterator[Reading]:
    """Each with the cursor behind it. ``backlog``: how many of what is there are taken when there is no cursor yet."""
    pages = _pages(reader, config, cursor, size)
    if not cursor and backlog is not None:
        yield await _first(pages, backlog)
        return
    async for reading in pages:
        yield reading


async def _pages(reader: SourceReader, config: Any, cursor: Mapping[str, Any], size: int) -> AsyncIterator[Reading]:
    while True:
        reading = await reader.read(config, cursor, limit=size)
        if reading.more and not reading.items and reading.cursor == cursor:
            message = "it gives the same items again and again; it has to give each key once"
            raise SourceFailed("no_progress", message, permanent=True)
        yield reading
        if not reading.more:
            return
        cursor = reading.cursor


async def _first(pages: AsyncIterator[Reading], backlog: int) -> Reading:
    """What is there already counts as seen, but for the newest few: a channel is not flooded with last year's news.

    All of it at once, for only the end shows which are the newest; of the others only the keys are kept meanwhile.
    """
    items: list[Item] = []
    newest: deque[int] = deque()
    notes: list[str] = []
    last = Reading([], {})
    async for last in pages:
        notes += last.notes
        for item in last.items:
            items.append(item)
            if item.problem or item.skip:
                continue
            newest.append(len(items) - 1)
            if len(newest) > backlog:
                old = newest.popleft()
                items[old] = replace(items[old], payload={}, skip=OLD)
        if len(items) > MOST_OF_A_FIRST_RUN:
            message = f"more than {MOST_OF_A_FIRST_RUN} items are there already; begin later, or with backlog: all"
            raise SourceFailed("long_backlog", message, permanent=True)
    return Reading(items, last.cursor, unchanged=last.unchanged, notes=notes)
