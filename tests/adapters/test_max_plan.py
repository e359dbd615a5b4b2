"""MAX: which messages show a post, in which order, with which words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from conformance import verdict
from hypothesis import given
from hypothesis import strategies as st

from vestnik.adapters.contract import Call, Channel, MediaItem, MediaType, SendError, SendMeta
from vestnik.adapters.max_plan import plan

CHANNEL = Channel("ws", "ch", "max", "-1001", "main", "main")
KINDS: dict[str, MediaType] = {"i": "image", "v": "video", "f": "file", "a": "audio", "g": "animation"}
BUTTONS = [[{"text": "Site", "url": "https://example.org"}]]
KEYBOARD = {
    "type": "inline_keyboard",
    "payload": {"buttons": [[{"type": "link", "text": "Site", "url": "https://example.org"}]]},
}


def media(kinds: str, **every: Any) -> list[MediaItem]:
    return [MediaItem(KINDS[kind], blob_ref=f"blob{place}", **every) for place, kind in enumerate(kinds)]


def planned(kinds: str, text: str | None = None, meta: SendMeta | None = None, **every: Any) -> list[Call]:
    return plan(CHANNEL, media(kinds, **every), text, meta or SendMeta())


def refusal(kinds: str, text: str | None = None, meta: SendMeta | None = None, **every: Any) -> str:
    with pytest.raises(SendError) as caught:
        planned(kinds, text, meta, **every)
    assert verdict(caught.value) == ("PERMANENT", "delivery", "validation_failed")
    return caught.value.message


def attachment(kind: str, place: int) -> dict[str, Any]:
    return {"type": kind, "payload": {"token": f"attach://media{place}"}}


def test_a_message_as_it_goes_out() -> None:
    (call,) = planned("iv", "<b>a</b>", SendMeta("HTML", buttons=BUTTONS, disable_preview=True))

    assert call == Call(
        "POST /messages",
        {
            "text": "<b>a</b>",
            "format": "html",
            "attachments": [attachment("image", 0), attachment("video", 1), KEYBOARD],
        },
        (0, 1),
        "<b>a</b>",
        {"chat_id": "-1001", "disable_link_preview": "true"},
    )


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ("iviv", [(0, 1, 2, 3)]),
        ("aa", [(0,), (1,)]),
        ("fif", [(0,), (1,), (2,)]),
        ("iifvv", [(0, 1), (2,), (3, 4)]),
        ("i" * 11, [tuple(range(6)), tuple(range(6, 11))]),
    ],
)
def test_what_cannot_be_grouped_is_a_series(kinds: str, expected: list[tuple[int, ...]]) -> None:
    calls = planned(kinds, "text")
    assert [call.items for call in calls] == expected
    assert [call.text for call in calls] == ["text"] + [None] * (len(expected) - 1)
    assert all("text" not in call.body for call in calls[1:])


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        ({}, "image"),
        ({"content_type": "image/gif"}, "image"),
        ({"content_type": "video/mp4", "file_name": "a.gif"}, "video"),
        ({"file_name": "A.GIF"}, "image"),
        ({"file_name": "a.mp4"}, "video"),
        ({"url": "https://e.org/a.mp4?x=1.gif"}, "video"),
    ],
)
def test_an_animation_is_an_image_or_a_video(facts: dict[str, str], kind: str) -> None:
    (call,) = planned("g", None, **facts)
    assert call.body["attachments"] == [attachment(kind, 0)]


class TestText:
    @pytest.mark.parametrize("kind", ["a", "f"])
    def test_audio_and_files_stand_without_buttons(self, kind: str) -> None:
        words, shown = planned(kind, "text", SendMeta(buttons=BUTTONS))
        assert words.body == {"text": "text", "attachments": [KEYBOARD]}
        assert len(shown.body["attachments"]) == 1 and "text" not in shown.body
        assert "give the post a text" in refusal(kind, None, SendMeta(buttons=BUTTONS))

    def test_without_buttons_the_text_goes_with_them(self) -> None:
        (call,) = planned("f", "text")
        assert call.body == {"text": "text", "attachments": [attachment("file", 0)]}

    def test_buttons_without_a_text_stand_under_the_first_images(self) -> None:
        first, second = planned("if", None, SendMeta(buttons=BUTTONS))
        assert KEYBOARD in first.body["attachments"] and KEYBOARD not in second.body["attachments"]

    @pytest.mark.parametrize(("mode", "between"), [("None", "\n"), ("HTML", "\n"), ("Markdown", "\n\n")])
    def test_captions_stand_below_the_text_of_their_message(self, mode: Any, between: str) -> None:
        items = [
            MediaItem("image", blob_ref="a", caption="one"),
            MediaItem("image", blob_ref="b"),
            MediaItem("image", blob_ref="c", caption="three"),
            MediaItem("file", blob_ref="d", caption="four"),
            MediaItem("file", blob_ref="e"),
        ]
        calls = plan(CHANNEL, items, "text", SendMeta(mode))
        assert [call.text for call in calls] == [between.join(("text", "one", "three")), "four", None]

    def test_with_the_captions_too_long_it_goes_first(self) -> None:
        words, shown = planned("i", "x" * 3999, SendMeta(buttons=BUTTONS), caption="own")
        assert words.body == {"text": "x" * 3999, "attachments": [KEYBOARD]}
        assert (shown.text, shown.body["attachments"]) == ("own", [attachment("image", 0)])

    def test_too_long_captions_are_refused(self) -> None:
        assert "from item 1 on" in refusal("ii", None, caption="x" * 2000)
        assert "from item 2 on" in refusal("fii", "text", caption="x" * 2000)

    def test_long_texts_by_policy(self) -> None:
        text = "\n\n".join("x" * 999 for _ in range(9))
        assert "of 4000" in refusal("i", text)
        *words, shown = planned("i", text, SendMeta(long_text="split", buttons=BUTTONS))
        assert len(words) == 3
        assert [KEYBOARD in call.body.get("attachments", ()) for call in words] == [False, False, True]
        assert shown.body == {"attachments": [attachment("image", 0)]}


class TestReferences:
    def test_a_token_of_ones_own(self) -> None:
        (call,) = plan(CHANNEL, [MediaItem("video", attachment_token="t")], None, SendMeta())
        assert call.body["attachments"] == [{"type": "video", "payload": {"token": "t"}}]

    def test_only_images_have_an_address_and_only_by_policy(self) -> None:
        address = "https://example.org/a"
        allowed = SendMeta(upload_policy={"image": "url_allowed", "video": "url_allowed"})
        items = [MediaItem("image", url=address, blob_ref="a"), MediaItem("video", url=address, blob_ref="b")]
        (kept,), (told,) = plan(CHANNEL, items, None, SendMeta()), plan(CHANNEL, items, None, allowed)
        assert kept.body["attachments"][0] == attachment("image", 0)
        assert told.body["attachments"] == [{"type": "image", "payload": {"url": address}}, attachment("video", 1)]

    @pytest.mark.parametrize("item", [MediaItem("image"), MediaItem("image", file_id="AgAC")])
    def test_what_max_cannot_take(self, item: MediaItem) -> None:
        with pytest.raises(SendError, match="nothing that MAX can take"):
            plan(CHANNEL, [item], None, SendMeta())


@pytest.mark.parametrize(
    ("kind", "facts", "why"),
    [
        ("i", {"size_bytes": 50 * 1024 * 1024 + 1}, "50 MB"),
        ("i", {"width": 7681, "height": 10}, "7680"),
        ("v", {"size_bytes": 250 * 1024 * 1024 + 1}, "250 MB"),
        ("a", {"size_bytes": 256 * 1024 * 1024 + 1}, "256 MB"),
        ("f", {"size_bytes": 4096 * 1024 * 1024 + 1}, "4096 MB"),
    ],
)
def test_what_is_too_large(kind: str, facts: dict[str, int], why: str) -> None:
    assert why in refusal(kind, None, **facts)


@given(
    kinds=st.text("ivfag", max_size=24),
    text=st.one_of(st.none(), st.text(max_size=60), st.text(min_size=1, max_size=8).map(lambda part: part * 700)),
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
    assert sum(KEYBOARD in call.body.get("attachments", ()) for call in calls) == buttons
    for call in calls:
        shown = [each["type"] for each in call.body.get("attachments", ()) if each != KEYBOARD]
        assert len(shown) <= 10
        assert len(call.body.get("attachments", ())) == 1 or not {"audio", "file"} & set(shown)
    told = "".join(call.text or "" for call in calls)
    expected = (text if items == [] or (text or "").strip() else None) or ""
    own = "".join(item.caption or "" for item in items)
    assert sorted("".join(told.split())) == sorted("".join((expected + own).split()))
    json.dumps([call.body for call in calls])
