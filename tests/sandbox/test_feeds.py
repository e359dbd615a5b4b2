"""Feeds: the same items in three formats, newest first, with what a reader asks for before it reads."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree as Xml

import pytest

ATOM = "{http://www.w3.org/2005/Atom}"
FULL: dict[str, Any] = {
    "id": "item-1",
    "title": "Ти & тл",
    "link": "https://e.org/1",
    "summary": "short",
    "content": "<p>long</p>",
    "published": "2026-11-19T10:00:00+03:00",
    "author": "A",
    "categories": ["city", "sport"],
    "media": [{"url": "https://e.org/1.png", "type": "image/png", "size": 7}],
}


async def add(client: Any, *items: Any, feed: str = "news") -> Any:
    return await client.ask("POST", f"/admin/feeds/{feed}/items", list(items))


async def read(client: Any, form: str, **headers: str) -> tuple[int, str, Any]:
    async with client.session.get(f"{client.sandbox.url}/feeds/news.{form}", headers=headers) as answer:
        return answer.status, await answer.text(), answer.headers


async def test_rss(client: Any) -> None:
    assert (await add(client, FULL)).body == {"items": 1, "url": f"{client.sandbox.url}/feeds/news.xml"}
    _, text, headers = await read(client, "xml")
    assert headers["Content-Type"] == "application/rss+xml; charset=utf-8"
    (item,) = Xml.fromstring(text).iter("item")
    assert (item.findtext("guid"), item.findtext("title"), item.findtext("link")) == ("item-1", "Ти & тл", FULL["link"])
    assert item.findtext("pubDate") == "Thu, 19 Nov 2026 07:00:00 GMT"
    assert [node.text for node in item.iter("category")] == ["city", "sport"]
    assert [node.attrib for node in item.iter("enclosure")] == [
        {"url": "https://e.org/1.png", "type": "image/png", "length": "7"}
    ]
    assert item.findtext("{http://purl.org/rss/1.0/modules/content/}encoded") == "<p>long</p>"
    assert item.findtext("{http://purl.org/dc/elements/1.1/}creator") == "A"


async def test_atom(client: Any) -> None:
    await add(client, FULL)
    _, text, headers = await read(client, "atom")
    assert headers["Content-Type"] == "application/atom+xml; charset=utf-8"
    (entry,) = Xml.fromstring(text).iter(f"{ATOM}entry")
    assert [entry.findtext(ATOM + tag) for tag in ("id", "title", "summary", "content")] == [
        *("item-1", "Ти & тл", "short", "<p>long</p>")
    ]
    assert entry.findtext(f"{ATOM}updated") == "2026-11-19T07:00:00Z"
    assert [(node.get("rel"), node.get("href")) for node in entry.iter(f"{ATOM}link")] == [
        ("alternate", "https://e.org/1"),
        ("enclosure", "https://e.org/1.png"),
    ]


async def test_json_feed(client: Any) -> None:
    await add(client, FULL)
    _, text, headers = await read(client, "json")
    assert headers["Content-Type"] == "application/feed+json"
    feed = json.loads(text)
    assert (feed["version"], feed["title"]) == ("https://jsonfeed.org/version/1.1", "news")
    assert feed["items"] == [
        {
            "id": "item-1",
            "title": "Ти & тл",
            "url": "https://e.org/1",
            "summary": "short",
            "content_html": "<p>long</p>",
            "date_published": "2026-11-19T07:00:00Z",
            "authors": [{"name": "A"}],
            "tags": ["city", "sport"],
            "attachments": [{"url": "https://e.org/1.png", "mime_type": "image/png", "size_in_bytes": 7}],
        }
    ]


async def test_the_newest_comes_first_and_the_admin_api_tells_the_oldest_first(client: Any) -> None:
    await add(client, {"id": "1"}, {"id": "2"})
    assert len(json.loads((await read(client, "json"))[1])["items"]) == 2
    await client.ask("POST", "/admin/feeds/news/items", {"id": "3"})
    items = json.loads((await read(client, "json"))[1])["items"]
    assert [item["id"] for item in items] == ["3", "2", "1"]
    assert [item["id"] for item in await client.admin("GET", "feeds/news/items")] == ["1", "2", "3"]
    assert (await client.admin("GET", "site"))["feeds"] == {"news": 3}


async def test_a_feed_without_items_and_a_feed_that_has_gone(client: Any) -> None:
    assert (await read(client, "xml"))[0] == 404
    await add(client)
    assert "<item>" not in (await read(client, "xml"))[1]
    assert await client.admin("DELETE", "feeds/news/items") == []
    assert (await read(client, "xml"))[0] == 404
    assert (await client.ask("GET", "/admin/feeds/news/items")).status == 404


@pytest.mark.parametrize("form", ["xml", "atom", "json"])
async def test_nothing_is_sent_again_that_is_known(client: Any, clock: Any, form: str) -> None:
    await add(client, {"id": "1"})
    _, _, told = await read(client, form)
    tag, modified = told["ETag"], told["Last-Modified"]
    for known in ({"If-None-Match": tag}, {"If-None-Match": f'"x", W/{tag}'}, {"If-Modified-Since": modified}):
        status, text, headers = await read(client, form, **known)
        assert (status, text, headers["ETag"]) == (304, "", tag)
    stale = {"If-None-Match": '"x"', "If-Modified-Since": modified}  # the tag decides
    assert (await read(client, form, **stale))[0] == 200
    clock.pass_by(2)
    await add(client, {"id": "2"})
    for known in ({"If-None-Match": tag}, {"If-Modified-Since": modified}, {"If-Modified-Since": "yesterday"}):
        assert (await read(client, form, **known))[0] == 200
    counters = (await client.admin("GET", "site"))["counters"]
    assert (counters["feeds"], counters["not_modified"]) == (8, 3)


async def test_wrong_dates_and_twice_the_same_id_are_served_as_they_are(client: Any) -> None:
    await add(client, {"id": "1", "published": "soon"}, {"id": "1", "published": "2026-02-31"}, {"title": "no id"})
    root = Xml.fromstring((await read(client, "xml"))[1])
    assert [node.text for node in root.iter("pubDate")] == ["2026-02-31", "soon"]
    assert [node.text for node in root.iter("guid")] == ["1", "1"]


async def test_broken_xml_and_a_page_in_its_place(client: Any) -> None:
    await add(client, *[{"id": str(n), "title": "t"} for n in range(9)])
    await client.admin("PUT", "site/faults", [{"kind": "truncated", "times": 1}, {"kind": "garbage", "times": 1}])
    with pytest.raises(Xml.ParseError):
        Xml.fromstring((await read(client, "xml"))[1])
    status, text, headers = await read(client, "xml")
    assert (status, "<h1>" in text, headers["Content-Type"]) == (200, True, "text/html; charset=utf-8")
    assert len(list(Xml.fromstring((await read(client, "xml"))[1]).iter("item"))) == 9


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({}, "an item is an object with any of: id"),
        ("a", "an item is an object"),
        ({"guid": "1"}, "an item is an object"),
        ({"id": "1", "categories": "city"}, "categories and media are lists"),
        ({"id": "1", "media": [{"type": "image/png"}]}, "each of media is an object with a url"),
        ({"id": "1", "title": ["a"]}, "texts without control characters"),
        ({"id": "1", "title": "a\0"}, "texts without control characters"),
        ({"id": "1", "categories": ["a\uffff"]}, "texts without control characters"),
    ],
)
async def test_what_is_no_item(client: Any, item: Any, said: str) -> None:
    answer = await add(client, {"id": "good"}, item)
    assert answer.status == 400
    assert said in answer.body["error"]
    assert (await client.admin("GET", "site"))["feeds"] == {}


async def test_feeds_have_limits(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from vestnik.sandbox import site

    monkeypatch.setattr(site, "MOST_FEEDS", 2)
    monkeypatch.setattr(site, "MOST_ITEMS", 3)
    assert (await add(client, *[{"id": "1"}] * 4)).status == 400
    assert [(await add(client, {"id": "1"}, feed=feed)).status for feed in ("a", "b", "c", "b")] == [200, 200, 400, 200]
