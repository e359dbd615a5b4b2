"""Durations as people write them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _in_seconds(value: Any) -> Any:
    """``15m`` as people write it; seconds, ``00:15:00`` and ``PT15M`` are pydantic's own."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd])\s*", value) if isinstance(value, str) else None
    return float(found[1]) * _UNITS[found[2]] if found else value


def in_words(duration: timedelta) -> str:
    """As one would write it: ``90d``, ``36h``, ``15m``."""
    seconds = duration.total_seconds()
    unit = next((each for each in ("d", "h", "m") if seconds and seconds % _UNITS[each] == 0), "s")
    return f"{seconds / _UNITS[unit]:g}{unit}"


Duration = Annotated[timedelta, BeforeValidator(_in_seconds)]
