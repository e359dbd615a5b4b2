"""What is wrong with a feed is said in words; nothing is lost by it, nothing posted twice, and the next run goes on."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from aiohttp import web
from sources_rig import Site, Sources, item_texts, numbered, rss

BOMB = '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "ha">' + "".join(
    f'<!ENTITY {b} "{f"&{a};" * 50}">' for a, b in zip("abcdef", "bcdefg", strict=True)
)


@pytest.mark.parametrize(
    ("body", "code", "said", "permanent"),
    [
        ("<!DOCTYPE html><html><body>Please log in</body></html>", "not_a_feed", "a web page", True),
        (" ", "empty", "the answer is empty", False),
        ('{"items": [', "not_a_feed", "broken JSON", False),
        ('{"error": "no"}', "not_a_feed", "it has no items", True),
        ("just some words", "not_a_feed", "not RSS, RDF, Atom or JSON Feed", False),
        (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "not_a_feed", "not RSS", False),
        (rss({"title": "&#99999999999;"}).replace("&amp;", "&"), "not_a_feed", "too broken to be read", False),
        (rss({"title": "&#xD800;"}).replace("&amp;", "&"), "not_a_feed", "too broken to be read", False),
    ],
)
async def test_what_is_no_feed_is_told_from_a_feed(
    sources: Sources, body: str | bytes, code: str, said: str, permanent: bool
) -> None:
    await sources.feed(body)
    error = await sources.fails()
    assert (error.code, error.permanent) == (code, permanent) and said in str(error)


@pytest.mark.parametrize(
    ("status", "code", "permanent"), [(404, "http_404", True), (410, "http_410", True), (503, "http_503", False)]
)
async def test_an_error_of_the_server_leaves_the_cursor_where_it_is(
    sources: Sources, status: int, code: str, permanent: bool
) -> None:
    url = await sources.feed(numbered(1))
    await sources.pull()
    before = await sources.cursor()
    sources.site.put("/feed", "broken", status=status)
    error = await sources.fails()
    assert (error.code, error.permanent) == (code, permanent)
    assert str(error).startswith("127.0.0.1: ") and url not in str(error)
    await sources.fails()
    source = await sources.source()
    assert (await sources.cursor(), source["failures"]) == (before, 2)
    sources.site.put("/feed", numbered(1, 2))
    await sources.pull()
    source = await sources.source()
    assert (source["failures"], source["last_error"]) == (0, None)
    assert await sources.texts() == item_texts(1, 2)


async def test_a_redirect_into_a_private_network_is_not_followed(sources: Sources, site: Site) -> None:
    await sources.feed("moved")
    site.put("/feed", "", status=302, Location="http://10.0.0.1/feed")
    error = await sources.fails()
    assert (error.code, error.permanent) == ("private_address", True)


async def test_an_answer_that_is_a_bomb_is_cut_off(sources: Sources, site: Site) -> None:
    site.put("/feed", gzip.compress(b"<rss>" + b" " * 30_000_000), Content_Encoding="gzip")
    await sources.feed()
    assert (await sources.fails()).code == "too_large"


async def test_entities_that_grow_without_end_do_not(sources: Sources) -> None:
    await sources.feed(BOMB + "]><rss><channel><item><guid>1</guid><title>&g;</title></item></channel></rss>")
    stats = await sources.pull()
    assert "limit on input amplification" in stats["reasons"][0]["reason"]
    assert await sources.texts() == ["<b>&amp;g;</b>"]


async def test_of_broken_xml_what_can_be_read_is_taken_and_the_run_says_so(sources: Sources) -> None:
    broken = numbered(1, 2, 3).replace("<title>Item 2</title>", "<title>Item 2 & more<b></title>")
    await sources.feed(broken)
    stats = await sources.pull()
    assert "the XML is broken" in stats["reasons"][0]["reason"]
    texts = await sources.texts()
    assert len(texts) == 3 and texts[0] == "<b>Item 1</b>" and texts[2] == "<b>Item 3</b>"
    await sources.feed(numbered(1, 2, 3, 4))
    await sources.pull()
    assert (await sources.texts())[3:] == item_texts(4)


async def test_an_item_that_is_cut_off_waits_until_it_is_whole(sources: Sources, site: Site) -> None:
    """Also when the server calls the half and the whole by the same name."""
    whole = numbered(1, 2, 3)

    async def answer(request: web.Request) -> web.Response:
        if request.headers.get("If-None-Match"):
            return web.Response(status=304)
        body = whole if len(site.asked) > 1 else whole[: whole.index("Item 1") + 4]
        return web.Response(text=body, headers={"ETag": '"same"'})

    site.serve("/feed", answer)
    await sources.feed()
    stats = await sources.pull()
    assert await sources.texts() == item_texts(2, 3)
    assert any("cut off" in reason["reason"] for reason in stats["reasons"])
    await sources.pull()
    assert await sources.texts() == item_texts(2, 3, 1)
    assert (await sources.pull())["outcome"] == "unchanged"


async def test_an_etag_that_no_header_takes_is_not_kept(sources: Sources, site: Site) -> None:
    async def answer(request: web.Request) -> web.Response:
        response = web.Response(text=numbered(1))
        response.headers["ETag"] = '"\u00ff\u0416"'
        return response

    site.serve("/feed", answer)
    await sources.feed()
    assert (await sources.pull())["taken"] == 1
    assert "etag" not in await sources.cursor()


async def test_of_two_items_with_one_guid_the_first_counts_and_the_run_says_so(sources: Sources) -> None:
    await sources.feed(
        rss({"guid": "x", "title": "B"}, {"guid": "x", "title": "A"}, {"guid": "y", "title": "C"}), content="title"
    )
    stats = await sources.pull()
    assert await sources.texts() == ["<b>C</b>", "<b>B</b>"]
    assert stats["reasons"] == [{"reason": "1 item has the guid of another, only the first counts: x"}]


async def test_items_without_a_guid_are_known_by_their_link_or_by_their_words(sources: Sources) -> None:
    items = [{"title": "A", "link": "https://example.org/a"}, {"title": "B", "description": "b"}, {"description": "c"}]
    await sources.feed(rss(*items))
    await sources.pull()
    await sources.feed(rss(*items, {"title": "D"}))
    stats = await sources.pull()
    assert (stats["new"], len(await sources.texts())) == (1, 4)


async def test_an_item_with_nothing_in_it_is_noted_once_and_the_others_go_on(sources: Sources) -> None:
    empty = {"guid": "e", "description": " &lt;img src='x'&gt; "}
    await sources.feed(rss({"guid": "2", "title": "B"}, empty, {"guid": "1", "title": "A"}))
    stats = await sources.pull()
    assert await sources.texts() == ["<b>A</b>", "<b>B</b>"]
    assert (stats["invalid"], stats["reasons"]) == (
        1,
        [{"key": "e", "reason": "nothing to post: it has no title, no text and no link"}],
    )
    await sources.feed(rss({"guid": "3", "title": "C"}, empty))
    assert (await sources.pull())["invalid"] == 0


@pytest.mark.parametrize(
    ("encoding", "declared", "header"),
    [
        ("windows-1251", "windows-1251", "text/xml"),
        ("windows-1251", "windows-1251", "text/xml; charset=utf-8"),
        ("utf-8", "", "application/rss+xml; charset=utf-8"),
        ("koi8-r", "", "text/xml; charset=koi8-r"),
        ("utf-16", "utf-16", "application/xml"),
        ("utf-8-sig", "utf-8", "application/xml"),
    ],
)
async def test_letters_are_read_in_the_encoding_that_the_document_names(
    sources: Sources, site: Site, encoding: str, declared: str, header: str
) -> None:
    xml = rss({"guid": "1", "title": "Привет, мир"}).partition("?>")[2]
    start = f'<?xml version="1.0" encoding="{declared}"?>' if declared else ""
    site.put("/feed", (start + xml).encode(encoding), Content_Type=header)
    await sources.feed()
    await sources.pull()
    assert await sources.texts() == ["<b>Привет, мир</b>"]


async def test_a_wrong_encoding_spoils_letters_and_not_the_run(sources: Sources) -> None:
    body = '<?xml version="1.0" encoding="utf-8"?>' + rss({"guid": "1", "title": "Привет"}).partition("?>")[2]
    await sources.feed(body.encode("windows-1251"))
    assert (await sources.pull())["taken"] == 1


@pytest.mark.parametrize("date", ["yesterday", "31 Feb 2026", "0000-00-00T00:00:00Z", "99999999999999999", "", "-1"])
async def test_a_date_that_is_none_changes_nothing(sources: Sources, date: str) -> None:
    await sources.feed(rss({"guid": "2", "title": "B", "pubDate": date}, {"guid": "1", "title": "A", "pubDate": date}))
    await sources.pull()
    assert await sources.texts() == ["<b>A</b>", "<b>B</b>"]


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "x" * 300_000], ids=["nul", "half", "long"])
async def test_one_item_that_cannot_be_stored_or_sent_does_not_stop_the_others(sources: Sources, text: str) -> None:
    items: list[dict[str, Any]] = [{"id": "1", "title": "A"}, {"id": "2", "title": text}, {"id": "3", "title": "C"}]
    await sources.feed(json.dumps({"version": "1", "items": items}))
    await sources.pull()
    assert await sources.texts() == ["<b>C</b>", "<b>A</b>"]
    await sources.feed(json.dumps({"version": "1", "items": [*items, {"id": "4", "title": "D"}]}))
    assert (await sources.pull())["new"] == 1


async def test_ten_thousand_items_come_all_and_once(sources: Sources) -> None:
    await sources.feed(numbered(*range(10_000)))
    assert (await sources.pull())["taken"] == 10_000
    assert await sources.texts() == item_texts(*range(10_000))
