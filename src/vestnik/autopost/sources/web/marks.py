"""Watermarks of an API: values of which one can say which is further on."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from vestnik.autopost.sources.contract import SourceFailed

Rank = tuple[int, Any]


def rank(value: Any) -> Rank | None:
    """Numbers, moments and words, each kind among its own; None for what is no mark."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return 0, Decimal(str(value))
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        return None
    text = value.strip()
    if text.removeprefix("-").isdecimal():
        return 0, Decimal(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return 2, text
    return 1, moment.replace(tzinfo=moment.tzinfo or UTC)


def behind(value: Any, mark: Any) -> bool:
    """Whether a value is of before the mark. One that cannot be compared is not."""
    mine, its = rank(value), rank(mark)
    return bool(mine and its and mine[0] == its[0] and mine[1] < its[1])


def furthest(values: list[Any], mark: Any) -> Any:
    """The mark after these values; it never goes back."""
    ranked = [(found, value) for value in [mark, *values] if (found := rank(value))]
    if len({kind for (kind, _), _ in ranked}) > 1:
        raise SourceFailed("mixed_watermark", "the watermark is a number here and a text there", permanent=True)
    return max(ranked, key=lambda pair: pair[0][1])[1] if ranked else None
