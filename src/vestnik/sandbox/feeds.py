"""Feeds to pull: the same items as RSS ``/feeds/<name>.xml``, Atom ``.atom`` and JSON Feed ``.json``.

The newest item comes first. An item has any of ``id``, ``title``, ``link``, ``summary``, ``content`` (HTML),
``published``, ``author``, ``categories`` and ``media`` (``url``, ``type``, ``size``). A date in ISO 8601 becomes
what the format wants; every other text stays as it is, wrong as it may be. ETag and Last-Modified are answered
with 304.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import format_datetime, formatdate, parsedate_to_datetime
from typing import Any
from xml.etree import ElementTree as Xml

from aiohttp import web

from vestnik.sandbox.faults import Call
from vestnik.sandbox.files import SiteVoice
from vestnik.sandbox.site import Feed
from vestnik.sandbox.wire import STATE, play

FEED_NAME = r"[\w-]+"
ITEM_KEYS = ("id", "title", "link", "summary", "content", "published", "author", "categories", "media")
_ATOM = "http://www.w3.org/2005/Atom"
_CONTENT = "http://purl.org/rss/1.0/modules/content/"
_MEDIA = "http://search.yahoo.com/mrss/"
_AUTHOR = "http://purl.org/dc/elements/1.1/"
for _prefix, _space in (("content", _CONTENT), ("media", _MEDIA), ("dc", _AUTHOR)):
    Xml.register_namespace(_prefix, _space)
Item = dict[str, Any]


def routes() -> list[web.RouteDef]:
    return [web.get(rf"/feeds/{{name:{FEED_NAME}}}.{{form:xml|atom|json}}", _feed)]


async def _feed(request: web.Request) -> web.StreamResponse:
    site = request.app[STATE].site
    site.counters["feeds"] += 1
    feed = site.feeds.get(request.match_info["name"])
    call = Call(request.path.removeprefix("/"))
    return await play(request, site, None, SiteVoice(), call, lambda: _answer(request, feed))


def _answer(request: web.Request, feed: Feed | None) -> web.Response:
    if feed is None:
        return web.Response(status=404, text="404: no such feed")
    form = request.match_info["form"]
    etag = f'"{feed.name}-{form}-{feed.version}"'
    headers = {"ETag": etag, "Last-Modified": formatdate(feed.at, usegmt=True)}
    if _is_known(request, etag, feed.at):
        request.app[STATE].site.counters["not_modified"] += 1
        return web.Response(status=304, headers=headers)
    content_type, render = _FORMS[form]
    if form not in feed.rendered:
        feed.rendered[form] = render(feed, f"{request.scheme}://{request.host}")
    return web.Response(body=feed.rendered[form], headers={**headers, "Content-Type": content_type})


def _is_known(request: web.Request, etag: str, at: float) -> bool:
    """The tag decides where there is one."""
    if "If-None-Match" in request.headers:
        tags = [tag.strip().removeprefix("W/") for tag in request.headers["If-None-Match"].split(",")]
        return etag in tags or "*" in tags
    try:
        since = parsedate_to_datetime(request.headers.get("If-Modified-Since", ""))
    except ValueError:
        return False
    return int(at) <= since.timestamp()


def _rss(feed: Feed, base: str) -> bytes:
    root = Xml.Element("rss", version="2.0")
    channel = Xml.SubElement(root, "channel")
    for tag, text in (("title", feed.name), ("link", base), ("description", feed.name)):
        Xml.SubElement(channel, tag).text = text
    for item in reversed(feed.items):
        node = Xml.SubElement(channel, "item")
        if "id" in item:
            Xml.SubElement(node, "guid", isPermaLink="false").text = str(item["id"])
        published = _date(item.get("published"), lambda moment: format_datetime(moment, usegmt=True))
        _texts(node, item, title="title", link="link", summary="description")
        _texts(node, {**item, "published": published}, published="pubDate", author=f"{{{_AUTHOR}}}creator")
        _texts(node, item, content=f"{{{_CONTENT}}}encoded")
        for category in item.get("categories", []):
            Xml.SubElement(node, "category").text = str(category)
        for media in item.get("media", []):
            shown = {"url": str(media["url"]), "type": str(media.get("type", "")), "length": str(media.get("size", 0))}
            Xml.SubElement(node, "enclosure", shown)
    return bytes(Xml.tostring(root, "utf-8", xml_declaration=True))


def _atom(feed: Feed, base: str) -> bytes:
    root = Xml.Element("feed", xmlns=_ATOM)
    Xml.SubElement(root, "id").text = f"{base}/feeds/{feed.name}.atom"
    Xml.SubElement(root, "title").text = feed.name
    Xml.SubElement(root, "updated").text = _iso(datetime.fromtimestamp(feed.at, UTC))
    for item in reversed(feed.items):
        node = Xml.SubElement(root, "entry")
        published = _date(item.get("published"), _iso)
        _texts(node, {**item, "published": published}, id="id", title="title", summary="summary", published="updated")
        if item.get("link"):
            Xml.SubElement(node, "link", rel="alternate", href=str(item["link"]))
        if item.get("author"):
            Xml.SubElement(Xml.SubElement(node, "author"), "name").text = str(item["author"])
        if item.get("content"):
            Xml.SubElement(node, "content", type="html").text = str(item["content"])
        for category in item.get("categories", []):
            Xml.SubElement(node, "category", term=str(category))
        for media in item.get("media", []):
            shown = {"rel": "enclosure", "href": str(media["url"]), "type": str(media.get("type", ""))}
            Xml.SubElement(node, "link", {**shown, "length": str(media.get("size", 0))})
    return bytes(Xml.tostring(root, "utf-8", xml_declaration=True))


def _json(feed: Feed, base: str) -> bytes:
    names = {"id": "id", "title": "title", "link": "url", "summary": "summary", "content": "content_html"}
    items: list[Item] = []
    for item in reversed(feed.items):
        shown: Item = {name: item[key] for key, name in names.items() if key in item}
        if item.get("published"):
            shown["date_published"] = _date(item["published"], _iso)
        if item.get("author"):
            shown["authors"] = [{"name": item["author"]}]
        if item.get("categories"):
            shown["tags"] = item["categories"]
        if item.get("media"):
            sizes = [{"size_in_bytes": media["size"]} if media.get("size") else {} for media in item["media"]]
            given = [{"url": media["url"], "mime_type": media.get("type", "")} for media in item["media"]]
            shown["attachments"] = [{**media, **size} for media, size in zip(given, sizes, strict=True)]
        items.append(shown)
    version = "https://jsonfeed.org/version/1.1"
    return json.dumps({"version": version, "title": feed.name, "items": items}, ensure_ascii=False).encode()


_FORMS: dict[str, tuple[str, Callable[[Feed, str], bytes]]] = {
    "xml": ("application/rss+xml; charset=utf-8", _rss),
    "atom": ("application/atom+xml; charset=utf-8", _atom),
    "json": ("application/feed+json", _json),
}


def _texts(node: Xml.Element, item: Item, **tags: str) -> None:
    for key, tag in tags.items():
        if item.get(key) is not None:
            Xml.SubElement(node, tag).text = str(item[key])


def _date(value: object, show: Callable[[datetime], str]) -> str | None:
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        return str(value)
    return show(moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC))


def _iso(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
