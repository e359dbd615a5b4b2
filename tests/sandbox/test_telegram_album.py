"""Albums on Telegram: all of it or none, what goes together, what each of its messages says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sandbox_client import picture

PHOTO = {"type": "photo", "media": "https://e.org/a.png"}
VIDEO = {"type": "video", "media": "https://e.org/a.mp4"}
DOCUMENT = {"type": "document", "media": "https://e.org/a.pdf"}
AUDIO = {"type": "audio", "media": "https://e.org/a.mp3"}


async def album(client: Any, *items: Any, **params: Any) -> Any:
    return await client.telegram("sendMediaGroup", media=list(items), **params)


async def test_an_album_is_a_message_for_each_of_its_files(client: Any) -> None:
    items = [{**PHOTO, "caption": "<i>c</i>", "parse_mode": "HTML"}, VIDEO]
    said = await album(client, *items, message_thread_id=7)
    first, second = said.body["result"]
    assert (first["message_id"], second["message_id"]) == (1, 2)
    assert (first["caption"], first["caption_entities"][0]["type"]) == ("c", "italic")
    assert "caption" not in second
    assert first["media_group_id"] == second["media_group_id"]
    assert first["message_thread_id"] == second["message_thread_id"] == 7
    posts = await client.posts("telegram")
    assert [post["media"][0]["type"] for post in posts] == ["photo", "video"]
    assert {post["media_group_id"] for post in posts} == {first["media_group_id"]}


async def test_two_albums_are_two(client: Any) -> None:
    groups = [(await album(client, PHOTO, PHOTO)).body["result"][0]["media_group_id"] for _ in range(2)]
    assert groups[0] != groups[1]


async def test_files_of_one_form_by_the_names_of_their_parts(client: Any, clock: Any) -> None:
    media = [
        {"type": "photo", "media": "attach://one"},
        {"type": "photo", "media": "attach://two"},
        {"type": "photo", "media": "attach://one"},
    ]
    files = {"one": ("1.png", picture(4, 3)), "two": ("2.png", picture(5, 5))}
    said = await client.upload("sendMediaGroup", files, media=json.dumps(media))
    assert said.status == 200, said.body
    sent = [(post["media"][0]["name"], post["media"][0]["width"]) for post in await client.posts("telegram")]
    assert sent == [("1.png", 4), ("2.png", 5), ("1.png", 4)]
    again = [{"type": "photo", "media": message["photo"][-1]["file_id"]} for message in said.body["result"]]
    clock.pass_by(3)
    assert (await album(client, *again)).status == 200


@pytest.mark.parametrize(
    ("items", "fits"),
    [
        ([], False),
        ([PHOTO], False),
        ([PHOTO, PHOTO], True),
        ([PHOTO] * 10, True),
        ([PHOTO] * 11, False),
        ([PHOTO, VIDEO, PHOTO], True),
        ([DOCUMENT] * 3, True),
        ([AUDIO] * 3, True),
        ([DOCUMENT, AUDIO], False),
        ([PHOTO, DOCUMENT], False),
        ([VIDEO, AUDIO], False),
        ([PHOTO, {"type": "animation", "media": "https://e.org/a.gif"}], False),
        ([PHOTO, {"type": "sticker", "media": "https://e.org/a.webp"}], False),
        ([PHOTO, {"media": "https://e.org/a.png"}], False),
        ([PHOTO, {"type": "photo"}], False),
        ([PHOTO, {"type": "photo", "media": "attach://nothing"}], False),
        ([PHOTO, {"type": "photo", "media": "no-file-of-this-bot"}], False),
        ([PHOTO, {**PHOTO, "caption": "a" * 1024}], True),
        ([PHOTO, {**PHOTO, "caption": "a" * 1025}], False),
        ([PHOTO, {**PHOTO, "caption": "<b>", "parse_mode": "HTML"}], False),
        ([PHOTO, "https://e.org/a.png"], False),
    ],
)
async def test_what_goes_together(client: Any, items: list[Any], fits: bool) -> None:
    said = await album(client, *items)
    assert said.status == (200 if fits else 400), said.body
    assert len(await client.posts("telegram")) == (len(items) if fits else 0)
    assert sum((await client.violations("telegram")).values()) == (0 if fits else 1)


@pytest.mark.parametrize("media", ["{", "{}", "null", "5"])
async def test_what_is_no_list(client: Any, media: str) -> None:
    said = await client.telegram("sendMediaGroup", media=media)
    assert said.body["description"] == "Bad Request: can't parse media JSON object"


async def test_a_refused_album_leaves_none_of_its_files_behind(client: Any) -> None:
    files = {"one": ("1.png", picture()), "two": ("2.png", b"no picture")}
    media = [{"type": "photo", "media": f"attach://{name}"} for name in files]
    said = await client.upload("sendMediaGroup", files, media=json.dumps(media))
    assert said.body["description"] == "Bad Request: IMAGE_PROCESS_FAILED"
    told = await client.admin("GET", "telegram")
    assert told["counters"].get("uploads", 0) == told["counters"].get("accepted", 0) == 0
    assert len(client.sandbox.state.platforms["telegram"].handles) == 0


async def test_an_album_has_no_buttons_and_says_nothing_about_it(client: Any) -> None:
    keyboard = {"inline_keyboard": [[{"text": "Go", "url": "https://e.org"}]]}
    said = await album(client, PHOTO, PHOTO, reply_markup=keyboard)
    assert said.status == 200
    assert not any("reply_markup" in message for message in said.body["result"])
    assert await client.violations("telegram") == {"album_keyboard": 1}


async def test_an_album_counts_as_all_of_its_messages(client: Any, clock: Any) -> None:
    assert (await album(client, *[PHOTO] * 10)).status == 200
    said = await client.telegram("sendMessage", text="a")
    assert said.body["parameters"] == {"retry_after": 8}
    clock.pass_by(8)
    assert (await client.telegram("sendMessage", text="a")).status == 200


async def test_an_album_that_breaks_off_after_it_was_accepted_is_there_once(client: Any) -> None:
    fault = {"kind": "truncated", "method": "sendMediaGroup", "times": 1}
    await client.admin("PUT", "telegram/faults", fault)
    url = f"{client.sandbox.url}/telegram/bot42:TOKEN-of-the-bot/sendMediaGroup"
    body = {"chat_id": "-1001", "media": [PHOTO, PHOTO]}
    async with client.session.post(url, json=body) as answer:
        text = await answer.text()
    with pytest.raises(ValueError, match="delimiter|Unterminated|Expecting"):
        json.loads(text)
    assert len(await client.posts("telegram")) == 2
