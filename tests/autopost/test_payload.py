"""The shape of a payload: every fault by its name, nothing half-written, never an error that nobody named."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16

BUTTON = {"text": "Go", "url": "https://e.example/"}
KEYS = [
    "text", "parse_mode", "media", "links", "buttons", "disable_preview", "tags",
    "source_ref", "scheduled_for", "channels", "source", "workspace_id", "meta",
]  # fmt: skip


async def problems_of(workspace: Autopost, payload: Any) -> list[str]:
    return await workspace.value("select autopost.payload_problems(%s::jsonb)", json.dumps(payload))


@pytest.mark.parametrize("payload", [None, 1, "text", [], [{"text": "hi"}], True])
async def test_a_payload_is_an_object(workspace: Autopost, payload: Any) -> None:
    assert await problems_of(workspace, payload) == ["payload: must be a JSON object"]


async def test_unknown_keys_are_named_in_order(workspace: Autopost) -> None:
    payload = {"text": "hi", "zeta": 1, "Text": "x", "meta": {"anything": {"goes": [None]}}}
    assert await problems_of(workspace, payload) == ["Text: unknown key", "zeta: unknown key"]


async def test_every_known_key_may_be_there_and_may_be_null(workspace: Autopost) -> None:
    assert await problems_of(workspace, dict.fromkeys(KEYS) | {"text": "hi"}) == []
    full = {
        "text": "hi", "parse_mode": "None", "media": [{"type": "image", "url": URL, "caption": None}], "links": ["http://e.example"], "buttons": [[BUTTON]],
        "disable_preview": True, "tags": ["a"], "source_ref": "r", "scheduled_for": "2027-01-31T09:00:00+03:00", "channels": ["c1"], "source": {"a": 1},
        "workspace_id": "any", "meta": {"b": [1]},
    }  # fmt: skip
    assert await problems_of(workspace, full) == []


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("text", 7, "text: must be string, not number"),
        ("parse_mode", [], "parse_mode: must be string, not array"),
        ("media", {}, "media: must be array, not object"),
        ("links", "https://e.example", "links: must be array, not string"),
        ("buttons", BUTTON, "buttons: must be array, not object"),
        ("disable_preview", "yes", "disable_preview: must be boolean, not string"),
        ("tags", "news", "tags: must be array, not string"),
        ("source_ref", 42, "source_ref: must be string, not number"),
        ("scheduled_for", 0, "scheduled_for: must be string, not number"),
        ("channels", {"a": 1}, "channels: must be array, not object"),
        ("source", "cms", "source: must be object, not string"),
        ("meta", [], "meta: must be object, not array"),
    ],
)
async def test_a_wrong_type_is_named(workspace: Autopost, key: str, value: Any, problem: str) -> None:
    assert await problems_of(workspace, {"text": "hi"} | {key: value}) == [problem]


NEEDS_TEXT = "text: a post needs text, links or media"
SCHEDULE = "scheduled_for: must be a moment with its offset, like 2027-01-31T09:00:00+03:00"
URL = "https://e.example/a.png"
LINK = "links: each must be an http or https address"
BUTTONS = "buttons: each has text and url, both strings, and nothing else"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"parse_mode": "html"}, "parse_mode: must be HTML, Markdown or None"),
        ({"parse_mode": ""}, "parse_mode: must be HTML, Markdown or None"),
        ({"source_ref": ""}, "source_ref: must have 1 to 256 characters"),
        ({"source_ref": "r" * 257}, "source_ref: must have 1 to 256 characters"),
        ({"tags": ["t"] * 65}, "tags: at most 64"),
        ({"tags": ["ok", 1]}, "tags: each must be a string"),
        ({"tags": [["nested"]]}, "tags: each must be a string"),
        ({"tags": [[]]}, "tags: each must be a string"),
        ({"tags": ["Ж" * 65]}, "tags: each at most 64 characters"),
        ({"tags": ["a\n" + "b" * 63]}, "tags: each at most 64 characters"),
        ({"channels": ["c"] * 10001}, "channels: at most 10000"),
        ({"channels": [1]}, "channels: each must be a string"),
        ({"channels": [["c1"]]}, "channels: each must be a string"),
        ({"links": ["https://e.example"] * 21}, "links: at most 20"),
        ({"links": ["ftp://e.example"]}, LINK),
        ({"links": ["https://"]}, LINK),
        ({"links": ["https://e.example/a b"]}, LINK),
        ({"links": ["https://e.example/<b>"]}, LINK),
        ({"links": [None]}, LINK),
        ({"links": [["https://e.example"]]}, LINK),
        ({"buttons": [[BUTTON]] * 31}, "buttons: at most 30 rows"),
        ({"buttons": [BUTTON]}, "buttons: must be rows of buttons"),
        ({"buttons": [[]]}, "buttons: each row has 1 to 8 buttons"),
        ({"buttons": [[BUTTON] * 9]}, "buttons: each row has 1 to 8 buttons"),
        ({"buttons": [["Go"]]}, "buttons: each must be an object with text and url"),
        ({"buttons": [[[BUTTON]]]}, "buttons: each must be an object with text and url"),
        ({"buttons": [[{"text": "Go"}]]}, BUTTONS),
        ({"buttons": [[{"text": "Go", "url": None}]]}, BUTTONS),
        ({"buttons": [[BUTTON | {"color": "red"}]]}, BUTTONS),
        ({"buttons": [[BUTTON | {"text": " "}]]}, "buttons: text has 1 to 64 characters"),
        ({"buttons": [[BUTTON | {"text": "t" * 65}]]}, "buttons: text has 1 to 64 characters"),
        ({"buttons": [[BUTTON | {"url": "javascript:x"}]]}, "buttons: url must be an http, https, tg or max address"),
        ({"text": ""}, NEEDS_TEXT),
        ({"text": " \t\r\n"}, NEEDS_TEXT),
        ({"text": "\u00a0"}, NEEDS_TEXT),
        ({"text": None}, NEEDS_TEXT),
        ({"media": [URL]}, "media: item 1 must be an object with a type and a url"),
        ({"media": [{"url": URL}]}, "media: item 1 needs a type: image, video, audio, file or animation"),
        (
            {"media": [{"type": "photo", "url": URL}]},
            "media: item 1 needs a type: image, video, audio, file or animation",
        ),
        (
            {"media": [{"type": "image"}]},
            "media: item 1 needs exactly one of url, blob_ref, file_id, attachment_token, upload",
        ),
        (
            {"media": [{"type": "image", "url": URL, "file_id": "x"}]},
            "media: item 1 needs exactly one of url, blob_ref, file_id, attachment_token, upload",
        ),
        (
            {"media": [{"type": "image", "url": "ftp://e.example/a"}]},
            "media: item 1 has a url that is not an http or https address",
        ),
        ({"media": [{"type": "image", "url": URL, "alt": "x"}]}, "media: item 1 has an unknown key: alt"),
        ({"media": [{"type": "image", "url": 1}]}, "media: item 1 takes strings only"),
        (
            {"media": [{"type": "image", "blob_ref": ""}]},
            "media: item 1 refers to nothing, or to a name of more than 2048 characters",
        ),
        (
            {"media": [{"type": "image", "url": URL}, {"type": "image", "upload": "a"}]},
            "media: item 2 names an upload that did not come along: send multipart/form-data with a part of that name",
        ),
        ({"media": [{"type": "image", "url": URL}] * 101}, "media: at most 100 items"),
        ({"scheduled_for": "tomorrow"}, SCHEDULE),
        ({"scheduled_for": "2027-01-31"}, SCHEDULE),
        ({"scheduled_for": "2027-01-31T09:00:00"}, SCHEDULE),
        ({"scheduled_for": "2027-02-30T09:00:00Z"}, SCHEDULE),
        ({"scheduled_for": "infinity"}, SCHEDULE),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_a_wrong_value_is_named(workspace: Autopost, change: dict[str, Any], problem: str) -> None:
    assert await problems_of(workspace, {"text": "hi"} | change) == [problem]


@pytest.mark.parametrize(
    "change",
    [
        {"tags": ["Ж" * 64] * 64},
        {"source_ref": "r" * 256},
        {"links": ["HTTP://e.example"] * 20},
        {"buttons": [[BUTTON | {"text": "t" * 64}] * 8] * 30},
        {"buttons": [[BUTTON | {"url": "tg://resolve?domain=vestnik"}]]},
        {"channels": ["c"] * 10000},
        {"text": None, "links": ["https://e.example"]},
    ],
    ids=lambda change: str(change)[:40],
)
async def test_what_just_fits_is_taken(workspace: Autopost, change: dict[str, Any]) -> None:
    assert await problems_of(workspace, {"text": "hi"} | change) == []


async def test_all_faults_are_told_at_once(workspace: Autopost) -> None:
    faulty = {"text": " ", "parse_mode": "x", "tags": [1], "buttons": [1], "source_ref": ""}
    assert len(await problems_of(workspace, faulty)) == 5
    assert len(await problems_of(workspace, {"text": 1, "tags": 2, "other": 3})) == 3


async def test_two_million_tags_are_refused_at_once(workspace: Autopost) -> None:
    row = (await workspace.sql(
        "with built as materialized ("
        "  select jsonb_build_object('text', 'x', 'tags', ('[' || repeat('\"t\",', 1999999) || '\"t\"]')::jsonb) as payload),"
        " judged as materialized ("
        "  select began, autopost.payload_problems(payload) as problems"
        "  from (select payload, clock_timestamp() as began from built offset 0) b)"
        " select problems, extract(epoch from clock_timestamp() - began) as seconds from judged"
    ))[0]  # fmt: skip
    assert row["problems"] == ["tags: at most 64"]
    assert row["seconds"] < 1


async def test_a_refused_payload_is_one_named_error_and_leaves_nothing(workspace: Autopost) -> None:
    await workspace.channel()
    with pytest.raises(psycopg.Error, match="Text: unknown key; tags: must be array, not number") as refused:
        await workspace.push({"text": "hi", "Text": "x", "tags": 5})
    assert refused.value.sqlstate == "VP001"
    assert json.loads(refused.value.diag.message_detail or "") == [
        "Text: unknown key",
        "tags: must be array, not number",
    ]
    for table in ("messages", "deliveries", "events", "ingest_runs"):
        assert await workspace.value(
            f"select count(*) from autopost.{table} where workspace_id = %s", workspace.workspace
        ) == 0  # fmt: skip


async def test_in_a_batch_the_faulty_are_told_apart_and_the_others_go_in(workspace: Autopost) -> None:
    await workspace.channel()
    rows = await workspace.push_batch({"text": "one"}, {"text": 2}, {"text": "three"})
    assert [(row["item"], row["outcome"], row["problems"]) for row in rows] == [
        (1, "accepted", None),
        (2, "invalid", ["text: must be string, not number"]),
        (3, "accepted", None),
    ]
    assert await workspace.statuses() == {"queued": 2}


def json_values() -> st.SearchStrategy[Any]:
    leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | short_text()
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(short_text(), inner, max_size=3)
    )


def short_text() -> st.SearchStrategy[str]:
    return st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6)


def nearly_payloads() -> st.SearchStrategy[Any]:
    """Known keys with values that are often right and often nearly right."""
    button = st.fixed_dictionaries({"text": short_text(), "url": st.just("https://e.example") | short_text()})
    values = {
        "text": st.sampled_from(["hi", "<b>x</b> #tag", "&amp; [a](b)", "\u00a0"]) | short_text(),
        "parse_mode": st.sampled_from(["HTML", "Markdown", "None", "html"]),
        "media": st.just([]),
        "links": st.lists(st.just("https://e.example") | short_text(), max_size=3),
        "buttons": st.lists(st.lists(button, max_size=3), max_size=3),
        "disable_preview": st.booleans(),
        "tags": st.lists(short_text(), max_size=3),
        "source_ref": short_text(),
        "channels": st.lists(short_text(), max_size=2),
        "source": st.dictionaries(short_text(), json_values(), max_size=2),
        "meta": st.dictionaries(short_text(), json_values(), max_size=2),
    }
    one_odd = st.dictionaries(st.sampled_from(KEYS), json_values(), max_size=1)
    return st.builds(lambda good, odd: good | odd, st.fixed_dictionaries({}, optional=values), one_odd)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(payload=json_values() | nearly_payloads())
async def test_any_json_is_either_named_faulty_or_can_be_enqueued(workspace: Autopost, payload: Any) -> None:
    if not await workspace.sql("select 1 from autopost.channels where workspace_id = %s", workspace.workspace):
        await workspace.channel("tg")
        await workspace.channel("mx", platform="max")
    found = await problems_of(workspace, payload)
    try:
        pushed = await workspace.value(
            "select enqueued + suppressed + failed from enqueue_messages_and_deliveries(%s, null, 'webhook_push', %s, %s)",
            workspace.workspace, Jsonb(payload), workspace.now,
        )  # fmt: skip
    except psycopg.Error as refusal:
        assert refusal.sqlstate == "VP001"
        assert json.loads(refusal.diag.message_detail or "") == found != []
    else:
        assert found == []
        assert pushed == (2 if not isinstance(payload.get("channels"), list) else 0)
        texts = "select count(*) from autopost.deliveries where workspace_id = %s and coalesce(btrim(rendered_text), '') = ''"
        assert await workspace.value(texts, workspace.workspace) == 0
