"""What every driver does: run one query that only reads, and give its rows or a SourceFailed in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vestnik.autopost.sources.contract import SourceFailed
from vestnik.autopost.sources.databases.dsn import Dsn

CONNECT_TIMEOUT = 10


@dataclass(frozen=True, slots=True)
class Question:
    """``most``: one more row than the query may give."""

    dsn: Dsn
    query: str
    parameters: Mapping[str, Any]
    most: int
    timeout: float


@dataclass(frozen=True, slots=True)
class Table:
    columns: list[str]
    rows: list[tuple[Any, ...]]


def unreachable(dsn: Dsn, error: Exception, *, permanent: bool = False) -> SourceFailed:
    return SourceFailed("no_connection", f"cannot connect: {dsn.redacted(str(error))}", permanent=permanent)


def too_slow(timeout: float) -> SourceFailed:
    return SourceFailed("timeout", f"the query took longer than {timeout:g} s", permanent=False)


def failed(dsn: Dsn, code: str, words: str, *, permanent: bool) -> SourceFailed:
    return SourceFailed(code, dsn.redacted(words), permanent=permanent)
