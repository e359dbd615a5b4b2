"""A site with files and feeds, for whoever fetches: what is on it, and how it misbehaves."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import Any

from vestnik.sandbox.faults import Fault

MOST_FILES = 200
MOST_BYTES = 128 * 1024 * 1024  # of all files
LARGEST_FILE = 32 * 1024 * 1024
MOST_FEEDS = 100
MOST_ITEMS = 20_000
MOST_TEXT = 64 * 1024 * 1024  # of the items of all feeds


class SiteFull(Exception):
    """The site takes no more of this kind."""


@dataclass(frozen=True, slots=True)
class SiteFile:
    name: str
    content_type: str
    data: bytes
    at: float

    @property
    def etag(self) -> str:
        return f'"{hashlib.sha256(self.data).hexdigest()[:32]}"'


@dataclass(slots=True)
class Feed:
    name: str
    items: list[dict[str, Any]] = field(default_factory=list)  # oldest first
    at: float = 0.0  # of the last change
    version: int = 0
    size: int = 0
    rendered: dict[str, bytes] = field(default_factory=dict)  # by the format, until the next change


class Site:
    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.counters: Counter[str] = Counter()
        self.files: OrderedDict[str, SiteFile] = OrderedDict()
        self.feeds: dict[str, Feed] = {}

    def put(self, file: SiteFile) -> None:
        others = [known for name, known in self.files.items() if name != file.name]
        if len(others) >= MOST_FILES:
            raise SiteFull(f"the sandbox holds at most {MOST_FILES} files")
        if sum(len(known.data) for known in others) + len(file.data) > MOST_BYTES:
            raise SiteFull(f"the sandbox holds at most {MOST_BYTES} bytes of files")
        self.files[file.name] = file

    def add(self, name: str, items: list[dict[str, Any]], now: float) -> Feed:
        """More items for a feed, which is there from now on."""
        feed = self.feeds.get(name) or Feed(name)
        size = len(json.dumps(items))
        if name not in self.feeds and len(self.feeds) >= MOST_FEEDS:
            raise SiteFull(f"the sandbox holds at most {MOST_FEEDS} feeds")
        if len(feed.items) + len(items) > MOST_ITEMS:
            raise SiteFull(f"a feed holds at most {MOST_ITEMS} items")
        if sum(other.size for other in self.feeds.values()) + size > MOST_TEXT:
            raise SiteFull(f"the sandbox holds at most {MOST_TEXT} bytes of items")
        feed.items += items
        feed.at, feed.version, feed.size = now, feed.version + 1, feed.size + size
        feed.rendered.clear()
        self.feeds[name] = feed
        return feed
