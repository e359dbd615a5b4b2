"""``api``: JSON over HTTP, in pages, with fields mapped to a post."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal

from pydantic import Field, model_validator
from yarl import URL

from vestnik.autopost.sources.contract import (
    Item,
    Reading,
    Secrets,
    SourceFailed,
    fingerprint,
    in_words,
    make_item,
    stable_key,
)
from vestnik.autopost.sources.declared import Address, Auth, Headers, SourceConfig
from vestnik.autopost.sources.mapping import PostMapping, payload_of
from vestnik.autopost.sources.moments import believed, moment_of
from vestnik.autopost.sources.template import Expr, MappingFailed, as_text, value_of
from vestnik.autopost.sources.web.marks import behind, furthest, rank
from vestnik.autopost.sources.web.pages import Paging, PathText, Walk
from vestnik.autopost.sources.web.passes import Listing, Passes
from vestnik.download import Downloader

MOST_ITEMS: Final = 50_000


class ApiWatermark(SourceConfig):
    path: PathText
    param: str | None = Field(None, description="The API itself leaves out what is before this parameter.")
    start: str | int | None = None


class ApiConfig(SourceConfig):
    url: Address
    headers: Headers = Field({})
    query: dict[str, str | int | float | bool] = Field({})
    auth: Auth | None = None
    items: PathText = "$[*]"
    key: Expr
    published_at: Expr | None = None
    mapping: PostMapping
    order: Literal["newest_first", "oldest_first"] = "newest_first"
    watermark: ApiWatermark | None = None
    paging: Paging | None = None
    max_pages: int = Field(20, ge=1, le=1000)

    @model_validator(mode="after")
    def _can_go_on(self) -> ApiConfig:
        if self.order == "oldest_first" and self.paging and not (self.watermark and self.watermark.param):
            raise ValueError("order: oldest_first with paging needs watermark.param, or every run begins at the oldest")
        return self


class ApiReader:
    def __init__(
        self, downloader: Downloader, secrets: Secrets, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._downloader, self._secrets, self._clock = downloader, secrets, clock
        self._passes = Passes()

    async def read(self, config: ApiConfig, cursor: Mapping[str, Any], *, limit: int) -> Reading:
        listing = self._passes.kept(cursor)
        if listing is None:
            found = await self._walked(config, cursor)
            if found is None:
                return Reading([], dict(cursor), unchanged=True)
            listing = _listing(config, found, cursor, self._clock())
        return self._passes.reading(listing, cursor, limit)

    async def _walked(self, config: ApiConfig, cursor: Mapping[str, Any]) -> _Found | None:
        secret_headers = await config.auth.as_header(self._secrets) if config.auth else {}
        start = _start(config, cursor)
        walk = Walk(self._downloader, start, config.headers, secret_headers, config.items, config.paging)
        # Of several pages the first alone does not tell whether the others have changed.
        state = cursor if config.paging is None and cursor.get("config") == config.identity() else None
        found = _Found()
        async with aclosing(walk.pages(state)) as pages:
            async for page in pages:
                if page is None:
                    return None
                found.items += page.items
                found.pages += 1
                found.state = page.state if config.paging is None else {}
                if page.last or _all_known(config, page.items, cursor):
                    break
                if found.pages >= config.max_pages or len(found.items) >= MOST_ITEMS:
                    found.stopped = True
                    break
        return found


@dataclass(slots=True)
class _Found:
    items: list[Any] = field(default_factory=list)
    pages: int = 0
    state: dict[str, str] = field(default_factory=dict)
    stopped: bool = False  # there are more pages than may be read


def _start(config: ApiConfig, cursor: Mapping[str, Any]) -> URL:
    query = {name: as_text(value) for name, value in config.query.items()}
    mark = _mark(config, cursor)
    if config.watermark and config.watermark.param and mark is not None:
        query[config.watermark.param] = str(mark)
    return URL(config.url).update_query(query)


def _mark(config: ApiConfig, cursor: Mapping[str, Any]) -> Any:
    if config.watermark is None:
        return None
    known = cursor.get("watermark") if cursor.get("watermark_path") == config.watermark.path else None
    return config.watermark.start if known is None else known


def _all_known(config: ApiConfig, items: list[Any], cursor: Mapping[str, Any]) -> bool:
    """All of a page, not one item: a pinned post is old and stands first."""
    mark = _mark(config, cursor)
    if config.order == "oldest_first" or config.watermark is None or mark is None:
        return False
    return all(behind(_marked(config.watermark, item), mark) for item in items)


def _listing(config: ApiConfig, found: _Found, cursor: Mapping[str, Any], now: datetime) -> Listing:
    raw = found.items[::-1] if config.order == "newest_first" else found.items
    items = {item.key: item for item in (_item(config, each, now) for each in raw)}
    after: dict[str, Any] = {"config": config.identity(), **found.state}
    notes = []
    mark = _mark(config, cursor)
    if config.watermark:
        values = [_marked(config.watermark, each) for each in raw]
        if unmarked := sum(rank(value) is None for value in values):
            notes.append(f"{in_words(unmarked, 'item has', 'items have')} no watermark at {config.watermark.path}")
        after |= {"watermark_path": config.watermark.path, "watermark": furthest(values, mark)}
    if items:
        after["last_seen_id"] = next(reversed(items))
    more = found.stopped and _goes_on(config, found, mark, after.get("watermark"), notes)
    return Listing(list(items.values()), after, notes, more=more)


def _goes_on(config: ApiConfig, found: _Found, mark: Any, furthest_mark: Any, notes: list[str]) -> bool:
    """There are more pages than one run reads: whether the next run will come to them. SourceFailed when never."""
    if config.order == "oldest_first":
        if furthest_mark == mark:
            message = f"{found.pages} pages have the same watermark; raise max_pages"
            raise SourceFailed("no_progress", message, permanent=True)
        return True
    if config.watermark and mark is not None:
        message = f"{found.pages} pages do not reach back to the last run; raise max_pages, or run more often"
        raise SourceFailed("gap", message, permanent=True)
    notes.append(f"only the first {in_words(found.pages, 'page is', 'pages are')} read; what is older is left")
    return False


def _marked(watermark: ApiWatermark, item: Any) -> Any:
    try:
        return value_of(watermark.path, item)
    except MappingFailed:
        return None


def _item(config: ApiConfig, record: Any, now: datetime) -> Item:
    published: datetime | None = None
    key = f"sha256:{fingerprint(json.dumps(record, sort_keys=True), length=64)}"
    try:
        name = as_text(value_of(config.key, record)).strip()
        if not name:
            raise MappingFailed(f"it has no key at {config.key}")
        key = stable_key(name)
        if config.published_at:
            published = believed(moment_of(value_of(config.published_at, record)), now)
        payload = payload_of(config.mapping, record) | {"source": {"id": key}}
    except MappingFailed as e:
        return Item(key, {}, published, str(e))
    return make_item(key, payload, published)
