"""The pages of an API, one after the other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Never

from pydantic import AfterValidator, Field, model_validator
from yarl import URL

from vestnik.autopost.sources.contract import SourceFailed
from vestnik.autopost.sources.declared import SourceConfig
from vestnik.autopost.sources.template import MappingFailed, Path, expression
from vestnik.autopost.sources.web.addresses import web_address
from vestnik.autopost.sources.web.fetch import Document, fetch
from vestnik.download import Downloader


def _path(text: str) -> str:
    is_path = isinstance(expression(text), Path)
    if not is_path:
        raise ValueError(f"{text!r} is not a JSONPath; write it like $.data[*]")
    return text


PathText = Annotated[str, AfterValidator(_path)]


class ByNumber(SourceConfig):
    """``?page=1``, ``?page=2``, …, until a page is empty, or shorter than its size where that is given."""

    by: Literal["page"]
    param: str = "page"
    start: int = Field(1, ge=0)
    size: int | None = Field(None, ge=1)
    size_param: str | None = None

    @model_validator(mode="after")
    def _sized(self) -> ByNumber:
        if self.size_param and not self.size:
            raise ValueError("size_param needs size")
        return self


class ByLink(SourceConfig):
    """The answer says where the next page is."""

    by: Literal["next"]
    path: PathText


class ByCursor(SourceConfig):
    """The answer says what to ask for next, in a parameter."""

    by: Literal["cursor"]
    path: PathText
    param: str = "cursor"


Paging = Annotated[ByNumber | ByLink | ByCursor, Field(discriminator="by")]


@dataclass(frozen=True, slots=True)
class Page:
    items: list[Any]
    state: dict[str, str]
    last: bool


@dataclass(frozen=True, slots=True)
class Walk:
    """Where the pages are. Headers that hold a secret go to the first address's own host only."""

    downloader: Downloader
    start: URL
    headers: Mapping[str, str]
    secret_headers: Mapping[str, str]
    items: str
    paging: ByNumber | ByLink | ByCursor | None

    async def pages(self, state: Mapping[str, Any] | None) -> AsyncGenerator[Page | None, None]:
        """None instead of the first page: it is as it was when ``state`` was made."""
        url: URL | None = self._first()
        seen: set[str] = set()
        while url is not None:
            document = await self._fetch(url, state)
            if document is None:
                yield None
                return
            if document.state["body"] in seen:  # an API that ignores the parameter gives one page for ever
                return
            seen.add(document.state["body"])
            answer = await asyncio.to_thread(_decoded, document.body, url)
            items = self._items(answer)
            url, state = self._following(answer, URL(document.url), len(seen), len(items)), None
            yield Page(items, document.state, last=url is None)

    def _first(self) -> URL:
        paging = self.paging
        if not isinstance(paging, ByNumber):
            return self.start
        size = {paging.size_param: str(paging.size)} if paging.size_param else {}
        return self.start.update_query({paging.param: str(paging.start)} | size)

    async def _fetch(self, url: URL, state: Mapping[str, Any] | None) -> Document | None:
        own = url.origin() == self.start.origin()
        return await fetch(self.downloader, str(url), {**self.headers, **(self.secret_headers if own else {})}, state)

    def _items(self, answer: Any) -> list[Any]:
        found = _all(self.items, answer)
        if len(found) == 1 and isinstance(found[0], list):
            return found[0]
        parent = self.items.removesuffix("[*]")
        if not found and parent != self.items and not _all(parent, answer):
            message = f"{self.start.host}: the answer has nothing at {parent}"
            raise SourceFailed("no_items", message, permanent=False)
        return found

    def _following(self, answer: Any, here: URL, read: int, count: int) -> URL | None:
        paging = self.paging
        if paging is None or not count:
            return None
        if isinstance(paging, ByNumber):
            short = paging.size is not None and count < paging.size
            return None if short else self._first().update_query({paging.param: str(paging.start + read)})
        found = next((value for value in _all(paging.path, answer) if value not in (None, "", False)), None)
        if not isinstance(found, str | int):
            return None
        if isinstance(paging, ByCursor):
            return self.start.update_query({paging.param: str(found)})
        address = web_address(str(found), str(here))
        if address is None:
            raise SourceFailed("bad_next", f"{self.start.host}: the next page has no http address", permanent=False)
        return URL(address)


def _decoded(body: bytes, url: URL) -> Any:
    try:
        return json.loads(body, parse_constant=_refused)
    except (ValueError, RecursionError):
        message = f"{url.host}: the answer is not JSON"
    raise SourceFailed("not_json", message, permanent=False)


def _refused(name: str) -> Never:
    raise ValueError(name)


def _all(path: str, answer: Any) -> list[Any]:
    asked = expression(path)
    try:
        return asked.all(answer) if isinstance(asked, Path) else []
    except MappingFailed as e:
        message = str(e)
    raise SourceFailed("bad_path", message, permanent=True)
