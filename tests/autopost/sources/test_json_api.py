"""JSON over HTTP: its fields become posts, page after page, from where the last run ended."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web
from sources_rig import Handler, Site, Sources

from vestnik.autopost.sources import validate
from vestnik.errors import ConfigError

Row = dict[str, Any]
MAPPING = {"text": "{title}"}
BASIC: Row = {"items": "$.data[*]", "key": "$.id", "mapping": MAPPING}
BY_ID: Row = {"watermark": {"path": "$.id"}}


def posts(*numbers: int) -> list[Row]:
    return [{"id": n, "title": f"P{n}"} for n in numbers]


def texts(*numbers: int) -> list[str]:
    return [f"P{n}" for n in numbers]


async def declare(sources: Sources, path: str = "/api", **config: Any) -> None:
    await sources.declare("api", {"url": sources.site.url + path} | BASIC | config)


def paged(numbers: list[int], size: int = 2, link: str = "") -> Handler:
    """All of it, so many at a time: by ``page``, and with a link and a cursor to the next one."""

    async def answer(request: web.Request) -> web.Response:
        page = int(request.query.get("page") or request.query.get("cursor") or 1)
        here = numbers[(page - 1) * size : page * size]
        more = page * size < len(numbers)
        body = {
            "data": posts(*here),
            "next": f"/api?page={page + 1}" if more else None,
            "after": page + 1 if more else "",
        }
        return web.json_response(body)

    return answer


async def test_the_newest_comes_first_in_an_answer_and_last_in_a_channel(sources: Sources, site: Site) -> None:
    site.put("/api", {"data": posts(3, 2, 1)})
    await declare(sources)
    stats = await sources.pull()
    assert await sources.texts() == texts(1, 2, 3)
    assert stats["taken"] == 3
    site.put("/api", {"data": posts(4, 3, 2)})
    assert (await sources.pull())["new"] == 1
    assert await sources.texts() == texts(1, 2, 3, 4)
    assert (await sources.pull())["outcome"] == "unchanged"


async def test_oldest_first_is_an_option(sources: Sources, site: Site) -> None:
    site.put("/api", {"data": posts(1, 2)})
    await declare(sources, order="oldest_first")
    await sources.pull()
    assert await sources.texts() == texts(1, 2)


async def test_every_field_of_a_post_can_be_mapped(sources: Sources, site: Site) -> None:
    record = {
        "id": "a-1", "name": "Tea & <cake>", "price": 12.5, "body": "<p>Nice <script>x</script></p>", "at": 1793527200,
        "pictures": [{"src": "/1.png"}, {"src": "/2.mp4"}], "labels": ["New", "sale, hot"], "page": "/tea", "go": None,
    }  # fmt: skip
    site.put("/api", {"data": [record]})
    mapping: Row = {
        "text": "<b>{name}</b>: {price} {missing?}\n\n{body|html}", "parse_mode": "HTML", "links": ["{page}"],
        "media": [{"url": "$.pictures[*].src"}], "tags": ["$.labels", "shop"], "base_url": site.url + "/",
        "buttons": [{"text": "Buy {name}", "url": "{page}"}],
    }  # fmt: skip
    await declare(sources, mapping=mapping, published_at="$.at")
    await sources.pull()
    (payload,) = await sources.payloads()
    assert payload["text"] == "<b>Tea &amp; &lt;cake&gt;</b>: 12.5\n\nNice"
    assert payload["links"] == [f"{site.url}/tea"]
    assert [(m["type"], m["url"]) for m in payload["media"]] == [
        ("image", f"{site.url}/1.png"),
        ("video", f"{site.url}/2.mp4"),
    ]
    assert payload["tags"] == ["hot", "new", "sale", "shop"]
    assert payload["buttons"] == [[{"text": "Buy Tea & <cake>", "url": f"{site.url}/tea"}]]


@pytest.mark.parametrize(
    "paging",
    [
        {"by": "page"},
        {"by": "page", "size": 2, "size_param": "per"},
        {"by": "next", "path": "$.next"},
        {"by": "cursor", "path": "$.after"},
    ],
    ids=["page", "sized", "next", "cursor"],
)
async def test_all_pages_are_read_however_they_are_found(sources: Sources, site: Site, paging: Row) -> None:
    site.serve("/api", paged([5, 4, 3, 2, 1]))
    await declare(sources, paging=paging)
    await sources.pull()
    assert await sources.texts() == texts(1, 2, 3, 4, 5)
    asked = [dict(request.query) for request in site.asked]
    assert len(asked) == (4 if paging == {"by": "page"} else 3)
    if "size" in paging:
        assert asked[0] == {"page": "1", "per": "2"}


async def test_with_a_watermark_reading_ends_at_the_first_page_that_is_all_known(sources: Sources, site: Site) -> None:
    site.serve("/api", paged([6, 5, 4, 3, 2, 1]))
    await declare(sources, paging={"by": "page"}, **BY_ID)
    await sources.pull()
    assert (await sources.cursor())["watermark"] == 6
    site.asked.clear()
    site.serve("/api", paged([8, 7, 6, 5, 4, 3, 2, 1]))
    stats = await sources.pull()
    assert len(site.asked) == 3 and stats["new"] == 2
    assert await sources.texts() == texts(1, 2, 3, 4, 5, 6, 7, 8)


async def test_a_watermark_is_sent_where_the_api_takes_one(sources: Sources, site: Site) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"data": posts(*range(int(request.query["since"]) + 1, 6))})

    site.serve("/api", answer)
    await declare(
        sources, order="oldest_first", query={"lang": "en"}, watermark={"path": "$.id", "param": "since", "start": 2}
    )
    await sources.pull()
    await sources.pull()
    assert [dict(request.query) for request in site.asked] == [
        {"lang": "en", "since": "2"},
        {"lang": "en", "since": "5"},
    ]
    assert await sources.texts() == texts(3, 4, 5)


async def test_oldest_first_goes_on_from_the_watermark_until_there_is_no_more(sources: Sources, site: Site) -> None:
    async def answer(request: web.Request) -> web.Response:
        first = int(request.query["since"]) + 2 * (int(request.query["page"]) - 1) + 1
        return web.json_response({"data": posts(*range(first, min(first + 2, 12)))})

    site.serve("/api", answer)
    await declare(
        sources,
        order="oldest_first",
        paging={"by": "page"},
        max_pages=2,
        watermark={"path": "$.id", "param": "since", "start": 0},
    )
    await sources.pull()
    assert await sources.texts() == texts(*range(1, 12))
    assert {request.query["since"] for request in site.asked} == {"0", "4", "8", "11"}


async def test_a_page_that_fails_in_the_middle_loses_nothing(sources: Sources, site: Site) -> None:
    site.serve("/api", paged([2, 1]))
    await declare(sources, paging={"by": "page"}, **BY_ID)
    await sources.pull()
    before = await sources.cursor()
    whole = paged([8, 7, 6, 5, 4, 3, 2, 1])

    async def half(request: web.Request) -> web.StreamResponse:
        return web.Response(status=502) if request.query["page"] == "2" else await whole(request)

    site.serve("/api", half)
    assert (await sources.fails()).code == "http_502"
    assert (await sources.cursor(), await sources.texts()) == (before, texts(1, 2))
    site.serve("/api", whole)
    await sources.pull()
    assert await sources.texts() == texts(*range(1, 9))


async def test_pages_without_an_end_are_a_gap_and_not_a_loss(sources: Sources, site: Site) -> None:
    site.serve("/api", paged([2, 1]))
    await declare(sources, paging={"by": "page"}, max_pages=3, **BY_ID)
    await sources.pull()
    before = await sources.cursor()
    site.serve("/api", paged([*range(100, 0, -1)]))
    error = await sources.fails()
    assert (error.code, await sources.cursor()) == ("gap", before)
    assert "raise max_pages" in str(error)
    await declare(sources, paging={"by": "page"}, max_pages=60, **BY_ID)
    await sources.pull()
    assert await sources.texts() == texts(*range(1, 101))


async def test_a_first_run_reads_no_more_pages_than_it_may(sources: Sources, site: Site) -> None:
    site.serve("/api", paged([*range(100, 0, -1)]))
    await declare(sources, paging={"by": "page"}, max_pages=3)
    stats = await sources.pull()
    assert await sources.texts() == texts(*range(95, 101))
    assert stats["reasons"] == [{"reason": "only the first 3 pages are read; what is older is left"}]


async def test_an_api_that_gives_one_page_for_ever_is_read_once(sources: Sources, site: Site) -> None:
    site.put("/api", {"data": posts(1), "next": "/api?page=2"})
    await declare(sources, paging={"by": "next", "path": "$.next"})
    await sources.pull()
    assert (len(site.asked), await sources.texts()) == (2, texts(1))


async def test_a_secret_goes_to_the_pages_of_the_same_host_only(sources: Sources, site: Site) -> None:
    sources.secrets["key"] = "s3cret"
    elsewhere = site.url.replace("127.0.0.1", "localhost")
    site.put("/api", {"data": posts(3), "next": "/second"})
    site.put("/second", {"data": posts(2), "next": f"{elsewhere}/third"})
    site.put("/third", {"data": posts(1)})
    await declare(sources, auth={"header": "X-Key", "secret_ref": "key"}, paging={"by": "next", "path": "$.next"})
    await sources.pull()
    assert [request.headers.get("X-Key") for request in site.asked] == ["s3cret", "s3cret", None]
    assert await sources.texts() == texts(1, 2, 3)


@pytest.mark.parametrize(
    ("body", "code", "permanent"),
    [
        ('{"data": [', "not_json", False),
        ("", "not_json", False),
        ("<html></html>", "not_json", False),
        ('{"data": [NaN]}', "not_json", False),
        ("[" * 100_000, "not_json", False),
        ('{"error": "no"}', "no_items", False),
        ("null", "no_items", False),
    ],
)
async def test_an_answer_that_is_not_what_was_agreed_is_said_and_nothing_moves(
    sources: Sources, site: Site, body: str, code: str, permanent: bool
) -> None:
    site.put("/api", {"data": posts(1)})
    await declare(sources)
    await sources.pull()
    before = await sources.cursor()
    site.put("/api", body)
    error = await sources.fails()
    assert (error.code, error.permanent, await sources.cursor()) == (code, permanent, before)


async def test_wrong_records_are_noted_and_the_others_go_on(sources: Sources, site: Site) -> None:
    wrong = [
        {"id": 9},
        {"title": "no key"},
        {"id": 7, "title": {"an": "object"}},
        "words",
        None,
        5,
        {"id": 6, "title": ""},
    ]
    site.put("/api", {"data": [*posts(2), *wrong, *posts(1)]})
    await declare(sources)
    stats = await sources.pull()
    assert await sources.texts() == texts(1, 2)
    assert (stats["taken"], stats["invalid"]) == (2, 7)
    reasons = {reason["key"]: reason["reason"] for reason in stats["reasons"]}
    assert reasons["9"] == "title is missing; write {title?} if it may be"
    assert reasons["7"] == "an object cannot become text; name one of its fields"
    assert reasons["6"] == "nothing to post: text, links and media are all empty"
    assert (await sources.pull())["outcome"] == "unchanged"


@pytest.mark.parametrize("mark", ["a\0b", "\ud800", None, True, {"a": 1}, [], "  "], ids=repr)
async def test_a_watermark_that_is_none_is_told_and_does_not_stop_the_source(
    sources: Sources, site: Site, mark: Any
) -> None:
    site.put("/api", {"data": [{"id": 2, "title": "P2", "at": mark}, {"id": 1, "title": "P1", "at": 5}]})
    await declare(sources, watermark={"path": "$.at"})
    stats = await sources.pull()
    assert (await sources.texts(), (await sources.cursor())["watermark"]) == (texts(1, 2), 5)
    assert stats["reasons"] == [{"reason": "1 item has no watermark at $.at"}]


async def test_a_watermark_of_two_kinds_is_refused(sources: Sources, site: Site) -> None:
    site.put("/api", {"data": [{"id": 2, "title": "P2", "at": "zebra"}, {"id": 1, "title": "P1", "at": 5}]})
    await declare(sources, watermark={"path": "$.at"})
    assert (await sources.fails()).code == "mixed_watermark"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"url": "ftp://example.org"}, "url: must be an http or https address"),
        ({"url": "https://me:secret@example.org/"}, "store the secret as a credential"),
        ({"headers": {"Authorization": "x"}}, "Authorization is a secret"),
        ({"items": "data"}, "'data' is not a JSONPath"),
        ({"items": "$["}, "is not a JSONPath"),
        ({"mapping": {"text": "{un closed"}}, "names no field"),
        ({"mapping": {}}, "a post needs text, links or media"),
        ({"mapping": {"text": "{a|html}"}}, "needs parse_mode: HTML"),
        ({"paging": {"by": "magic"}}, "paging"),
        ({"paging": {"by": "page", "size_param": "n"}}, "size_param needs size"),
        ({"order": "oldest_first", "paging": {"by": "page"}}, "needs watermark.param"),
        ({"colour": "red"}, "colour: unknown key"),
    ],
)
def test_a_wrong_configuration_is_refused_in_words(change: Row, said: str) -> None:
    config = {"url": "https://example.org/api"} | BASIC | change
    with pytest.raises(ConfigError) as refused:
        validate("api", config)
    assert said in str(refused.value) and "secret@" not in str(refused.value)
