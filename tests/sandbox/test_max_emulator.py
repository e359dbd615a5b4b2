"""The emulated MAX API: its shapes, its words, its limits."""

from __future__ import annotations

from typing import Any

import pytest

TOKEN = "42:TOKEN-of-the-bot"


async def test_a_message(client: Any, clock: Any) -> None:
    said = await client.max("**a** 🌍 ++b++", format="markdown", query="&disable_link_preview=true")
    message = said.body["message"]
    assert said.status == 200
    assert message["recipient"] == {"chat_id": -1001, "chat_type": "channel"}
    assert message["timestamp"] == 1_800_000_000_000
    assert message["body"]["text"] == "a 🌍 b"
    assert message["body"]["mid"].startswith("mid.")
    assert message["body"]["seq"] > 2**53
    assert message["body"]["markup"] == [
        {"type": "strong", "from": 0, "length": 1},
        {"type": "underline", "from": 5, "length": 1},
    ]
    assert "sender" not in message  # a channel speaks for itself
    (post,) = await client.posts("max")
    assert post["message_id"] == message["body"]["mid"]
    assert (post["parse_mode"], post["preview"], post["visible"]) == ("markdown", False, "a 🌍 b")


async def test_tags_outside_the_subset_are_stripped(client: Any) -> None:
    said = await client.max("<h1>a</h1><h2>b</h2><script>c</script> <a href='https://e.org'>d</a>", format="html")
    assert said.body["message"]["body"]["text"] == "abc d"
    assert said.body["message"]["body"]["markup"] == [
        {"type": "heading", "from": 0, "length": 1},
        {"type": "link", "from": 4, "length": 1, "url": "https://e.org"},
    ]


async def test_the_other_calls(client: Any) -> None:
    head = {"headers": {"Authorization": TOKEN}}
    assert (await client.ask("GET", "/max/me", **head)).body["is_bot"] is True
    assert (await client.ask("GET", "/max/chats/-1001", **head)).body["title"] == "News & co"
    mid = (await client.max("a")).body["message"]["body"]["mid"]
    gone = await client.ask("DELETE", f"/max/messages?message_id={mid}", **head)
    assert gone.body == {"success": True}
    again = await client.ask("DELETE", f"/max/messages?message_id={mid}", **head)
    assert (again.status, again.body["success"]) == (200, False)
    assert (await client.ask("GET", "/max/chats/-5", **head)).body["code"] == "not.found"
    assert (await client.ask("PATCH", "/max/messages", **head)).status == 405
    assert (await client.ask("GET", "/max/nothing", **head)).status == 404


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({}, "Empty access_token"),
        ({"Authorization": "nobody"}, "Invalid access_token"),
        ({"Authorization": f"Bearer {TOKEN}"}, "Invalid access_token"),
    ],
)
async def test_the_token_stands_alone_in_its_header(client: Any, headers: dict[str, str], message: str) -> None:
    said = await client.ask("POST", f"/max/messages?chat_id=-1001&access_token={TOKEN}", {"text": "a"}, headers=headers)
    assert (said.status, said.body) == (401, {"code": "verify.token", "message": message})


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("chat_id=-5", {"text": "a"}, 404, "not.found"),
        ("", {"text": "a"}, 400, "proto.payload"),
        ("chat_id=-1001&user_id=5", {"text": "a"}, 400, "proto.payload"),
        ("chat_id=-1001", ["a"], 400, "proto.payload"),
        ("chat_id=-1001", {"text": 5}, 400, "proto.payload"),
        ("chat_id=-1001", {"text": ""}, 400, "proto.payload"),
        ("chat_id=-1001", {}, 400, "proto.payload"),
        ("chat_id=-1001", {"text": "a" * 4001}, 400, "proto.payload"),
        ("chat_id=-1001", {"text": "<b>" + "a" * 3994 + "</b>", "format": "html"}, 400, "proto.payload"),
        ("chat_id=-1001", {"text": "🌍" * 2001}, 400, "proto.payload"),
        ("chat_id=-1001", {"text": "a", "format": "HTML"}, 400, "proto.payload"),
        ("chat_id=-1001", {"text": "a", "notify": False}, 400, "proto.payload"),
        ("chat_id=-1001", {"text": "a", "attachments": [{"type": "image"}]}, 400, "proto.payload"),
    ],
)
async def test_what_it_refuses(client: Any, path: str, body: object, status: int, code: str) -> None:
    said = await client.ask("POST", f"/max/messages?{path}", body, headers={"Authorization": TOKEN})
    assert (said.status, said.body["code"]) == (status, code)
    assert await client.posts("max") == []
    assert sum((await client.violations("max")).values()) == 1


def keyboard(*rows: list[dict[str, str]]) -> list[dict[str, Any]]:
    return [{"type": "inline_keyboard", "payload": {"buttons": list(rows)}}]


LINK = {"type": "link", "text": "a", "url": "https://e.org"}
CALL = {"type": "callback", "text": "a", "payload": "x"}


@pytest.mark.parametrize(
    ("rows", "fits"),
    [
        ([[LINK] * 3, [CALL] * 7], True),
        ([[LINK] * 4], False),
        ([[LINK, CALL, CALL, CALL]], False),
        ([[CALL] * 8], False),
        ([[CALL]] * 30, True),
        ([[CALL]] * 31, False),
        ([[CALL] * 7] * 30, True),
        ([], False),
        ([[{**LINK, "url": "tg://x"}]], False),
        ([[{**LINK, "text": "a" * 129}]], False),
        ([[{**CALL, "payload": ""}]], False),
        ([[{**CALL, "payload": "x" * 1025}]], False),
        ([[{"text": "a"}]], False),
    ],
)
async def test_the_size_of_a_keyboard(client: Any, rows: list[list[dict[str, str]]], fits: bool) -> None:
    said = await client.max("a", attachments=keyboard(*rows))
    assert said.status == (200 if fits else 400)
    assert (await client.violations("max")).get("bad_keyboard", 0) == (0 if fits else 1)


async def test_thirty_requests_a_second_for_a_token(client: Any, clock: Any) -> None:
    statuses = [(await client.max()).status for _ in range(20)]
    assert statuses == [200] * 15 + [429] * 5
    said = await client.max()
    assert (said.body["code"], said.headers["Retry-After"]) == ("too.many.requests", "1")
    clock.pass_by(1 / 30)
    assert [(await client.max()).status for _ in range(2)] == [200, 429]
    assert await client.violations("max") == {"rate_token": 7}


async def test_a_dialog_by_its_user(client: Any) -> None:
    await client.admin("PUT", "max/chats/user:5", {"type": "dialog"})
    said = await client.ask("POST", "/max/messages?user_id=5", {"text": "a"}, headers={"Authorization": TOKEN})
    assert said.body["message"]["sender"]["is_bot"] is True
    assert len(await client.posts("max", "user:5")) == 1
