"""The specification's manual operations, ready to run: ``runbook.sql`` by section, statement by statement."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_TEXT = Path(__file__).with_name("runbook.sql").read_text("utf-8")
_SECTION = re.compile(r"^-- (\d+)\) .*$", re.MULTILINE)
_PLACE = re.compile(r"(?<![:\w]):([a-z_]+)")
_CLOCK = re.compile(r"\bnow\(\)")


def statements(section: int) -> list[str]:
    """Those of one section, exactly as printed."""
    return list(_statements(_sections()[section]))


def as_psycopg(statement: str) -> str:
    """``:name`` as psycopg writes it; casts (``::type``) stay."""
    return _PLACE.sub(r"%(\1)s", statement)


def at_any_time(statement: str) -> str:
    """The same statement for a clock in hand: it takes ``:now`` where it asked the server for the time."""
    return _CLOCK.sub(":now::timestamptz", statement)


def _sections() -> dict[int, str]:
    _, *parts = _SECTION.split(_TEXT)
    return {int(number): text for number, text in zip(parts[::2], parts[1::2], strict=True)}


def _statements(text: str) -> Iterator[str]:
    for part in text.split(";"):
        if any(line.strip() and not line.lstrip().startswith("--") for line in part.splitlines()):
            yield part.strip()
