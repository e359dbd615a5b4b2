"""What databases store, as what JSON has."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from vestnik.autopost.sources.contract import SourceFailed
from vestnik.autopost.sources.template import Refused


def as_json(column: str, value: Any) -> Any:
    """Numbers and texts as they are, moments in ISO form; bytes are refused where somebody asks for them."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        return Refused(f"column {column} holds bytes, which cannot become text")
    if isinstance(value, list | tuple | set | frozenset):
        return [as_json(column, each) for each in value]
    if isinstance(value, dict):
        return {str(name): as_json(column, each) for name, each in value.items()}
    return str(value)


_KINDS = {"int": int, "float": float, "decimal": Decimal, "str": str}


def store_mark(value: Any) -> dict[str, Any]:
    """A watermark in a form that comes back as the very value that the driver gave."""
    if isinstance(value, datetime | date):
        return {"type": "datetime" if isinstance(value, datetime) else "date", "value": value.isoformat()}
    if isinstance(value, str) and not value.isprintable():
        raise SourceFailed("bad_watermark", "a watermark has a character that cannot be stored", permanent=True)
    for name, kind in _KINDS.items():
        if isinstance(value, kind) and not isinstance(value, bool):
            return {"type": name, "value": value if name in ("int", "str") else str(value)}
    if type(value).__name__ == "UUID":
        return {"type": "str", "value": str(value)}
    message = f"a watermark must be a number, a moment or a text, not {type(value).__name__}"
    raise SourceFailed("bad_watermark", message, permanent=True)


def load_mark(stored: dict[str, Any]) -> Any:
    if stored["type"] == "datetime":
        return datetime.fromisoformat(stored["value"])
    if stored["type"] == "date":
        return date.fromisoformat(stored["value"])
    return _KINDS[stored["type"]](stored["value"])
