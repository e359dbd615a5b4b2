"""A feed is read again and again: every new item comes once, in order, whatever format it is in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import web
from sources_rig import Site, Sources, item_texts, numbered, rss

ATOM = """<?xml version="1.0"?><feed xmlns="http://www.w3.org/2005/Atom"><title>F</title>
<entry><id>urn:2</id><title>Two</title><updated>2026-11-02T10:00:00Z</updated><content type="html">&lt;i&gt;second&lt;/i&gt;</content>
 <link rel="alternate" href="https://example.org/2"/><link rel="enclosure" type="image/png" href="/2.png"/></entry>
<entry><id>urn:1</id><title>One</title><updated>2026-11-01T10:00:00Z</updated><summary>first</summary>
 <link href="https://example.org/1"/></entry></feed>"""
RDF = """<?xml version="1.0"?><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/">
<channel rdf:about="https://example.org/"><title>F</title></channel>
<item rdf:about="https://example.org/2"><title>Two</title><link>https://example.org/2</link></item>
<item rdf:about="https://example.org/1"><title>One</title><link>https://example.org/1</link></item></rdf:RDF>"""
RSS = rss(
    {"guid": "2", "title": "Two", "link": "https://example.org/2", "pubDate": "Mon, 02 Nov 2026 10:00:00 GMT"},
    {"guid": "1", "title": "One", "link": "https://example.org/1", "pubDate": "Sun, 01 Nov 2026 10:00:00 GMT"},
)
JSON_FEED = json.dumps(
    {
        "version": "https://jsonfeed.org/version/1.1",
        "title": "F",
        "items": [
            {"id": 2, "title": "Two", "url": "https://example.org/2", "content_text": "a < b"},
            {"id": 1, "title": "One", "url": "https://example.org/1"},
        ],
    }
)


@pytest.mark.parametrize("body", [RSS, RDF, ATOM, JSON_FEED], ids=["rss", "rdf", "atom", "json"])
async def test_every_format_gives_its_items_oldest_first(sources: Sources, body: str) -> None:
    await sources.feed(body, content="title", link="text")
    stats = await sources.pull()
    assert [p["text"] for p in await sources.payloads()] == ["<b>One</b>", "<b>Two</b>"]
    assert [p["links"] for p in await sources.payloads()] == [["https://example.org/1"], ["https://example.org/2"]]
    assert (stats["read"], stats["taken"], stats["enqueued"], stats["outcome"]) == (2, 2, 2, "ok")


async def test_a_second_run_takes_only_what_is_new(sources: Sources) -> None:
    await sources.feed(numbered(1, 2))
    await sources.pull()
    await sources.feed(numbered(1, 2, 3))
    stats = await sources.pull()
    assert await sources.texts() == item_texts(1, 2, 3)
    assert (stats["read"], stats["new"], stats["taken"]) == (3, 1, 1)


async def test_a_burst_between_two_polls_comes_whole_and_in_order(sources: Sources) -> None:
    await sources.feed(numbered(1), backlog=1)
    await sources.pull()
    await sources.feed(numbered(*range(1, 1200)), backlog=1)
    await sources.pull()
    assert await sources.texts() == item_texts(*range(1, 1200))


async def test_items_are_ordered_by_date_only_when_every_date_can_be_believed(sources: Sources) -> None:
    dated = {1: "Tue, 03 Nov 2026 10:00:00 GMT", 2: "Sun, 01 Nov 2026 10:00:00 GMT"}
    await sources.feed(rss(*({"guid": f"n{n}", "title": f"Item {n}", "pubDate": date} for n, date in dated.items())))
    await sources.pull()
    assert await sources.texts() == item_texts(2, 1)
    await sources.feed(
        rss(
            {"guid": "n5", "title": "Item 5", "pubDate": "Sun, 01 Nov 2026 10:00:00 GMT"},
            {"guid": "n4", "title": "Item 4", "pubDate": "Fri, 01 Jan 2044 10:00:00 GMT"},
            {"guid": "n3", "title": "Item 3", "pubDate": "soon"},
        )
    )
    await sources.pull()
    assert await sources.texts() == item_texts(2, 1, 3, 4, 5)


