"""A text that is too long for one message: in parts, or its beginning with a link to the rest.

Pure, and pinned by version like the conversion: a series that broke off goes on with the very same parts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from urllib.parse import urlsplit

from vestnik.adapters.contract import ParseMode
from vestnik.adapters.markup import convert, dialect_of, parse
from vestnik.adapters.markup.cuts import Places, after, before, settle, shows
from vestnik.adapters.markup.measure import measure, measure_tree
from vestnik.adapters.markup.tree import Node
from vestnik.adapters.markup.writer import render

Part = tuple[str, str | None]
LEAST_OF_A_PART = 0.25
LEAST_OF_A_BEGINNING = 0.8
LONGEST_LABEL = 48


class CannotCut(ValueError):
    """Not even one character fits: an address is longer than the limit."""


def split_text(text: str, parse_mode: ParseMode, platform: str, limit: int, version: int = 1) -> list[Part]:
    """Parts of at most ``limit`` units, as the platform counts; raises CannotCut."""
    return list(SPLITTERS[version](text, parse_mode, platform, limit))


def truncate_text(
    text: str, parse_mode: ParseMode, platform: str, limit: int, more_link: str, version: int = 1
) -> Part:
    """As much of the beginning as fits, "…", and a link to the whole of it; raises CannotCut."""
    return TRUNCATORS[version](text, parse_mode, platform, limit, more_link)


@lru_cache(maxsize=32)
def _split_1(text: str, parse_mode: ParseMode, platform: str, limit: int) -> tuple[Part, ...]:
    if measure(text, parse_mode, platform, 1) <= limit:
        return (convert(text, parse_mode, platform, 1),)
    rest = _tree(text, parse_mode, platform)
    places = Places(rest)
    parts: list[Part] = []
    start, end = 0, len(places.text)
    while start < end:
        cut = _furthest(places, start, limit, LEAST_OF_A_PART, _length_to(rest, start, parse_mode, platform))
        part = before(rest, cut - start)
        if shows(part):
            parts.append(_written(part, parse_mode, platform))
        rest, start = after(rest, cut - start), cut
    return tuple(parts)


@lru_cache(maxsize=32)
def _truncate_1(text: str, parse_mode: ParseMode, platform: str, limit: int, more_link: str) -> Part:
    if measure(text, parse_mode, platform, 1) <= limit:
        return convert(text, parse_mode, platform, 1)
    tree = _tree(text, parse_mode, platform)
    places = Places(tree)
    label = more_link if parse_mode == "None" else _label(more_link)

    def beginning(place: int) -> Node:
        return _continued(before(tree, place), more_link, label)

    def length(place: int) -> int:
        return measure_tree(beginning(place), parse_mode, platform)

    cut = _furthest(places, 0, limit, LEAST_OF_A_BEGINNING, length)
    return _written(beginning(cut), parse_mode, platform)


SPLITTERS = {1: _split_1}
TRUNCATORS = {1: _truncate_1}


def _tree(text: str, parse_mode: str, platform: str) -> Node:
    tree = parse(text, parse_mode)
    settle(tree, dialect_of(tree, parse_mode, platform))
    return tree


def _written(tree: Node, parse_mode: str, platform: str) -> Part:
    dialect = dialect_of(tree, parse_mode, platform)
    return render(tree, dialect), dialect.parse_mode


def _length_to(rest: Node, start: int, parse_mode: str, platform: str) -> Callable[[int], int]:
    return lambda place: measure_tree(before(rest, place - start), parse_mode, platform)


def _furthest(places: Places, start: int, limit: int, least: float, length: Callable[[int], int]) -> int:
    end = len(places.text)
    low, shorter = start, 0
    high = min(end, start + limit)
    while (longer := length(high)) <= limit:
        if high == end:
            return end
        low, shorter, high = high, longer, min(end, high + limit)
    step = 0
    while high - low > 1:
        # Texts are even enough to guess the place; every third time in the middle, for those that are not.
        step += 1
        share = (limit - shorter) * (high - low) // (longer - shorter) if step % 3 else (high - low) // 2
        place = min(max(low + share, low + 1), high - 1)
        found = length(place)
        if found <= limit:
            low, shorter = place, found
        else:
            high, longer = place, found
    while low > start:
        cut = places.best(start, low, least)
        # Escapes can make a shorter text the longer one.
        if length(cut) <= limit:
            return cut
        low = cut - 1
    raise CannotCut(f"not one character fits into {limit}")


def _continued(beginning: Node, more_link: str, label: str) -> Node:
    if not _trail_off(beginning):
        beginning.add("…")
    beginning.add(Node("paragraph", children=[Node("link", more_link, [label])]))
    return beginning


def _trail_off(node: Node) -> bool:
    """The dots follow the last word inside its marks, and stand behind code."""
    for at in range(len(node.children) - 1, -1, -1):
        child = node.children[at]
        if not shows(child):
            continue
        del node.children[at + 1 :]
        if isinstance(child, str):
            body = child.rstrip()
            node.children[at] = body + (" …" if body[-1] in ".!?,:;" else "…")
        elif child.kind in ("code", "pre", "rule") or not _trail_off(child):
            node.children.append("…")
        return True
    return False


def _label(address: str) -> str:
    """Short and without a word of any language: what stands behind the scheme, without the query."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return address
    label = (parts.netloc.rpartition("@")[2] + parts.path).removeprefix("www.").rstrip("/")
    return (label if len(label) <= LONGEST_LABEL else label[: LONGEST_LABEL - 1] + "…") or address
