"""Pull sources: what is in a feed, an API or a database, as payloads.

Reading only. A reader is given a configuration and where the last run ended, and says what it found and where that
leads; who calls it takes the items and moves the cursor in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from vestnik.autopost.sources.api import ApiConfig, ApiReader
from vestnik.autopost.sources.contract import Item, Reading, Secrets, SourceFailed, SourceReader
from vestnik.autopost.sources.db import DbConfig, DbReader
from vestnik.autopost.sources.declared import SourceConfig, read_config
from vestnik.autopost.sources.rss import RssConfig, RssReader
from vestnik.download import Downloader
from vestnik.errors import ConfigError

__all__ = ["KINDS", "Item", "Reading", "Secrets", "SourceConfig", "SourceFailed", "SourceReader", "reader", "validate"]

KINDS: Mapping[str, type[SourceConfig]] = MappingProxyType({"rss": RssConfig, "api": ApiConfig, "db": DbConfig})


def validate(kind: str, config: Mapping[str, Any]) -> SourceConfig:
    """The configuration as a reader takes it; ConfigError says what is wrong with it, fault by fault."""
    model = KINDS.get(kind)
    if model is None:
        raise ConfigError(f"there is no source of the kind {kind!r}", hint=f"kinds are {', '.join(KINDS)}")
    return read_config(model, config)


def reader(
    kind: str,
    *,
    downloader: Downloader,
    secrets: Secrets,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> SourceReader:
    """For the runs of one workspace, whose secrets it gets. It may be kept: between runs it remembers nothing needed."""
    if kind == "rss":
        return RssReader(downloader, secrets, clock)
    return ApiReader(downloader, secrets, clock) if kind == "api" else DbReader(secrets, clock)