async def test_an_unchanged_feed_is_not_even_sent(sources: Sources, site: Site) -> None:
    async def polite(request: web.Request) -> web.Response:
        if request.headers.get("If-None-Match") == '"v1"':
            return web.Response(status=304)
        return web.Response(
            text=numbered(1), headers={"ETag": '"v1"', "Last-Modified": "Sun, 01 Nov 2026 10:00:00 GMT"}
        )

    site.serve("/feed", polite)
    await sources.feed()
    await sources.pull()
    stats = await sources.pull()
    assert stats["outcome"] == "unchanged" and "taken" not in stats
    assert site.asked[1].headers["If-Modified-Since"] == "Sun, 01 Nov 2026 10:00:00 GMT"
    cursor = await sources.cursor()
    assert (cursor["etag"], cursor["last_seen_id"]) == ('"v1"', "n1")
    assert await sources.texts() == item_texts(1)


async def test_the_same_bytes_without_an_etag_are_unchanged_too(sources: Sources) -> None:
    await sources.feed(numbered(1))
    await sources.pull()
    assert (await sources.pull())["outcome"] == "unchanged"


async def test_another_configuration_reads_the_whole_feed_again_and_posts_nothing_twice(
    sources: Sources, site: Site
) -> None:
    site.put("/feed", numbered(1), ETag='"v1"')
    await sources.feed()
    await sources.pull()
    await sources.feed(content="full")
    stats = await sources.pull()
    assert "If-None-Match" not in site.asked[-1].headers
    assert (stats["read"], stats["new"]) == (1, 0)


async def test_of_a_first_run_only_the_newest_is_posted_and_the_rest_is_known(sources: Sources) -> None:
    await sources.feed(numbered(*range(1, 1301)), backlog=2)
    stats = await sources.pull()
    assert await sources.texts() == item_texts(1299, 1300)
    assert (stats["read"], stats["taken"], stats["skipped"]) == (1300, 2, 1298)
    assert stats["why_skipped"] == {"it was there before the first run": 1298}
    await sources.feed(numbered(*range(1, 1302)), backlog=2)
    await sources.pull()
    assert await sources.texts() == item_texts(1299, 1300, 1301)


async def test_a_feed_that_was_empty_at_first_has_no_old_items(sources: Sources) -> None:
    await sources.feed(rss(), backlog=0)
    await sources.pull()
    await sources.feed(numbered(1, 2), backlog=0)
    await sources.pull()
    assert await sources.texts() == item_texts(1, 2)


async def test_words_choose_the_items_and_the_choice_is_kept(sources: Sources) -> None:
    titles = ["A new bicycle", "Advertising: bicycles", "Cars", "Ёлки и bicycle"]
    feed = rss(*({"guid": f"g{n}", "title": title} for n, title in enumerate(titles)))
    await sources.feed(feed, include=["bicycle", "CARS"], exclude=["advert*", "елки"])
    stats = await sources.pull()
    assert await sources.texts() == ["<b>Cars</b>", "<b>A new bicycle</b>"]
    assert stats["why_skipped"] == {"it has a word of exclude": 1, "it has none of the words of include": 1}
    await sources.feed(feed + " ")
    assert (await sources.pull())["new"] == 0


async def test_the_newest_of_a_first_run_is_the_newest_that_is_wanted(sources: Sources) -> None:
    feed = rss({"guid": "2", "title": "Advertising"}, {"guid": "1", "title": "News"}, {"guid": "0", "title": "Old"})
    await sources.feed(feed, backlog=1, exclude=["advertising"])
    await sources.pull()
    assert await sources.texts() == ["<b>News</b>"]


