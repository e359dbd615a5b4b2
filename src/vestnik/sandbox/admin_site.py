"""The admin API of the site: what can be fetched from the sandbox. JSON, under /admin, beside ``admin.py``.

============================================  ================================================================
GET    /admin/site                            counters, faults, names of files and feeds
GET PUT DELETE /admin/site/faults             one fault or a list
PUT DELETE /admin/files/{name}                the body is the file, Content-Type its type, true or not; without one,
                                              the type that its name tells
POST   /admin/feeds/{name}/items              one item or a list, ``feeds.py`` says what is in them; a feed without
                                              items is made by an empty list
GET DELETE /admin/feeds/{name}/items          oldest first
============================================  ================================================================
"""

from __future__ import annotations

import mimetypes
import re
from typing import Any

from aiohttp import web

from vestnik.sandbox.admin import Wrong, answer_json, fault_routes, read_json
from vestnik.sandbox.feeds import FEED_NAME, ITEM_KEYS
from vestnik.sandbox.files import FILE_NAME
from vestnik.sandbox.site import LARGEST_FILE, Feed, Site, SiteFile
from vestnik.sandbox.wire import STATE

_FILE = rf"/admin/files/{{name:{FILE_NAME}}}"
_ITEMS = rf"/admin/feeds/{{name:{FEED_NAME}}}/items"
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # what no XML can carry


def routes() -> list[web.RouteDef]:
    return [
        web.get("/admin/site", answer_json(_show)),
        *fault_routes("/admin/site", lambda request: _site(request).faults),
        web.put(_FILE, answer_json(_put_file)),
        web.delete(_FILE, answer_json(_delete_file)),
        web.get(_ITEMS, answer_json(_list_items)),
        web.post(_ITEMS, answer_json(_add_items)),
        web.delete(_ITEMS, answer_json(_delete_items)),
    ]


async def _show(request: web.Request) -> Any:
    site = _site(request)
    return {
        "counters": dict(site.counters),
        "faults": [fault.as_json() for fault in site.faults],
        "files": {file.name: {"size": len(file.data), "type": file.content_type} for file in site.files.values()},
        "feeds": {feed.name: len(feed.items) for feed in site.feeds.values()},
    }


def _site(request: web.Request) -> Site:
    return request.app[STATE].site


async def _put_file(request: web.Request) -> Any:
    data = bytearray()
    async for piece in request.content.iter_chunked(256 * 1024):
        data += piece
        if len(data) > LARGEST_FILE:
            raise Wrong(f"a file has at most {LARGEST_FILE} bytes", 413)
    name, now = request.match_info["name"], request.app[STATE].clock.time()
    told = request.headers.get("Content-Type") or mimetypes.guess_type(name)[0] or "application/octet-stream"
    if not (told.isascii() and told.isprintable()):
        raise Wrong("Content-Type is a text of ASCII")
    file = SiteFile(name, told, bytes(data), now)
    _site(request).put(file)
    return {"url": f"{request.scheme}://{request.host}/files/{name}", "size": len(data), "type": file.content_type}


async def _delete_file(request: web.Request) -> Any:
    if _site(request).files.pop(request.match_info["name"], None) is None:
        raise Wrong("there is no such file", 404)
    return {"name": request.match_info["name"]}


def _feed(request: web.Request) -> Feed:
    feed = _site(request).feeds.get(request.match_info["name"])
    if feed is None:
        raise Wrong(f"there is no feed {request.match_info['name']}; POST {request.path} makes it", 404)
    return feed


async def _list_items(request: web.Request) -> Any:
    return _feed(request).items


async def _add_items(request: web.Request) -> Any:
    body = await read_json(request)
    items = [_item(item) for item in (body if isinstance(body, list) else [body])]
    feed = _site(request).add(request.match_info["name"], items, request.app[STATE].clock.time())
    return {"items": len(feed.items), "url": f"{request.scheme}://{request.host}/feeds/{feed.name}.xml"}


def _item(item: Any) -> dict[str, Any]:
    if not isinstance(item, dict) or not item or set(item) - set(ITEM_KEYS):
        raise Wrong(f"an item is an object with any of: {', '.join(ITEM_KEYS)}")
    lists = [item.get(name, []) for name in ("categories", "media")]
    if not all(isinstance(given, list) for given in lists):
        raise Wrong("categories and media are lists")
    if not all(isinstance(media, dict) and isinstance(media.get("url"), str) for media in lists[1]):
        raise Wrong("each of media is an object with a url")
    texts = [value for name, value in item.items() if name not in ("categories", "media")]
    if not all(isinstance(text, str | int) for text in texts) or _CONTROL.search(_all_text(item)):
        raise Wrong("the fields of an item are texts without control characters")
    return item


def _all_text(item: Any) -> str:
    """Every text in an item, one after the other."""
    if isinstance(item, dict):
        return " ".join(_all_text(value) for value in item.values())
    return " ".join(_all_text(value) for value in item) if isinstance(item, list) else str(item)


async def _delete_items(request: web.Request) -> Any:
    _site(request).feeds.pop(_feed(request).name)
    return []
