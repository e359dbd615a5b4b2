"""JSON as it comes from callers."""

from __future__ import annotations

import json
from typing import Any


def loads(text: str) -> Any:
    """Raises ValueError for what is no JSON, and for what could not be shown: half of a character, endless nesting."""
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value
