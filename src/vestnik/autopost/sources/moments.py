"""Moments as sources write them, and which of them to believe."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

_OLDEST: Final = datetime(1990, 1, 1, tzinfo=UTC)  # before that there was no web to publish on
_AHEAD: Final = timedelta(days=1)  # clocks and zones that are wrong, not posts from the future


def moment_of(value: Any) -> datetime | None:
    """ISO 8601, or seconds (or milliseconds) since 1970. Without a zone it is UTC."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000 if abs(value) > 1e11 else value, UTC)
        found = datetime.fromisoformat(value.strip()) if isinstance(value, str) else None
    except (ValueError, OverflowError, OSError):
        return None
    return found.replace(tzinfo=found.tzinfo or UTC) if found else None


def believed(moment: datetime | None, now: datetime) -> datetime | None:
    """None for a date that cannot be when something was published."""
    try:
        return moment if moment and _OLDEST <= moment <= now + _AHEAD else None
    except OverflowError:
        return None
