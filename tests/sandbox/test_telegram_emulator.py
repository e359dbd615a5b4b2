"""The emulated Bot API: its shapes, its words, its limits."""

from __future__ import annotations

import json
from typing import Any

import pytest

TOKEN = "42:TOKEN-of-the-bot"


async def test_a_message(client: Any, clock: Any) -> None:
    said = await client.telegram("sendMessage", text=" <b>a</b> &lt; 🌍<i>b</i>\n", parse_mode="HTML")
    assert said.status == 200
    assert said.body == {
        "ok": True,
        "result": {
            "message_id": 1,
            "chat": {"id": -1001, "type": "channel", "title": "News & co"},
            "sender_chat": {"id": -1001, "type": "channel", "title": "News & co"},
            "date": 1_800_000_000,
            "text": "a < 🌍b",
            "entities": [{"type": "bold", "offset": 0, "length": 1}, {"type": "italic", "offset": 6, "length": 1}],
        },
    }
    (post,) = await client.posts("telegram")
    assert post["text"] == " <b>a</b> &lt; 🌍<i>b</i>\n"
    assert post["visible"] == "a < 🌍b"
    assert post["token"] == "main"
    assert post["at"] == clock.time()


async def test_a_form_with_nested_json(client: Any) -> None:
    form = {
        "chat_id": "-1001",
        "text": "a",
        "reply_markup": json.dumps({"inline_keyboard": [[{"text": "b", "url": "https://e.org"}]]}),
        "link_preview_options": json.dumps({"is_disabled": True}),
        "message_thread_id": "5",
    }
    said = await client.ask("POST", f"/telegram/bot{TOKEN}/sendMessage", data=form)
    assert said.body["result"]["reply_markup"] == {"inline_keyboard": [[{"text": "b", "url": "https://e.org"}]]}
    (post,) = await client.posts("telegram")
    assert (post["preview"], post["thread_id"]) == (False, 5)


async def test_the_other_methods(client: Any, clock: Any) -> None:
    assert (await client.telegram("getMe")).body["result"]["is_bot"] is True
    assert (await client.telegram("getChat")).body["result"]["title"] == "News & co"
    await client.telegram("sendMessage", text="a")
    assert (await client.telegram("deleteMessage", message_id=1)).body == {"ok": True, "result": True}
    again = await client.telegram("deleteMessage", message_id=1)
    assert again.body["description"] == "Bad Request: message to delete not found"
    await client.telegram("sendMessage", text="b")
    clock.pass_by(48 * 3600 + 1)
    late = await client.telegram("deleteMessage", message_id=2)
    assert late.body["description"] == "Bad Request: message can't be deleted"
    assert [post["deleted"] for post in await client.posts("telegram")] == [True, False]


@pytest.mark.parametrize(
    ("params", "description"),
    [
        ({"chat_id": "-5", "text": "a"}, "Bad Request: chat not found"),
        ({"chat_id": "", "text": "a"}, "Bad Request: chat_id is empty"),
        ({"text": " \n"}, "Bad Request: message text is empty"),
        ({"text": "<b></b>", "parse_mode": "HTML"}, "Bad Request: message text is empty"),
        ({}, "Bad Request: message text is empty"),
        ({"text": "a" * 4097}, "Bad Request: message is too long"),
        ({"text": "🌍" * 2049}, "Bad Request: message is too long"),
        ({"text": "a", "parse_mode": "BBCode"}, "Bad Request: unsupported parse_mode"),
        ({"text": "a", "message_thread_id": "x"}, "Bad Request: message thread not found"),
        (
            {"text": "<b>a", "parse_mode": "HTML"},
            "Bad Request: can't parse entities: Can't find end tag corresponding to start tag \"b\"",
        ),
        (
            {"text": "a", "reply_markup": {"inline_keyboard": [[{"text": "b"}]]}},
            "Bad Request: can't parse inline keyboard button: Text buttons are unallowed in the inline keyboard",
        ),
        (
            {"text": "a", "reply_markup": {"inline_keyboard": [[{"url": "https://e.org"}]]}},
            'Bad Request: can\'t parse inline keyboard button: Field "text" must be of type String',
        ),
        (
            {"text": "a", "reply_markup": {"inline_keyboard": [[{"text": "b", "callback_data": "x" * 65}]]}},
            "Bad Request: BUTTON_DATA_INVALID",
        ),
        (
            {"text": "a", "reply_markup": {"inline_keyboard": [[{"text": "b", "url": "nowhere"}]]}},
            "Bad Request: inline keyboard button URL 'nowhere' is invalid: Wrong HTTP URL",
        ),
        (
            {"text": "a", "reply_markup": {"inline_keyboard": [[{"text": "b", "callback_data": "x"}]] * 101}},
            "Bad Request: reply markup is too long",
        ),
    ],
)
async def test_what_it_refuses(client: Any, params: dict[str, Any], description: str) -> None:
    said = await client.telegram("sendMessage", **params)
    assert said.status == 400
    assert said.body == {"ok": False, "error_code": 400, "description": description}
    assert await client.posts("telegram") == []
    assert sum((await client.violations("telegram")).values()) == 1


