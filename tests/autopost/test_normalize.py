"""One form of a post, whoever sent it and however it was typed; its hash and its tags follow from nothing else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16

POST = {
    "text": "Скидки #Sale",
    "parse_mode": "HTML",
    "links": ["https://a.example/x"],
    "buttons": [[{"text": "Buy", "url": "https://a.example/buy"}]],
    "disable_preview": False,
}


async def normal_text(workspace: Autopost, text: str) -> str:
    return await workspace.value("select autopost.normalize_text(%s)", text)


async def content_hash(workspace: Autopost, post: dict[str, Any] | str) -> str:
    """Of the JSON as it is written, the order of its keys included."""
    text = post if isinstance(post, str) else json.dumps(post)
    return await workspace.value("select autopost.content_hash(autopost.normalize_payload(%s::jsonb))", text)


async def tags_of(workspace: Autopost, text: str | None, tags: list[str] | None = None) -> list[str]:
    return await workspace.value("select autopost.normalize_tags(%s, %s)", Jsonb(tags or []), text)


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("  hello \n", "hello"),
        ("a  b\t\tc\u00a0d", "a b c d"),
        ("a \nb", "a\nb"),
        ("a\r\nb\rc", "a\nb\nc"),
        ("a\n \n\n\nb", "a\n\nb"),
        ("one\n\ntwo", "one\n\ntwo"),
        ("e\u0301clair", "\u00e9clair"),
        ("  Привет,\tмир ", "Привет, мир"),
        ("й", "й"),
        ("<pre>a  b</pre>", "<pre>a  b</pre>"),
        ("`a  b`", "`a  b`"),
    ],
)
async def test_text_has_one_form(workspace: Autopost, typed: str, kept: str) -> None:
    assert await normal_text(workspace, typed) == kept


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.sampled_from("aЖ\u0301\u0308 \t\n\r\u00a0`<>pre/#😀"), max_size=30))
async def test_the_normal_form_of_a_text_is_its_own(workspace: Autopost, text: str) -> None:
    once = await normal_text(workspace, text)
    assert await normal_text(workspace, once) == once


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("HTTPS://Example.COM", "https://example.com/"),
        ("https://example.com:443/a", "https://example.com/a"),
        ("http://example.com:80", "http://example.com/"),
        ("http://example.com:8080/", "http://example.com:8080/"),
        ("https://example.com?", "https://example.com/"),
        ("https://example.com/a#", "https://example.com/a"),
        ("https://example.com/a?#top", "https://example.com/a#top"),
        ("https://example.com/A/b?Q=Ж", "https://example.com/A/b?Q=Ж"),
        ("https://example.com/?b=2&a=1", "https://example.com/?b=2&a=1"),
        ("https://User:Pass@Example.com/", "https://User:Pass@example.com/"),
        ("https://ПРИМЕР.рф/Путь", "https://пример.рф/Путь"),
        (" https://example.com/ ", "https://example.com/"),
        ("not a url", "not a url"),
    ],
)
async def test_addresses_that_lead_to_the_same_place_are_written_alike(
    workspace: Autopost, written: str, canonical: str
) -> None:
    assert await workspace.value("select autopost.canonical_url(%s)", written) == canonical


async def test_a_question_mark_that_belongs_to_the_query_stays(workspace: Autopost) -> None:
    url = "https://example.com/search?q=why?"
    assert await workspace.value("select autopost.canonical_url(%s)", url) == url


async def test_the_address_of_an_application_gets_no_path(workspace: Autopost) -> None:
    for url in ("tg://resolve?domain=vestnik", "max://chat?id=1"):
        assert await workspace.value("select autopost.canonical_url(%s)", url) == url


async def test_the_hash_does_not_depend_on_how_the_json_is_written(workspace: Autopost) -> None:
    reordered = json.dumps(dict(reversed(POST.items())), ensure_ascii=False, indent=3)
    assert await content_hash(workspace, POST) == await content_hash(workspace, reordered)


async def test_the_hash_is_the_same_for_ever(workspace: Autopost) -> None:
    """A change here makes every post of the last week a new one: hash_version has to be raised with it."""
    assert await content_hash(workspace, POST) == "37b1e879f4b01d6aa137dd89876516fc"
    assert await workspace.value("select autopost.hash_version()") == 1


@pytest.mark.parametrize(
    "change",
    [
        {"text": "  Скидки   #Sale "},
        {"links": ["HTTPS://A.example:443/x"]},
        {"source_ref": "cms-42"},
        {"source": {"feed": "a"}},
        {"meta": {"campaign": 7}},
        {"workspace_id": "another"},
        {"tags": ["news"]},
        {"channels": ["c1"]},
        {"scheduled_for": "2027-03-01T12:00:00Z"},
        {"media": []},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_what_the_reader_does_not_see_leaves_the_hash_alone(workspace: Autopost, change: dict[str, Any]) -> None:
    assert await content_hash(workspace, POST | change) == await content_hash(workspace, POST)


@pytest.mark.parametrize(
    "change",
    [
        {"text": "скидки #Sale"},
        {"parse_mode": "Markdown"},
        {"parse_mode": None},
        {"links": ["https://a.example/y"]},
        {"links": ["https://b.example/", "https://a.example/x"]},
        {"buttons": [[{"text": "Sell", "url": "https://a.example/buy"}]]},
        {"buttons": [[{"text": "Buy", "url": "https://a.example/sell"}]]},
        {"disable_preview": True},
        {"disable_preview": None},
    ],
    ids=str,
)
async def test_what_the_reader_sees_makes_another_hash(workspace: Autopost, change: dict[str, Any]) -> None:
    assert await content_hash(workspace, POST | change) != await content_hash(workspace, POST)


async def test_the_order_of_links_and_buttons_is_part_of_the_hash(workspace: Autopost) -> None:
    links = ["https://a.example/", "https://b.example/"]
    rows = [[{"text": text, "url": "https://a.example/"}] for text in "AB"]
    for key, value in (("links", links), ("buttons", rows)):
        forth, back = POST | {key: value}, POST | {key: value[::-1]}
        assert await content_hash(workspace, forth) != await content_hash(workspace, back)


PICTURE = {"type": "image", "url": "https://a.example/a.png"}
SECOND = {"type": "image", "blob_ref": "sha256:02"}


async def test_media_in_another_order_are_another_post(workspace: Autopost) -> None:
    forth, back = {"media": [PICTURE, SECOND]}, {"media": [SECOND, PICTURE]}
    assert await content_hash(workspace, forth) != await content_hash(workspace, back)


async def test_a_picture_is_known_by_its_canonical_address(workspace: Autopost) -> None:
    same = {"media": [PICTURE | {"url": "HTTPS://A.example:443/a.png"}]}
    assert await content_hash(workspace, {"media": [PICTURE]}) == await content_hash(workspace, same)


@pytest.mark.parametrize("change", [{"type": "file"}, {"url": "https://a.example/b.png"}, {"caption": "a"}], ids=str)
async def test_what_the_reader_sees_of_a_picture_makes_another_hash(
    workspace: Autopost, change: dict[str, str]
) -> None:
    assert await content_hash(workspace, {"media": [PICTURE]}) != await content_hash(
        workspace, {"media": [PICTURE | change]}
    )


async def test_a_message_keeps_only_what_the_reader_sees(workspace: Autopost) -> None:
    pushed = await workspace.push(
        POST | {"source_ref": "cms-42", "source": {"feed": "a"}, "meta": {"k": 1}, "tags": ["x"]}
    )
    message = (await workspace.sql("select * from autopost.messages where message_id = %s", pushed["message_id"]))[0]
    assert message["payload"] == POST | {"type": "text"}
    assert (message["source"], message["source_ref"]) == ({"feed": "a"}, "cms-42")
    assert (message["hash_version"], message["normalization_version"]) == (1, 1)


@pytest.mark.parametrize(
    ("text", "tags", "expected"),
    [
        ("", [], []),
        (None, ["B", "a", "b", " a "], ["a", "b"]),
        ("#News of the #day", ["zoo", "NEWS"], ["day", "news", "zoo"]),
        ("Новости #Москва, #СПб!", ["ЛЕТО"], ["лето", "москва", "спб"]),
        ("(#one)#two #three", [], ["one", "three", "two"]),
        ("#1 #2027 #_ #a1", [], ["a1"]),
        ("https://e.example/#part <a href='#x'>b</a> &#33; a#b", [], []),
        ("", ["CAFE\u0301", "caf\u00e9"], ["caf\u00e9"]),
        ("", ["  ", ""], []),
    ],
)
async def test_tags_are_the_union_of_the_given_and_the_written(
    workspace: Autopost, text: str | None, tags: list[str], expected: list[str]
) -> None:
    assert await tags_of(workspace, text, tags) == expected


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tags=st.lists(st.text("abЖжЁ ", max_size=4), max_size=8), data=st.data())
async def test_tags_do_not_depend_on_order_case_or_repetition(
    workspace: Autopost, tags: list[str], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(tags + tags[:2]))
    found = await tags_of(workspace, None, tags)
    assert found == await tags_of(workspace, None, [tag.upper() for tag in shuffled])
    assert found == sorted({tag.strip().lower() for tag in tags} - {""})


async def test_a_message_has_at_most_64_tags(workspace: Autopost) -> None:
    text = " ".join(f"#tag{n:03}" for n in range(100))
    assert await tags_of(workspace, text) == [f"tag{n:03}" for n in range(64)]


async def test_tags_come_from_the_post_alone(workspace: Autopost) -> None:
    first = await workspace.push(
        {"text": "one #a", "source": {"tags": ["s"]}, "source_ref": "r", "meta": {"tags": ["m"]}}
    )
    workspace.wait(days=200)
    second = await workspace.push({"text": "two #a"})
    rows = await workspace.sql("select tags from autopost.messages where workspace_id = %s", workspace.workspace)
    assert [row["tags"] for row in rows] == [["a"], ["a"]]
    assert first["message_id"] != second["message_id"]
