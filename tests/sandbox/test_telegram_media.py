"""Files on Telegram: uploaded, named by file_id, named by address; whose they are, and what is too much."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sandbox_client import CHAT, TOKEN, form_of, picture

from vestnik.sandbox import media, telegram_files

OTHER = "43:TOKEN-of-another-bot"
KINDS = ("photo", "video", "document", "audio", "animation")
WRONG = "Bad Request: wrong file identifier/HTTP URL specified"


def method(kind: str) -> str:
    return f"send{kind.capitalize()}"


def file_id_of(message: dict[str, Any], kind: str) -> str:
    shown = message[kind][-1] if kind == "photo" else message[kind]
    return str(shown["file_id"])


async def counters(client: Any) -> dict[str, int]:
    found: dict[str, int] = (await client.admin("GET", "telegram"))["counters"]
    return found


@pytest.fixture
async def client(client: Any) -> Any:
    """Without the pace of a chat, which is not what is tested."""
    await client.admin("PUT", "telegram/settings", {"chat_rps": None, "token_rps": None})
    return client


@pytest.mark.parametrize("kind", KINDS)
async def test_an_uploaded_file_is_shown_and_may_be_named_again(client: Any, kind: str) -> None:
    data = picture()
    sent = await client.upload(method(kind), {kind: ("one.png", data)}, caption="<b>c</b>", parse_mode="HTML")
    assert sent.status == 200, sent.body
    message = sent.body["result"]
    assert (message["caption"], message["caption_entities"][0]["type"]) == ("c", "bold")
    again = await client.telegram(method(kind), **{kind: file_id_of(message, kind)})
    assert file_id_of(again.body["result"], kind) == file_id_of(message, kind)
    assert {name: (await counters(client)).get(name, 0) for name in ("uploads", "reused")} == {
        "uploads": 1,
        "reused": 1,
    }
    shown = [post["media"][0] for post in await client.posts("telegram")]
    assert [(one["type"], one["size"], one["name"]) for one in shown] == [(kind, len(data), "one.png")] * 2
    assert shown[0]["sha256"] == shown[1]["sha256"]


@pytest.mark.parametrize("kind", KINDS)
async def test_an_address_is_taken_as_it_stands(client: Any, kind: str) -> None:
    said = await client.telegram(method(kind), **{kind: "https://e.org/folder/a.png?x=1"})
    assert said.status == 200
    assert file_id_of(said.body["result"], kind)
    (post,) = await client.posts("telegram")
    assert (post["media"][0]["url"], post["media"][0]["size"]) == ("https://e.org/folder/a.png?x=1", None)
    assert (await counters(client)).get("uploads", 0) == 0


async def test_a_form_may_attach_the_file_under_another_name(client: Any) -> None:
    said = await client.upload("sendDocument", {"f0": ("a.txt", b"abc")}, document="attach://f0")
    document = said.body["result"]["document"]
    assert (document["file_name"], document["mime_type"], document["file_size"]) == ("a.txt", "text/plain", 3)
    said = await client.upload("sendDocument", {"f0": ("a.txt", b"abc")}, document="attach://f1")
    assert said.body["description"] == "Bad Request: can't parse InputMedia: media not found"


async def test_the_same_bytes_have_the_same_name_and_another_for_another_bot(client: Any) -> None:
    await client.admin("PUT", "telegram/tokens/second", {"token": OTHER})
    ours, again, theirs = [
        (await client.upload("sendDocument", {"document": (name, b"abc")}, token)).body["result"]["document"]
        for name, token in (("a.txt", TOKEN), ("b.txt", TOKEN), ("a.txt", OTHER))
    ]
    assert ours["file_id"] == again["file_id"] != theirs["file_id"]
    assert ours["file_unique_id"] == theirs["file_unique_id"]
    told = await counters(client)
    assert (told["uploads"], told.get("reused", 0)) == (3, 0)
    said = await client.telegram("sendDocument", token=OTHER, document=ours["file_id"])
    assert said.body["description"] == WRONG
    assert (await client.telegram("getFile", token=OTHER, file_id=ours["file_id"])).status == 400
    assert await client.violations("telegram") == {"foreign_file_id": 2}


async def test_a_file_id_is_for_its_own_kind(client: Any) -> None:
    message = (await client.upload("sendDocument", {"document": ("a.png", picture())})).body["result"]
    said = await client.telegram("sendPhoto", photo=message["document"]["file_id"])
    assert said.body["description"] == "Bad Request: can't use file of type Document as Photo"


async def test_a_photo_comes_in_sizes_and_each_may_be_named(client: Any) -> None:
    sizes = (await client.upload("sendPhoto", {"photo": ("a.png", picture(1000, 500))})).body["result"]["photo"]
    assert [(size["width"], size["height"]) for size in sizes] == [(90, 45), (320, 160), (800, 400), (1000, 500)]
    for size in sizes:
        again = (await client.telegram("sendPhoto", photo=size["file_id"])).body["result"]["photo"]
        assert again[-1]["file_id"] == sizes[-1]["file_id"]


async def test_what_the_sender_says_of_a_file_comes_back(client: Any) -> None:
    said = {"duration": 7, "performer": "P", "title": "T"}
    audio = (await client.upload("sendAudio", {"audio": ("a.mp3", b"abc")}, **said)).body["result"]["audio"]
    assert {name: audio[name] for name in said} == said
    fields = {"duration": 3, "width": 64, "height": 48}
    message = (await client.upload("sendAnimation", {"animation": ("a.mp4", b"abc")}, **fields)).body["result"]
    assert message["document"] == message["animation"]
    assert {name: message["animation"][name] for name in fields} == fields


@pytest.mark.parametrize(
    ("kind", "value", "description"),
    [
        ("photo", None, "Bad Request: there is no photo in the request"),
        ("photo", "", "Bad Request: there is no photo in the request"),
        ("video", "nothing-that-anybody-uploaded", WRONG),
        ("video", "ftp://e.org/a.mp4", WRONG),
        ("video", "https:///a.mp4", WRONG),
        ("video", "http://[", WRONG),
        ("document", "attach://f0", "Bad Request: can't parse InputMedia: media not found"),
    ],
)
async def test_what_names_no_file(client: Any, kind: str, value: str | None, description: str) -> None:
    said = await client.telegram(method(kind), **{kind: value})
    assert (said.status, said.body["description"]) == (400, description)
    assert await client.posts("telegram") == []


@pytest.mark.parametrize(
    ("data", "description"),
    [
        (b"", "file must be non-empty"),
        (b"no picture at all", "IMAGE_PROCESS_FAILED"),
        (picture()[:40], "IMAGE_PROCESS_FAILED"),
        (picture(9000, 1001), "PHOTO_INVALID_DIMENSIONS"),
        (picture(210, 10), "PHOTO_INVALID_DIMENSIONS"),
    ],
)
async def test_a_photo_that_is_none(client: Any, data: bytes, description: str) -> None:
    said = await client.upload("sendPhoto", {"photo": ("a.png", data)})
    assert (said.status, said.body["description"]) == (400, f"Bad Request: {description}")
    assert await client.posts("telegram") == []


async def test_photos_at_the_limit(client: Any) -> None:
    for size in ((9000, 1000), (200, 10)):
        assert (await client.upload("sendPhoto", {"photo": ("a.png", picture(*size))})).status == 200


async def test_how_large_a_file_may_be(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = (telegram_files.LARGEST_PHOTO, telegram_files.LARGEST_FILE, telegram_files.LARGEST_DOWNLOAD)
    assert limits == (10 * 1024**2, 50 * 1024**2, 20 * 1024**2)
    data = picture(60, 60, "BMP")
    for name, most in (("LARGEST_PHOTO", len(data)), ("LARGEST_FILE", 2 * len(data)), ("LARGEST_DOWNLOAD", len(data))):
        monkeypatch.setattr(telegram_files, name, most)
    assert (await client.upload("sendPhoto", {"photo": ("a.bmp", data)})).status == 200
    said = await client.upload("sendPhoto", {"photo": ("a.bmp", data + b"x")})
    assert (said.status, "is too big for a photo" in said.body["description"]) == (400, True)
    kept = await client.upload("sendDocument", {"document": ("a.bmp", 2 * data)})
    assert kept.status == 200
    assert (await client.upload("sendDocument", {"document": ("a.bmp", 2 * data + b"x")})).status == 413
    said = await client.telegram("getFile", file_id=kept.body["result"]["document"]["file_id"])
    assert said.body["description"] == "Bad Request: file is too big"
    assert await client.violations("telegram") == {"file_too_big": 3}


async def test_a_file_is_downloaded_by_its_own_bot(client: Any) -> None:
    message = (await client.upload("sendDocument", {"document": ("a.txt", b"abc")})).body["result"]
    told = (await client.telegram("getFile", file_id=message["document"]["file_id"])).body["result"]
    assert told["file_size"] == 3
    assert told["file_path"].startswith("documents/")
    assert told["file_path"].endswith(".txt")
    path = f"/telegram/file/bot{TOKEN}/{told['file_path']}"
    async with client.session.get(client.sandbox.url + path) as answer:
        assert (answer.status, await answer.read()) == (200, b"abc")
    await client.admin("PUT", "telegram/tokens/second", {"token": OTHER})
    assert (await client.ask("GET", path.replace(TOKEN, OTHER))).status == 404
    assert (await client.ask("GET", path.replace(TOKEN, "1:X"))).status == 401
    await client.admin("PUT", "telegram/faults", {"kind": "500", "method": "download"})
    assert (await client.ask("GET", path)).status == 500
    assert (await client.telegram("getMe")).status == 200


async def test_a_caption_has_1024_characters_after_parsing(client: Any) -> None:
    address = "https://e.org/a.png"
    for caption in ("<b>" + "a" * 1024 + "</b>", "🌍" * 512):
        said = await client.telegram("sendPhoto", photo=address, caption=caption, parse_mode="HTML")
        assert said.status == 200
    for caption in ("a" * 1025, "🌍" * 513):
        said = await client.telegram("sendPhoto", photo=address, caption=caption)
        assert said.body["description"] == "Bad Request: message caption is too long"
    assert await client.violations("telegram") == {"caption_too_long": 2}


async def test_a_single_file_may_have_buttons_and_a_topic(client: Any) -> None:
    keyboard = {"inline_keyboard": [[{"text": "Go", "url": "https://e.org"}]]}
    said = await client.upload(
        "sendPhoto", {"photo": ("a.png", picture())}, reply_markup=json.dumps(keyboard), message_thread_id=5
    )
    assert said.body["result"]["reply_markup"] == keyboard
    assert said.body["result"]["message_thread_id"] == 5


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"Content-Type": "multipart/form-data"}, b"--x--"),
        ({"Content-Type": "multipart/form-data; boundary=x"}, b"nothing of a form"),
        (
            {"Content-Type": "multipart/form-data; boundary=x"},
            b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\nabc',
        ),
        ({"Content-Type": "multipart/form-data; boundary=x"}, b"--x\r\n\r\nabc\r\n--x--\r\n"),
    ],
)
async def test_a_form_that_is_broken(client: Any, headers: dict[str, str], body: bytes) -> None:
    said = await client.ask("POST", f"/telegram/bot{TOKEN}/sendPhoto", data=body, headers=headers)
    assert (said.status, said.body["ok"]) == (400, False)


async def test_a_form_with_more_files_than_any_album_has(client: Any) -> None:
    form = form_of({f"f{n}": ("a", b"a") for n in range(33)}, chat_id=CHAT)
    said = await client.ask("POST", f"/telegram/bot{TOKEN}/sendMediaGroup", data=form)
    assert said.body["description"] == "Bad Request: too many parts in the form"


async def test_a_form_with_a_longer_text_than_anybody_sends(client: Any) -> None:
    said = await client.upload("sendDocument", {"document": ("a", b"a")}, caption="a" * 1024 * 1024)
    assert said.body["description"] == "Bad Request: the texts of the form are too long"


async def test_only_so_many_files_are_remembered_and_the_oldest_go_first(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(media, "MOST_HANDLES", 2)
    monkeypatch.setattr(media, "MOST_KEPT", 25)
    sent = [await client.upload("sendDocument", {"document": ("a", bytes([n]) * 10)}) for n in range(3)]
    names = [answer.body["result"]["document"]["file_id"] for answer in sent]
    assert [(await client.telegram("sendDocument", document=name)).status for name in names] == [400, 200, 200]
    assert len(client.sandbox.state.platforms["telegram"].handles) == 2
    kept = [post["media"][0]["sha256"] in client.sandbox.state.kept for post in await client.posts("telegram")]
    assert kept == [False, True, True, True, True]