FULL = rss(
    {
        "guid": "1",
        "title": "Tom &amp; Jerry",
        "link": "https://example.org/1?a=1&amp;b=2",
        "description": "short &lt;b&gt;words&lt;/b&gt;",
        "category": "Mice",
        "xml": "<content:encoded><![CDATA[<p>Long <a href='/x'>text</a></p><script>no</script><img src='/in.jpg'>]]></content:encoded>"
        '<enclosure url="https://example.org/a.mp3" type="audio/mpeg" length="1"/>'
        '<media:content url="https://example.org/v.mp4" medium="video"/>',
    }
)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"content": "title"}, {"text": "<b>Tom &amp; Jerry</b>"}),
        ({}, {"text": "<b>Tom &amp; Jerry</b>\n\nshort <b>words</b>"}),
        ({"content": "full"}, {"text": '<b>Tom &amp; Jerry</b>\n\nLong <a href="SITE/x">text</a>'}),
        ({"text": "{title} — {feed}: {link}"}, {"text": "Tom &amp; Jerry — Feed: https://example.org/1?a=1&amp;b=2"}),
        ({"link": "text"}, {"links": ["https://example.org/1?a=1&b=2"]}),
        (
            {"link": "button", "button_text": "Go"},
            {"buttons": [[{"text": "Go", "url": "https://example.org/1?a=1&b=2"}]]},
        ),
        ({"media": "first"}, {"media": [{"type": "audio", "url": "https://example.org/a.mp3"}]}),
        ({"tags": ["toon"], "categories_as_tags": True}, {"tags": ["mice", "toon"]}),
    ],
)
async def test_the_options_say_what_a_post_is_made_of(
    sources: Sources, config: dict[str, Any], expected: dict[str, Any]
) -> None:
    await sources.feed(FULL, **config)
    await sources.pull()
    (payload,) = await sources.payloads()
    shown = json.loads(json.dumps(expected).replace("SITE", sources.site.url))
    assert {name: payload.get(name) for name in expected} == shown


async def test_all_media_of_an_item_are_taken_once_each(sources: Sources) -> None:
    await sources.feed(FULL, media="all")
    await sources.pull()
    (payload,) = await sources.payloads()
    kinds = [(media["type"], media["url"].rpartition("/")[2]) for media in payload["media"]]
    assert kinds == [("audio", "a.mp3"), ("video", "v.mp4"), ("image", "in.jpg")]


async def test_a_secret_goes_into_a_header_and_to_no_other_host(sources: Sources, site: Site) -> None:
    sources.secrets["key"] = "s3cret\n"
    site.put("/feed", "", status=302, Location=site.url.replace("127.0.0.1", "localhost") + "/elsewhere")
    site.put("/elsewhere", numbered(1))
    await sources.feed(auth={"secret_ref": "key", "prefix": "Bearer "}, headers={"X-Reader": "v"})
    await sources.pull()
    assert site.asked[0].headers["Authorization"] == "Bearer s3cret"
    assert site.asked[0].headers["X-Reader"] == "v"
    assert "Authorization" not in site.asked[1].headers
    await sources.feed(auth={"secret_ref": "gone"})
    assert (await sources.fails()).code == "no_secret"


async def test_a_feed_that_moves_to_another_address_posts_nothing_again(sources: Sources) -> None:
    await sources.feed(rss({"guid": "17", "title": "One", "link": "/1"}), link="text")
    await sources.pull()
    await sources.feed(rss({"guid": "17", "title": "One", "link": "/1"}), path="/moved/feed", link="text")
    assert (await sources.pull())["new"] == 0
    assert (await sources.payloads())[0]["links"] == [f"{sources.site.url}/1"]


@pytest.mark.parametrize("base", ["", 'xml:base="https://example.org/blog/"'])
async def test_relative_addresses_are_those_of_the_feed(sources: Sources, base: str) -> None:
    feed = f"""<feed xmlns="http://www.w3.org/2005/Atom" {base}><entry><id>1</id><title>A</title>
        <link href="post"/><content type="html">&lt;a href="more">m&lt;/a></content></entry></feed>"""
    await sources.feed(feed, link="text", content="full")
    await sources.pull()
    (payload,) = await sources.payloads()
    where = "https://example.org/blog" if base else sources.site.url
    assert payload["links"] == [f"{where}/post"]
    assert f'<a href="{where}/more">' in payload["text"]
