"""Telegram: which calls show a post, in which order, with which words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from conformance import verdict
from hypothesis import given
from hypothesis import strategies as st

from vestnik.adapters.contract import Call, Channel, MediaItem, MediaType, SendError, SendMeta
from vestnik.adapters.telegram_plan import plan

CHANNEL = Channel("ws", "ch", "telegram", "-1001", "main", "main")
KINDS: dict[str, MediaType] = {"i": "image", "v": "video", "f": "file", "a": "audio", "g": "animation"}
BUTTONS = [[{"text": "Site", "url": "https://example.org"}]]


def media(kinds: str, **every: Any) -> list[MediaItem]:
    return [MediaItem(KINDS[kind], blob_ref=f"blob{place}", **every) for place, kind in enumerate(kinds)]


def planned(kinds: str, text: str | None = None, meta: SendMeta | None = None, **every: Any) -> list[Call]:
    return plan(CHANNEL, media(kinds, **every), text, meta or SendMeta())


def shape(calls: Sequence[Call]) -> list[tuple[str, tuple[int, ...]]]:
    return [(call.method, tuple(call.items)) for call in calls]


def refusal(kinds: str, text: str | None = None, meta: SendMeta | None = None, **every: Any) -> str:
    with pytest.raises(SendError) as caught:
        planned(kinds, text, meta, **every)
    assert verdict(caught.value) == ("PERMANENT", "delivery", "validation_failed")
    assert caught.value.raw == {"outcome": "not_sent"}
    return caught.value.message


@pytest.mark.parametrize(
    ("kind", "method", "field"),
    [
        ("i", "sendPhoto", "photo"),
        ("v", "sendVideo", "video"),
        ("f", "sendDocument", "document"),
        ("a", "sendAudio", "audio"),
        ("g", "sendAnimation", "animation"),
    ],
)
def test_one_item_goes_by_its_own_method(kind: str, method: str, field: str) -> None:
    (call,) = planned(kind, "<b>a</b>", SendMeta("HTML", buttons=BUTTONS))

    assert (call.method, call.items, call.text) == (method, (0,), "<b>a</b>")
    assert call.body["chat_id"] == -1001
    assert call.body[field] == "attach://media0"
    assert (call.body["caption"], call.body["parse_mode"]) == ("<b>a</b>", "HTML")
    assert call.body["reply_markup"] == {"inline_keyboard": BUTTONS}
    assert "link_preview_options" not in call.body


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ("ii", [("sendMediaGroup", (0, 1))]),
        ("iviv", [("sendMediaGroup", (0, 1, 2, 3))]),
        ("ff", [("sendMediaGroup", (0, 1))]),
        ("aa", [("sendMediaGroup", (0, 1))]),
        ("gg", [("sendAnimation", (0,)), ("sendAnimation", (1,))]),
        ("if", [("sendPhoto", (0,)), ("sendDocument", (1,))]),
        ("fifi", [("sendDocument", (0,)), ("sendPhoto", (1,)), ("sendDocument", (2,)), ("sendPhoto", (3,))]),
        ("iigiv", [("sendMediaGroup", (0, 1)), ("sendAnimation", (2,)), ("sendMediaGroup", (3, 4))]),
        ("i" * 11, [("sendMediaGroup", tuple(range(6))), ("sendMediaGroup", tuple(range(6, 11)))]),
    ],
)
def test_neighbours_of_one_kind_are_an_album(kinds: str, expected: list[tuple[str, tuple[int, ...]]]) -> None:
    calls = planned(kinds, "text")
    assert shape(calls) == expected
    assert [call.text for call in calls] == ["text"] + [None] * (len(expected) - 1)


def test_an_album_as_it_goes_out() -> None:
    (call,) = planned("iv", "text", SendMeta("HTML"))
    assert call.body == {
        "chat_id": -1001,
        "media": [
            {"type": "photo", "media": "attach://media0", "caption": "text", "parse_mode": "HTML"},
            {"type": "video", "media": "attach://media1"},
        ],
    }


class TestText:
    def test_a_caption_is_counted_after_its_markup_is_read(self) -> None:
        (call,) = planned(
            "i", f'<a href="https://example.org/{"x" * 3000}">{"я" * 1019}</a> &amp;&amp;&amp;&amp;', HTML
        )
        assert call.method == "sendPhoto"

    @pytest.mark.parametrize("kinds", ["i", "ii"])
    @pytest.mark.parametrize("text", ["x" * 1025, "🌍" * 513])
    def test_longer_than_a_caption_goes_first(self, kinds: str, text: str) -> None:
        words, shown = planned(kinds, text, SendMeta(buttons=BUTTONS, disable_preview=True))

        assert (words.method, words.body["text"], words.items) == ("sendMessage", text, ())
        assert words.body["reply_markup"] and words.body["link_preview_options"] == {"is_disabled": True}
        assert "caption" not in json.dumps(shown.body)
        assert "reply_markup" not in shown.body

    def test_at_an_album_the_buttons_go_with_the_text_before_it(self) -> None:
        words, album = planned("ii", "text", SendMeta(buttons=BUTTONS))
        assert (words.method, words.body["reply_markup"]) == ("sendMessage", {"inline_keyboard": BUTTONS})
        assert album.method == "sendMediaGroup" and set(album.body) == {"chat_id", "media"}

    @pytest.mark.parametrize("kinds", ["i", "if", "gii"])
    def test_buttons_without_a_text_stand_under_what_comes_first(self, kinds: str) -> None:
        first, *rest = planned(kinds, None, SendMeta(buttons=BUTTONS))
        assert first.body["reply_markup"]
        assert not any("reply_markup" in call.body for call in rest)

    @pytest.mark.parametrize("kinds", ["ii", "iif"])
    @pytest.mark.parametrize("text", [None, "", " \n"])
    def test_an_album_with_buttons_needs_a_text(self, kinds: str, text: str | None) -> None:
        assert "give the post a text" in refusal(kinds, text, SendMeta(buttons=BUTTONS))

    def test_a_caption_of_an_item_stays_on_it(self) -> None:
        items = [MediaItem("image", blob_ref="a"), MediaItem("image", blob_ref="b", caption="**second**")]
        (album,) = plan(CHANNEL, items, None, SendMeta("Markdown"))
        assert [item.get("caption") for item in album.body["media"]] == [None, "<b>second</b>"]
        assert album.text is None

    @pytest.mark.parametrize("kinds", ["i", "ii"])
    def test_where_an_item_has_its_own_words_the_text_goes_first(self, kinds: str) -> None:
        words, shown = planned(kinds, "text", caption="own")
        assert (words.method, words.text) == ("sendMessage", "text")
        assert shown.text == "own"

    def test_too_long_a_caption_of_an_item_is_refused(self) -> None:
        assert "caption of item 1 is too long: 1025 of 1024" in refusal("i", None, caption="x" * 1025)


class TestLongText:
    def test_is_refused(self) -> None:
        assert "4097 of 4096" in refusal("i", "x" * 4097)
        with pytest.raises(SendError, match="4097 of 4096"):
            plan(CHANNEL, (), "x" * 4097, SendMeta())

    def test_is_split(self) -> None:
        text = "\n\n".join(f"Paragraph {number} " + "x" * 900 for number in range(9))
        calls = planned("ii", text, SendMeta(long_text="split", buttons=BUTTONS, disable_preview=True))

        *words, album = calls
        assert [call.method for call in words] == ["sendMessage"] * 3
        assert ["reply_markup" in call.body for call in words] == [False, False, True]
        assert all(call.body["link_preview_options"] == {"is_disabled": True} for call in words)
        assert "".join("".join(str(call.text).split()) for call in words) == "".join(text.split())
        assert album.method == "sendMediaGroup" and "caption" not in json.dumps(album.body)

    def test_is_cut_with_a_link_to_the_rest(self) -> None:
        meta = SendMeta(long_text="truncate_with_link", more_link="https://example.org/whole")
        (call,) = plan(CHANNEL, (), "word " * 2000, meta)
        assert "https://example.org/whole" in str(call.body["text"])

    def test_is_not_cut_without_a_link_to_the_rest(self) -> None:
        assert "no link" in refusal("", "x" * 5000, SendMeta(long_text="truncate_with_link"))


class TestReferences:
    def test_what_telegram_has_already_is_named(self) -> None:
        (call,) = plan(CHANNEL, [MediaItem("image", file_id="AgAC-x_1")], None, SendMeta())
        assert call.body["photo"] == "AgAC-x_1"

    def test_a_stored_file_comes_before_a_file_id(self) -> None:
        (call,) = plan(CHANNEL, [MediaItem("image", file_id="AgAC", blob_ref="b")], None, SendMeta())
        assert call.body["photo"] == "attach://media0"

    def test_an_address_only_where_the_policy_allows_it(self) -> None:
        item = MediaItem("image", url="https://example.org/a.png", blob_ref="b")
        (kept,) = plan(CHANNEL, [item], None, SendMeta())
        (told,) = plan(CHANNEL, [item], None, SendMeta(upload_policy={"image": "url_allowed"}))
        assert (kept.body["photo"], told.body["photo"]) == ("attach://media0", "https://example.org/a.png")

    @pytest.mark.parametrize(
        "item",
        [
            MediaItem("image"),
            MediaItem("image", attachment_token="t"),
            MediaItem("image", file_id="file:///etc/passwd"),
            MediaItem("image", file_id="attach://media0"),
            MediaItem("image", url="file:///etc/passwd"),
        ],
    )
    def test_what_telegram_must_not_be_told(self, item: MediaItem) -> None:
        with pytest.raises(SendError) as caught:
            plan(CHANNEL, [item], None, SendMeta(upload_policy={"image": "url_allowed"}))
        assert verdict(caught.value) == ("PERMANENT", "delivery", "validation_failed")


class TestSizes:
    @pytest.mark.parametrize(
        ("facts", "why"),
        [
            ({"size_bytes": 10 * 1024 * 1024 + 1}, "10 MB"),
            ({"width": 9000, "height": 1001}, "too large"),
            ({"width": 2100, "height": 100}, "too narrow"),
        ],
    )
    def test_a_picture_that_is_no_photo(self, facts: dict[str, int], why: str) -> None:
        reason = refusal("i", None, **facts)
        assert why in reason and "large_image" in reason

        as_file = Channel("ws", "ch", "telegram", "-1001", "main", "main", {"large_image": "document"})
        (call,) = plan(as_file, media("i", **facts), "text", SendMeta())
        assert (call.method, call.body["document"]) == ("sendDocument", "attach://media0")
        assert call.body["disable_content_type_detection"] is True
        assert shape(plan(as_file, [*media("ii"), *media("i", **facts)], None, SendMeta())) == [
            ("sendMediaGroup", (0, 1)),
            ("sendDocument", (2,)),
        ]

    def test_what_just_fits(self) -> None:
        planned("i", None, size_bytes=10 * 1024 * 1024, width=9000, height=1000)
        planned("v", None, size_bytes=50 * 1024 * 1024)

    @pytest.mark.parametrize("kind", ["v", "f", "a", "g"])
    def test_more_than_a_bot_can_send(self, kind: str) -> None:
        assert "50 MB" in refusal(kind, None, size_bytes=50 * 1024 * 1024 + 1)


def test_a_topic_is_in_every_call() -> None:
    topic = Channel("ws", "ch", "telegram", "@news", "main", "main", {"message_thread_id": 7})
    calls = plan(topic, media("iif"), "x" * 2000, SendMeta())
    assert [(call.body["chat_id"], call.body["message_thread_id"]) for call in calls] == [("@news", 7)] * 3


def test_a_later_converter_is_for_a_newer_process_also_without_a_text() -> None:
    with pytest.raises(SendError) as caught:
        planned("i", None, SendMeta(converter=99))
    assert verdict(caught.value) == ("TRANSIENT", "delivery", "converter_unknown")


HTML = SendMeta("HTML")
TEXTS = st.one_of(st.none(), st.text(max_size=60), st.text(min_size=1, max_size=8).map(lambda part: part * 700))


@given(
    kinds=st.text("ivfag", max_size=24),
    text=TEXTS,
    captions=st.lists(st.one_of(st.none(), st.text(min_size=1, max_size=20)), min_size=24, max_size=24),
    buttons=st.booleans(),
)
def test_any_post_is_shown_whole_and_in_order(
    kinds: str, text: str | None, captions: list[str | None], buttons: bool
) -> None:
    items = [
        MediaItem(KINDS[kind], blob_ref=f"blob{place}", caption=captions[place]) for place, kind in enumerate(kinds)
    ]
    meta = SendMeta(buttons=BUTTONS if buttons else (), long_text="split")
    try:
        calls = plan(CHANNEL, items, text, meta)
    except SendError as e:
        assert "buttons" in e.message
        return
    assert calls == plan(CHANNEL, items, text, meta)
    assert [place for call in calls for place in call.items] == list(range(len(items)))
    assert sum("reply_markup" in call.body for call in calls) == buttons
    assert all(2 <= len(call.body["media"]) <= 10 for call in calls if call.method == "sendMediaGroup")
    told = "".join(
        str(body.get("text") or body.get("caption") or "")
        for call in calls
        for body in ([call.body] if call.method != "sendMediaGroup" else call.body["media"])
    )
    expected = (text if items == [] or (text or "").strip() else None) or ""
    own = "".join(item.caption or "" for item in items)
    assert sorted("".join(told.split())) == sorted("".join((expected + own).split()))
    json.dumps([call.body for call in calls])