async def test_the_longest_text_is_counted_after_parsing(client: Any) -> None:
    for text in ("<b>" + "a" * 4096 + "</b>", "🌍" * 2048, "&lt;" * 4096):
        assert (await client.telegram("sendMessage", text=text, parse_mode="HTML")).status == 200


async def test_an_unknown_token_and_an_unknown_method(client: Any) -> None:
    said = await client.telegram("getMe", token="1:X")
    assert (said.status, said.body["description"]) == (401, "Unauthorized")
    said = await client.telegram("sendPigeon")
    assert (said.status, said.body["description"]) == (404, "Not Found")
    broken = {"data": "{", "headers": {"Content-Type": "application/json"}}
    assert (await client.ask("POST", f"/telegram/bot{TOKEN}/sendMessage", **broken)).status == 400


async def test_one_message_a_second_in_a_chat(client: Any, clock: Any) -> None:
    burst = [(await client.telegram("sendMessage", text="a")).status for _ in range(4)]
    assert burst == [200, 200, 200, 429]
    said = await client.telegram("sendMessage", text="a")
    assert said.body == {
        "ok": False,
        "error_code": 429,
        "description": "Too Many Requests: retry after 1",
        "parameters": {"retry_after": 1},
    }
    clock.pass_by(1)
    assert (await client.telegram("sendMessage", text="a")).status == 200
    assert (await client.telegram("sendMessage", text="a")).status == 429
    assert await client.violations("telegram") == {"rate_chat": 3}


async def test_even_sends_at_the_rate_are_never_refused(client: Any, clock: Any) -> None:
    await client.admin("PUT", "telegram/settings", {"chat_burst": 1})
    for _ in range(10):
        assert (await client.telegram("sendMessage", text="a")).status == 200
        clock.pass_by(1)
    assert await client.violations("telegram") == {}


async def test_thirty_messages_a_second_for_a_token(client: Any, clock: Any) -> None:
    await client.admin("PUT", "telegram/chats", [{"chat_id": str(number)} for number in range(40)])
    statuses = [(await client.telegram("sendMessage", text="a", chat_id=number)).status for number in range(40)]
    assert statuses == [200] * 15 + [429] * 25  # the clock stands still: the burst, no more
    clock.pass_by(1)
    statuses = [(await client.telegram("sendMessage", text="a", chat_id=number)).status for number in range(40)]
    assert statuses.count(200) == 15
    assert await client.violations("telegram") == {"rate_token": 50}


async def test_twenty_a_minute_in_a_group_when_switched_on(client: Any, clock: Any) -> None:
    await client.admin("PUT", "telegram/chats/-7", {"type": "supergroup"})
    await client.admin("PUT", "telegram/settings", {"group_per_minute": 20, "chat_rps": None})
    await client.admin("PUT", "telegram/settings", {"token_rps": None})
    for chat, passed in (("-7", 20), ("-1001", 25)):
        sent = [await client.telegram("sendMessage", text="a", chat_id=chat) for _ in range(25)]
        assert [said.status for said in sent].count(200) == passed
    assert await client.violations("telegram") == {"rate_group": 5}


async def test_a_dropped_link_is_counted(client: Any) -> None:
    await client.telegram("sendMessage", text='<a href="/x">a</a> <a href="https://e.org">b</a>', parse_mode="HTML")
    assert await client.violations("telegram") == {"lost_link": 1}
