"""What hangs on a MAX message: which files go together, when they are ready, what a change leaves."""

from __future__ import annotations

from typing import Any

import pytest
from sandbox_client import TOKEN, picture

KEYBOARD = {
    "type": "inline_keyboard",
    "payload": {"buttons": [[{"type": "link", "text": "a", "url": "https://e.org"}]]},
}
BY_URL = {"type": "image", "payload": {"url": "https://e.org/a.png"}}
HEAD = {"headers": {"Authorization": TOKEN}}
FILE = b"abc"


async def uploaded(client: Any, *kinds: str) -> list[dict[str, Any]]:
    """Attachments, one for each kind; ``keyboard`` is the keyboard, ``url`` a picture by its address."""
    ready = {"keyboard": KEYBOARD, "url": BY_URL}
    return [
        ready.get(kind)
        or {"type": kind, "payload": {"token": await client.max_token(kind, picture() if kind == "image" else FILE)}}
        for kind in kinds
    ]


@pytest.mark.parametrize(
    ("kinds", "fits"),
    [
        (["image"], True),
        (["image", "image", "url"], True),
        (["image", "video"], True),
        (["image", "video", "keyboard"], True),
        (["file", "keyboard"], True),
        (["audio", "keyboard"], True),
        (["file", "file"], False),
        (["audio", "image"], False),
        (["file", "video"], False),
        (["keyboard", "keyboard"], False),
    ],
)
async def test_what_goes_together(client: Any, kinds: list[str], fits: bool) -> None:
    await client.admin("PUT", "max/settings", {"token_rps": None})
    said = await client.max(attachments=await uploaded(client, *kinds))
    assert said.status == (200 if fits else 400), said.body
    assert sum((await client.violations("max")).values()) == (0 if fits else 1)
    if fits:
        files = [kind for kind in kinds if kind != "keyboard"]
        (post,) = await client.posts("max")
        assert [one["type"] for one in post["media"]] == ["image" if kind == "url" else kind for kind in files]


async def test_twelve_attachments_and_no_more(client: Any) -> None:
    assert (await client.max(attachments=[BY_URL] * 12)).status == 200
    said = await client.max(attachments=[BY_URL] * 13)
    assert said.body["message"] == "attachments: size must be between 0 and 12"


async def test_a_message_of_files_alone_needs_no_text(client: Any) -> None:
    body = {"attachments": [BY_URL]}
    assert (await client.ask("POST", "/max/messages?chat_id=-1001", body, **HEAD)).status == 200
    body = {"attachments": []}
    assert (await client.ask("POST", "/max/messages?chat_id=-1001", body, **HEAD)).status == 400


@pytest.mark.parametrize(
    "attachment",
    [
        "image",
        {"type": "sticker", "payload": {"code": "a"}},
        {"type": "image"},
        {"type": "image", "payload": {}},
        {"type": "image", "payload": {"url": "ftp://e.org/a.png"}},
        {"type": "image", "payload": {"url": "https://e.org/a.png", "token": "a"}},
        {"type": "image", "payload": {"photos": {}}},
        {"type": "image", "payload": {"photos": {"a": {}}}},
        {"type": "video", "payload": {"url": "https://e.org/a.mp4"}},
        {"type": "file", "payload": {"token": ""}},
        {"type": "file", "payload": {"token": 5}},
        {"type": "file", "payload": {"token": "nobody-was-given-this"}},
    ],
)
async def test_what_is_no_attachment(client: Any, attachment: Any) -> None:
    said = await client.max(attachments=[attachment])
    assert said.status == 400
    assert await client.posts("max") == []
    assert sum((await client.violations("max")).values()) == 1


