"""The admin API: what can be set up, what can be read, what it never shows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vestnik.sandbox import state


async def test_a_chat_from_nothing_to_its_posts(client: Any) -> None:
    assert (await client.telegram("sendMessage", text="a", chat_id="@news")).status == 400
    await client.admin("PUT", "telegram/chats/@news", {"title": "N", "type": "supergroup", "threads": [3]})
    assert (await client.telegram("sendMessage", text="a", chat_id="@news", message_thread_id=3)).status == 200
    assert (await client.telegram("sendMessage", text="a", chat_id="@news", message_thread_id=4)).status == 400

    chat = await client.admin("GET", "telegram/chats/@news")
    assert (chat["title"], chat["type"], chat["threads"], chat["total"]) == ("N", "supergroup", [3], 1)
    assert [post["thread_id"] for post in await client.posts("telegram", "@news")] == [3]

    await client.admin("PUT", "telegram/chats/@news", {"title": "M"})
    assert len(await client.posts("telegram", "@news")) == 1  # renaming keeps what was posted
    assert await client.admin("DELETE", "telegram/chats/@news/posts") == []
    await client.admin("DELETE", "telegram/chats/@news")
    assert (await client.ask("GET", "/admin/telegram/chats/@news")).status == 404


async def test_many_chats_at_once(client: Any) -> None:
    made = await client.admin("PUT", "max/chats", [{"chat_id": -n, "title": f"c{n}"} for n in range(1, 41)])
    assert len(made) == 40
    listed = await client.admin("GET", "max/chats")
    assert [chat["chat_id"] for chat in listed][1:3] == ["-1", "-2"]
    assert listed[1]["title"] == "c1"


async def test_tokens_come_and_go_and_are_never_shown(client: Any) -> None:
    secret = "99:VERY-SECRET"
    await client.admin("PUT", "telegram/tokens/second", {"token": secret})
    assert (await client.telegram("sendMessage", text="a", token=secret)).status == 200
    await client.telegram("sendMessage", text="<x>", parse_mode="HTML", token=secret)
    told = [
        await client.admin("GET", path) for path in ("", "telegram", "telegram/chats", "telegram/chats/-1001/posts")
    ]
    told += [(await client.ask("GET", path)).body for path in ("/", "/chats/telegram/-1001")]
    assert "VERY-SECRET" not in json.dumps(told)
    assert (await client.admin("GET", "telegram"))["tokens"] == ["main", "second"]

    await client.admin("PUT", "telegram/tokens/second", {"token": "99:NEW"})
    assert (await client.telegram("getMe", token=secret)).status == 401
    assert (await client.telegram("getMe", token="99:NEW")).status == 200
    await client.admin("DELETE", "telegram/tokens/second")
    assert (await client.telegram("getMe", token="99:NEW")).status == 401


async def test_every_bot_has_a_number_of_its_own(client: Any) -> None:
    await client.admin("PUT", "telegram/tokens/second", {"token": "2:B"})
    await client.admin("DELETE", "telegram/tokens/main")
    await client.admin("PUT", "telegram/tokens/third", {"token": "3:C"})
    numbers = [(await client.telegram("getMe", token=token)).body["result"]["id"] for token in ("2:B", "3:C")]
    assert numbers[0] != numbers[1]


async def test_lenient_takes_any_token_and_any_chat(client: Any) -> None:
    await client.admin("PUT", "telegram/settings", {"lenient": True})
    assert (await client.telegram("sendMessage", text="a", token="5:ANY", chat_id="-77")).status == 200
    assert (await client.max(token="any", chat="-77")).status == 401
    await client.admin("PUT", "max/settings", {"lenient": True})
    assert (await client.max(token="any", chat="-77")).status == 200
    assert (await client.ask("POST", "/max/messages?chat_id=-77", {"text": "a"})).status == 401
    assert (await client.max(token="Bearer any", chat="-77")).status == 401


async def test_only_the_newest_posts_are_kept(client: Any) -> None:
    await client.admin("PUT", "telegram/settings", {"chat_rps": None, "token_rps": None})
    for number in range(25):
        await client.telegram("sendMessage", text=str(number))
    assert [post["text"] for post in await client.posts("telegram")] == [str(number) for number in range(5, 25)]
    assert (await client.admin("GET", "telegram/chats/-1001"))["total"] == 25


async def test_reset_forgets_everything(client: Any) -> None:
    await client.telegram("sendMessage", text="a")
    await client.admin("PUT", "telegram/faults", {"kind": "500"})
    assert (await client.ask("POST", "/admin/reset")).body == {"reset": True}
    overview = await client.admin("GET", "")
    assert overview["telegram"]["chats"] == overview["max"]["chats"] == 0
    assert overview["telegram"]["tokens"] == overview["telegram"]["faults"] == []
    assert overview["telegram"]["counters"] == overview["telegram"]["violations"] == {}
    assert overview["telegram"]["limits"]["chat_rps"] == 1.0


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PUT", "telegram/settings", {"chat_rps": 0}, 400),
        ("PUT", "telegram/settings", {"chat_rps": "1"}, 400),
        ("PUT", "telegram/settings", {"chat_burst": None}, 400),
        ("PUT", "telegram/settings", {"chat_burst": 0.5}, 400),
        ("PUT", "telegram/settings", {"lenient": 1}, 400),
        ("PUT", "telegram/settings", {"unknown": 1}, 400),
        ("PUT", "telegram/settings", [], 400),
        ("PUT", "telegram/tokens/a", {}, 400),
        ("PUT", "telegram/tokens/a", {"token": ""}, 400),
        ("PUT", "telegram/chats/-5", {"type": "dialog"}, 400),
        ("PUT", "max/chats/-5", {"type": "supergroup"}, 400),
        ("PUT", "telegram/chats/-5", {"threads": ["a"]}, 400),
        ("PUT", "telegram/chats/-5", {"name": "a"}, 400),
        ("PUT", "telegram/chats", {"chat_id": "-5"}, 400),
        ("PUT", "telegram/chats", [{"title": "a"}], 400),
        ("GET", "telegram/chats/-5/posts", None, 404),
        ("PUT", "telegram/chats/-5/faults", {"kind": "429"}, 404),
        ("GET", "vk", None, 404),
    ],
)
async def test_what_it_does_not_take(client: Any, method: str, path: str, body: object, status: int) -> None:
    before = await client.admin("GET", "")
    said = await client.ask(method, f"/admin/{path}", body)
    assert said.status == status
    assert await client.admin("GET", "") == before


async def test_a_body_that_is_not_json(client: Any) -> None:
    said = await client.ask("PUT", "/admin/telegram/faults", data="{")
    assert (said.status, said.body) == (400, {"error": "the body is not JSON"})


async def test_memory_is_bounded_in_lenient_mode(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MOST_CHATS", 5)
    monkeypatch.setattr(state, "MOST_TOKENS", 5)
    await client.admin("PUT", "telegram/settings", {"lenient": True, "token_rps": None})
    sent = [await client.telegram("sendMessage", text="a", chat_id=str(-n), token=f"{n}:A") for n in range(9)]
    assert [said.status for said in sent] == [200] * 4 + [401] * 5
    sent = [await client.telegram("sendMessage", text="a", chat_id=str(-n)) for n in range(9)]
    assert [said.status for said in sent] == [200] * 4 + [400] * 5
    full = await client.ask("PUT", "/admin/telegram/chats/-77", {})
    assert (full.status, full.body) == (400, {"error": "the sandbox holds at most 5 chats"})
    long = "<b></b>" * 20_000
    await client.telegram("sendMessage", text=f"{long}a", parse_mode="HTML")
    assert [len(post["text"]) for post in await client.posts("telegram")] == [state.LONGEST_KEPT]
