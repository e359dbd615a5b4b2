"""Bytes into a feed: RSS, RDF and Atom by feedparser, JSON Feed by hand. Nothing here asks the network."""

from __future__ import annotations

import calendar
import io
import json
import re
from datetime import UTC, datetime
from typing import Any, Final
from xml.sax import SAXException

import feedparser  # type: ignore[import-untyped]
import feedparser.api  # type: ignore[import-untyped]

from vestnik.autopost.sources.contract import SourceFailed
from vestnik.autopost.sources.feeds import xml_parser
from vestnik.autopost.sources.feeds.entries import Attachment, Body, Entry, Feed
from vestnik.autopost.sources.feeds.json_feed import parse_json_feed
from vestnik.autopost.sources.tidy import plain

_DECLARED: Final = re.compile(rb"\s*<\?xml[^>]*\sencoding\s*=")
_PAGE: Final = re.compile(rb"\s*(<!doctype\s+html|<html[\s>])", re.IGNORECASE)
_BEGUN: Final = re.compile(rb"<(?:\w+:)?(item|entry)[\s>]")
_MARKS: Final = b"\xef\xbb\xbf"
feedparser.api.PREFERRED_XML_PARSERS.insert(0, xml_parser.__name__)


def parse_feed(body: bytes, url: str, content_type: str = "") -> Feed:
    """What can be read of it, with notes on what cannot; SourceFailed when nothing can."""
    start = body.removeprefix(_MARKS).lstrip()[:1]
    if start == b"{":
        return _json(body, url)
    parsed = _parsed(body, content_type)
    if not parsed.version and not parsed.entries:
        raise _not_a_feed(body)
    entries, notes, cut_off = [_entry(each, url) for each in parsed.entries], [], False
    if parsed.bozo and isinstance(parsed.bozo_exception, SAXException):
        notes.append(f"the XML is broken ({_place(parsed.bozo_exception)}); what can be read of it is")
        # The end of a text that was cut off would never be taken later: its key would be known by then.
        if entries and _cut_off(body):
            entries.pop()
            cut_off = True
            notes.append("the last item is cut off and waits until it is whole")
    return Feed(_words(parsed.feed, "title"), entries, notes, cut_off)


def _parsed(body: bytes, content_type: str) -> Any:
    # It is not told the address: it would make names out of guids that change when the feed moves.
    try:
        return feedparser.parse(
            io.BytesIO(body),
            response_headers={"content-type": _content_type(body, content_type)},
            sanitize_html=False,
            resolve_relative_uris=False,
        )
    except (ValueError, OverflowError) as e:  # of a character that there is not, like &#99999999;
        failure = SourceFailed("not_a_feed", f"the answer is too broken to be read: {e}"[:300], permanent=False)
    raise failure


def _json(body: bytes, url: str) -> Feed:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise SourceFailed("not_a_feed", "the answer is broken JSON", permanent=False) from None
    if not isinstance(document.get("items"), list):
        raise SourceFailed("not_a_feed", "the answer is JSON, but not a JSON Feed: it has no items", permanent=True)
    return parse_json_feed(document, url)


def _entry(entry: Any, url: str) -> Entry:
    bodies = [_body(each, url) for each in _get(entry, "content", [])]
    summary = _get(entry, "summary_detail", None)
    return Entry(
        id=_text(entry, "id"),
        link=_text(entry, "link"),
        title=_words(entry, "title"),
        summary=_body(summary, url) if summary and summary.get("value", "").strip() else None,
        content=max((body for body in bodies if body.text.strip()), key=lambda body: len(body.text), default=None),
        author=_text(entry, "author"),
        categories=tuple(tag.get("term") or "" for tag in _get(entry, "tags", [])),
        published=_date(entry),
        attachments=tuple(_attachments(entry)),
        base=url,
    )


def _body(detail: Any, url: str) -> Body:
    html = detail.get("type") in ("text/html", "application/xhtml+xml")
    return Body(detail.get("value") or "", html, detail.get("base") or url)


def _attachments(entry: Any) -> list[Attachment]:
    enclosures = [link for link in _get(entry, "links", []) if link.get("rel") == "enclosure"]
    found = [Attachment(link.get("href") or "", link.get("type") or "") for link in enclosures]
    for media in _get(entry, "media_content", []):
        found.append(Attachment(media.get("url") or "", media.get("type") or "", media.get("medium") or ""))
    for thumbnail in _get(entry, "media_thumbnail", []):
        found.append(Attachment(thumbnail.get("url") or "", medium="image", preview=True))
    return [attachment for attachment in found if attachment.url.strip()]


def _date(entry: Any) -> datetime | None:
    for name in ("published_parsed", "updated_parsed", "created_parsed"):
        found = _get(entry, name, None)
        try:
            if found:
                return datetime.fromtimestamp(calendar.timegm(found), UTC)
        except (ValueError, OverflowError):
            continue
    return None


def _get(entry: Any, name: str, otherwise: Any) -> Any:
    """Past feedparser's own lookup, which gives one date for another and warns of it."""
    return dict.get(entry, name) or otherwise


def _text(entry: Any, name: str) -> str:
    return str(_get(entry, name, "")).strip()


def _words(entry: Any, name: str) -> str:
    detail = _get(entry, f"{name}_detail", {})
    text = _text(entry, name)
    return " ".join(text.split()) if detail.get("type") == "text/plain" else plain(text)


def _content_type(body: bytes, content_type: str) -> str:
    """Whoever wrote the document knows its encoding better than the server that hands it out."""
    if _DECLARED.match(body.removeprefix(_MARKS)):
        return "application/xml"
    charset = re.search(r"charset\s*=\s*[\"']?([\w.:-]+)", content_type, re.IGNORECASE)
    return f"application/xml; charset={charset[1]}" if charset else "application/xml"


def _cut_off(body: bytes) -> bool:
    begun = list(_BEGUN.finditer(body))
    return bool(begun) and re.search(rb"</(?:\w+:)?" + begun[-1][1] + rb"\s*>", body[begun[-1].end() :]) is None


def _not_a_feed(body: bytes) -> SourceFailed:
    if not body.strip():
        return SourceFailed("empty", "the answer is empty", permanent=False)
    if _PAGE.match(body):
        return SourceFailed("not_a_feed", "the answer is a web page, not a feed", permanent=True)
    return SourceFailed("not_a_feed", "the answer is not RSS, RDF, Atom or JSON Feed", permanent=False)


def _place(error: Exception) -> str:
    return str(error).removeprefix("<unknown>:")
