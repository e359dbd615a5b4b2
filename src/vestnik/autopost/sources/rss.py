"""``rss``: RSS 2.0, RSS 1.0, Atom and JSON Feed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import Field, field_validator

from vestnik.autopost.sources.contract import (
    Item,
    Reading,
    Secrets,
    SourceFailed,
    fingerprint,
    in_words,
    listed,
    make_item,
    stable_key,
)
from vestnik.autopost.sources.declared import Address, Auth, Headers, SourceConfig
from vestnik.autopost.sources.feeds.apart import bounded
from vestnik.autopost.sources.feeds.entries import Entry, Feed
from vestnik.autopost.sources.feeds.parse import parse_feed
from vestnik.autopost.sources.feeds.post import FIELDS, entry_payload
from vestnik.autopost.sources.feeds.words import mentions
from vestnik.autopost.sources.moments import believed
from vestnik.autopost.sources.template import Expr, Template, expression
from vestnik.autopost.sources.web.addresses import web_address
from vestnik.autopost.sources.web.fetch import Document, fetch
from vestnik.autopost.sources.web.passes import Listing, Passes
from vestnik.download import Downloader


class RssConfig(SourceConfig):
    url: Address
    headers: Headers = Field({})
    auth: Auth | None = None
    content: Literal["title", "summary", "full"] = "summary"
    text: Expr | None = Field(None, description="A template of its own, of {title}, {summary}, {full}, {link}, …")
    link: Literal["text", "button", "none"] = "text"
    button_text: str = Field("Read more", min_length=1, max_length=64)
    media: Literal["none", "first", "all"] = "none"
    include: list[str] = Field([], description="Only entries with any of these words.")
    exclude: list[str] = Field([], description="No entry with any of these words.")
    tags: list[str] = Field([])
    categories_as_tags: bool = False

    @field_validator("text")
    @classmethod
    def _known(cls, text: str | None) -> str | None:
        template = expression(text or "{title}")
        names = [".".join(name.path) for name in template.names] if isinstance(template, Template) else []
        if unknown := [name for name in names if name not in FIELDS]:
            raise ValueError(f"there is no field {unknown[0]!r}; there are {_NAMES}")
        if not names:
            raise ValueError(f"names no field; there are {_NAMES}")
        return text


MOST_ENTRIES = 100_000
_NAMES = ", ".join(f"{{{name}}}" for name in sorted(FIELDS))


class RssReader:
    def __init__(
        self, downloader: Downloader, secrets: Secrets, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._downloader, self._secrets, self._clock = downloader, secrets, clock
        self._passes = Passes()

    async def read(self, config: RssConfig, cursor: Mapping[str, Any], *, limit: int) -> Reading:
        listing = self._passes.kept(cursor)
        if listing is None:
            same = cursor.get("config") == config.identity()
            headers = dict(config.headers) | (await config.auth.as_header(self._secrets) if config.auth else {})
            document = await fetch(self._downloader, config.url, headers, cursor if same else None)
            if document is None:
                return Reading([], dict(cursor), unchanged=True)
            listing = await bounded(len(document.body), _listing, config, document, self._clock())
        return self._passes.reading(listing, cursor, limit)


def _listing(config: RssConfig, document: Document, now: datetime) -> Listing:
    feed = parse_feed(document.body, document.url, document.content_type)
    if len(feed.entries) > MOST_ENTRIES:
        raise SourceFailed("too_many_items", f"the feed has more than {MOST_ENTRIES} items", permanent=True)
    entries, notes = _distinct(feed)
    items = [_item(config, feed, key, entry, now) for key, entry in _oldest_first(entries, now)]
    # What was cut off has to come again, under whatever name the server gives to the whole.
    state = {} if feed.cut_off else document.state
    cursor: dict[str, Any] = {"config": config.identity(), **state}
    if items:
        latest = items[-1]
        cursor["last_seen_id"] = latest.key
        if latest.published_at:
            cursor["last_seen_ts"] = latest.published_at.isoformat()
    return Listing(items, cursor, [*feed.notes, *notes])


def _distinct(feed: Feed) -> tuple[list[tuple[str, Entry]], list[str]]:
    """Each key once, in the order of the document: the first of the same name counts."""
    counts = Counter(_key(entry) for entry in feed.entries)
    first: dict[str, Entry] = {}
    for entry in feed.entries:
        first.setdefault(_key(entry), entry)
    twice = [key for key, count in counts.items() if count > 1]
    if not twice:
        return list(first.items()), []
    left_out = len(feed.entries) - len(first)
    note = f"{in_words(left_out, 'item has', 'items have')} the guid of another, only the first counts: {listed(twice)}"
    return list(first.items()), [note]


def _oldest_first(entries: list[tuple[str, Entry]], now: datetime) -> list[tuple[str, Entry]]:
    """By date when every entry has one to be believed; else as the feed has them, the last one first."""
    reverse = entries[::-1]
    dates = {key: believed(entry.published, now) for key, entry in reverse}
    if all(dates.values()):
        reverse.sort(key=lambda pair: dates[pair[0]] or now)
    return reverse


def _key(entry: Entry) -> str:
    name = entry.id or entry.link
    if name:
        return stable_key(name)
    bodies = [body.text for body in (entry.summary, entry.content) if body]
    return f"sha256:{fingerprint(entry.title, *bodies, length=64)}"


def _unwanted(config: RssConfig, entry: Entry) -> str | None:
    """Remembered with the item: words that change later apply to what comes later."""
    if not config.include and not config.exclude:
        return None
    bodies = [body.text for body in (entry.summary, entry.content) if body]
    texts = [entry.title, *bodies, *entry.categories]
    if config.include and not mentions(config.include, texts):
        return "it has none of the words of include"
    return "it has a word of exclude" if mentions(config.exclude, texts) else None


def _item(config: RssConfig, feed: Feed, key: str, entry: Entry, now: datetime) -> Item:
    published = believed(entry.published, now)
    if unwanted := _unwanted(config, entry):
        return Item(key, {}, published, skip=unwanted)
    payload = entry_payload(config, feed, entry)
    if not (payload.keys() & {"text", "links", "media"}):
        return Item(key, {}, published, "nothing to post: it has no title, no text and no link")
    return make_item(key, payload | {"source": _origin(feed, key, entry, published)}, published)


def _origin(feed: Feed, key: str, entry: Entry, published: datetime | None) -> dict[str, Any]:
    link = web_address(entry.link, entry.base)
    known = {"feed": feed.title, "id": key, "link": link, "title": entry.title, "author": entry.author}
    found: dict[str, Any] = {name: value for name, value in known.items() if value}
    return found | ({"published_at": published.isoformat()} if published else {})
