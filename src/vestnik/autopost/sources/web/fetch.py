"""One document over HTTP, and not again while it is as it was."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from yarl import URL

from vestnik.autopost.sources.contract import SourceFailed
from vestnik.download import Downloader, DownloadRefused

MOST_BYTES: Final = 20_000_000
PATIENCE: Final = 60.0
STATE: Final = ("etag", "last_modified", "body")  # what of a cursor is about the document alone


@dataclass(frozen=True, slots=True)
class Document:
    url: str
    body: bytes
    content_type: str
    state: dict[str, str]  # for the cursor


async def fetch(
    downloader: Downloader, url: str, headers: Mapping[str, str], state: Mapping[str, Any] | None = None
) -> Document | None:
    """None: it is the very document that ``state`` was made from."""
    known = state or {}
    asked = {**headers, **_conditions(known)}
    # Raised outside the except block: what is chained to it may carry the whole address into a log.
    try:
        async with downloader.get(url, max_bytes=MOST_BYTES, headers=asked, timeout=PATIENCE) as answer:
            if answer.status == 304 and known:
                return None
            body = await answer.read()
            found, content_type, ended = answer.headers, answer.headers.get("Content-Type", ""), answer.url
    except DownloadRefused as e:
        failure = SourceFailed(e.code, f"{URL(url).host}: {e}", permanent=e.permanent)
    else:
        state = {"etag": found.get("ETag", ""), "last_modified": found.get("Last-Modified", "")}
        digest = await asyncio.to_thread(lambda: hashlib.sha256(body).hexdigest()[:32])
        if digest == known.get("body"):
            return None
        # What no header takes cannot be sent back.
        kept = {k: v for k, v in state.items() if v and v.isascii() and v.isprintable()}
        return Document(ended, body, content_type, kept | {"body": digest})
    raise failure


def _conditions(state: Mapping[str, Any]) -> dict[str, str]:
    names = {"etag": "If-None-Match", "last_modified": "If-Modified-Since"}
    return {header: state[name] for name, header in names.items() if state.get(name)}