async def test_every_file_is_not_ready_as_often_as_is_set(client: Any) -> None:
    await client.admin("PUT", "max/settings", {"not_ready": 2})
    attachments = await uploaded(client, "image", "image")
    said = [await client.max(attachments=attachments) for _ in range(3)]
    assert [answer.status for answer in said] == [400, 400, 200]
    assert said[0].body["code"] == "attachment.not.ready"
    assert (await client.max(attachments=attachments)).status == 200  # ready stays ready
    assert await client.violations("max") == {}


async def test_what_can_never_be_sent_says_so_before_it_says_not_ready(client: Any) -> None:
    await client.admin("PUT", "max/settings", {"not_ready": 1})
    mixed = await uploaded(client, "file", "image")
    assert (await client.max(attachments=mixed)).body["code"] == "proto.payload"
    assert (await client.max(attachments=mixed[:1])).body["code"] == "attachment.not.ready"


async def test_a_fault_says_not_ready_to_messages_with_an_upload_only(client: Any) -> None:
    fault = {"kind": "not_ready", "times": 2, "message": "m"}
    await client.admin("PUT", "max/chats/-1001/faults", fault)
    attachments = await uploaded(client, "file")
    for body in ({}, {"attachments": [BY_URL]}, {"attachments": [KEYBOARD]}):
        assert (await client.max(**body)).status == 200
    said = [await client.max(attachments=attachments) for _ in range(3)]
    assert [answer.status for answer in said] == [400, 400, 200]
    assert said[0].body == {"code": "attachment.not.ready", "message": "m"}


async def test_a_series_breaks_in_its_middle(client: Any) -> None:
    await client.admin("PUT", "max/faults", {"kind": "503", "method": "messages", "after": 2, "times": 1})
    attachments = await uploaded(client, *["file"] * 5)  # uploads are other methods: they do not count
    said = [(await client.max(f"{n}", attachments=[one])).status for n, one in enumerate(attachments)]
    assert said == [200, 200, 503, 200, 200]
    assert [post["text"] for post in await client.posts("max")] == ["0", "1", "3", "4"]


async def test_a_change_keeps_what_it_does_not_name(client: Any) -> None:
    mid = (await client.max("a", attachments=[BY_URL, KEYBOARD])).body["message"]["body"]["mid"]
    path = f"/max/messages?message_id={mid}"
    assert (await client.ask("PUT", path, {"text": "b"}, **HEAD)).body == {"success": True}
    (post,) = await client.posts("max")
    assert (post["text"], len(post["media"]), len(post["buttons"])) == ("b", 1, 1)
    assert (await client.ask("PUT", path, {"attachments": []}, **HEAD)).body == {"success": True}
    shown = (await client.ask("GET", f"/max/messages/{mid}", **HEAD)).body["body"]
    assert (shown["text"], "attachments" in shown) == ("b", False)
    said = await client.ask("PUT", path, {"text": ""}, **HEAD)
    assert (said.status, said.body["message"]) == (400, "Message is empty")
    said = await client.ask("PUT", "/max/messages?message_id=mid.0", {"text": "b"}, **HEAD)
    assert (said.status, said.body["success"]) == (200, False)


async def test_messages_are_listed_newest_first_or_by_their_names(client: Any) -> None:
    mids = [(await client.max(text)).body["message"]["body"]["mid"] for text in "abc"]
    listed = (await client.ask("GET", "/max/messages?chat_id=-1001&count=2", **HEAD)).body["messages"]
    assert [message["body"]["mid"] for message in listed] == [mids[2], mids[1]]
    named = await client.ask("GET", f"/max/messages?message_ids={mids[0]},mid.0,{mids[2]}", **HEAD)
    assert [message["body"]["text"] for message in named.body["messages"]] == ["a", "c"]
    for query in ("chat_id=-1001&count=0", "chat_id=-1001&count=101", "chat_id=-1001&count=x"):
        assert (await client.ask("GET", f"/max/messages?{query}", **HEAD)).status == 400
    assert (await client.ask("GET", "/max/messages/mid.0", **HEAD)).body["code"] == "not.found"
