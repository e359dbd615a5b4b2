"""Whether a text has a word: whole, in any case; ``word*`` takes every ending."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from vestnik.autopost.sources.tidy import plain


def mentions(words: Sequence[str], texts: Iterable[str]) -> bool:
    """Any of the words, in what a reader sees of the texts."""
    pattern = _pattern(tuple(words))
    return pattern is not None and any(pattern.search(_folded(plain(text) if "<" in text else text)) for text in texts)


@lru_cache(maxsize=256)
def _pattern(words: tuple[str, ...]) -> re.Pattern[str] | None:
    patterns = [_one(_folded(word)) for word in words if word.strip(" *")]
    return re.compile("|".join(patterns)) if patterns else None


def _one(word: str) -> str:
    # A boundary only beside a letter: "c++" ends in what is none.
    stem = word.rstrip("*")
    before = r"(?<!\w)" if re.match(r"\w", stem) else ""
    after = r"(?!\w)" if stem == word and re.search(r"\w$", stem) else ""
    return f"{before}{re.escape(stem)}{after}"


def _folded(text: str) -> str:
    return " ".join(text.casefold().replace("ё", "е").split())
