"""How long a text is, as a platform counts, in UTF-16 units.

Telegram counts what is left once it has read the markup; every other platform counts what it is sent, and so does MAX.
This is exact, and it decides. The database counts before a delivery exists: the same for plain text and for HTML of
inline marks, elsewhere never more than this (``autopost.text_length``).
"""

from __future__ import annotations

from functools import lru_cache

from vestnik.adapters.contract import ParseMode
from vestnik.adapters.markup import LONGEST_REMEMBERED, dialect_of, parse
from vestnik.adapters.markup.dialects import TelegramText
from vestnik.adapters.markup.tree import Node
from vestnik.adapters.markup.writer import render


def measure(text: str, parse_mode: ParseMode, platform: str, version: int = 1) -> int:
    return MEASURES[version](text, parse_mode, platform)


def units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def measure_tree(tree: Node, parse_mode: str, platform: str) -> int:
    marked_up = parse_mode in ("HTML", "Markdown")
    dialect = TelegramText() if marked_up and platform == "telegram" else dialect_of(tree, parse_mode, platform)
    return units(render(tree, dialect))


def _measure_1(text: str, parse_mode: str, platform: str) -> int:
    if parse_mode not in ("HTML", "Markdown"):
        return units(text)
    return (_remembered_1 if len(text) <= LONGEST_REMEMBERED else _marked_up_1)(text, parse_mode, platform)


def _marked_up_1(text: str, parse_mode: str, platform: str) -> int:
    return measure_tree(parse(text, parse_mode), parse_mode, platform)


_remembered_1 = lru_cache(maxsize=512)(_marked_up_1)
MEASURES = {1: _measure_1}
