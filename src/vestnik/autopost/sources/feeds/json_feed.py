"""JSON Feed 1 and 1.1."""

from __future__ import annotations

from typing import Any

from vestnik.autopost.sources.feeds.entries import Attachment, Body, Entry, Feed
from vestnik.autopost.sources.moments import moment_of


def parse_json_feed(document: dict[str, Any], base: str) -> Feed:
    items = document.get("items")
    entries = [_entry(item, base) for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    strange = len(items) - len(entries) if isinstance(items, list) else 0
    return Feed(_text(document, "title"), entries, [f"{strange} of the items are not objects"] if strange else [])


def _entry(item: dict[str, Any], base: str) -> Entry:
    return Entry(
        id=_text(item, "id"),
        link=_text(item, "url") or _text(item, "external_url"),
        title=" ".join(_text(item, "title").split()),
        summary=_body(item, "summary", base, html=False),
        content=_body(item, "content_html", base, html=True) or _body(item, "content_text", base, html=False),
        author=", ".join(name for name in (_text(author, "name") for author in _authors(item)) if name),
        categories=tuple(tag for tag in _list(item, "tags") if isinstance(tag, str)),
        published=moment_of(item.get("date_published")) or moment_of(item.get("date_modified")),
        attachments=tuple(_attachments(item)),
        base=base,
    )


def _attachments(item: dict[str, Any]) -> list[Attachment]:
    found = [
        Attachment(_text(each, "url"), _text(each, "mime_type"))
        for each in _list(item, "attachments")
        if isinstance(each, dict) and _text(each, "url")
    ]
    pictures = [_text(item, name) for name in ("image", "banner_image")]
    return found + [Attachment(url, medium="image", preview=True) for url in pictures if url]


def _authors(item: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in (*_list(item, "authors"), item.get("author")) if isinstance(each, dict)]


def _body(item: dict[str, Any], name: str, base: str, *, html: bool) -> Body | None:
    text = _text(item, name)
    return Body(text, html, base) if text else None


def _list(item: dict[str, Any], name: str) -> list[Any]:
    found = item.get(name)
    return found if isinstance(found, list) else []


def _text(item: dict[str, Any], name: str) -> str:
    """The ids of many a feed are numbers."""
    found = item.get(name)
    if isinstance(found, int) and not isinstance(found, bool):
        return str(found)
    return found.strip() if isinstance(found, str) else ""
