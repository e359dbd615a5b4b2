"""Telegram: the shape of a request, and the words that its refusals are judged by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from conformance import TEXT, error_of, verdict
from sandbox_rig import SandboxRig

from vestnik.adapters.contract import Channel, SendMeta


def with_settings(channel: Channel, **settings: Any) -> Channel:
    return replace(channel, settings=settings)


async def test_a_forum_topic(telegram_rig: SandboxRig) -> None:
    rig = telegram_rig
    for thread in (7, "7"):
        await rig.adapter().send_text(with_settings(rig.channel, message_thread_id=thread), TEXT, SendMeta())
    assert [post["thread_id"] for post in rig.posts()] == [7, 7]


async def test_a_topic_that_is_gone(telegram_rig: SandboxRig) -> None:
    rig = telegram_rig
    error = await error_of(rig.adapter(), with_settings(rig.channel, message_thread_id=8))
    assert verdict(error) == ("PERMANENT", "channel", "thread_not_found")


@pytest.mark.parametrize("thread", ["seven", True, -1, 1.5, ""])
async def test_a_topic_that_is_no_number(telegram_rig: SandboxRig, thread: object) -> None:
    rig = telegram_rig
    error = await error_of(rig.adapter(), with_settings(rig.channel, message_thread_id=thread))
    assert verdict(error) == ("PERMANENT", "channel", "bad_settings")
    assert rig.platform.counters["requests"] == 0


async def test_a_channel_by_its_name(telegram_rig: SandboxRig) -> None:
    rig = telegram_rig
    chat = rig.platform.add_chat("@news", title="News")
    sent = await rig.adapter().send_text(replace(rig.channel, target_id="@news"), TEXT, SendMeta())
    assert sent.raw["chat_id"] == chat.number
    assert chat.total == 1


async def test_what_is_kept_for_the_audit(telegram_rig: SandboxRig) -> None:
    rig = telegram_rig
    sent = await rig.adapter().send_text(rig.channel, TEXT, SendMeta())
    assert sent.raw == {"message_id": 1, "chat_id": -1001, "date": int(rig.posts()[0]["at"])}


async def test_callback_data_has_64_bytes(telegram_rig: SandboxRig) -> None:
    rig = telegram_rig
    fits = SendMeta(buttons=[[{"text": "b", "callback": "я" * 32}]])
    await rig.adapter().send_text(rig.channel, TEXT, fits)
    error = await error_of(rig.adapter(), rig.channel, SendMeta(buttons=[[{"text": "b", "callback": "я" * 33}]]))
    assert verdict(error) == ("PERMANENT", "delivery", "validation_failed")
    assert rig.platform.violations.total() == 0


async def test_the_token_goes_nowhere_but_into_the_path(telegram_rig: SandboxRig) -> None:
    rig = telegram_rig
    error = await error_of(rig.adapter(token="1/../2:X?y#z"), rig.channel)
    assert verdict(error) == ("PERMANENT", "channel", "bad_token")
    assert rig.platform.counters["requests"] == 0


@pytest.mark.parametrize(
    ("status", "description", "expected"),
    [
        (400, "Bad Request: message is too long", ("PERMANENT", "delivery", "message_too_long")),
        (400, "Bad Request: MESSAGE_TOO_LONG", ("PERMANENT", "delivery", "message_too_long")),
        (
            400,
            'Bad Request: can\'t parse entities: Unsupported start tag "x"',
            ("PERMANENT", "delivery", "bad_payload"),
        ),
        (400, "Bad Request: message text is empty", ("PERMANENT", "delivery", "bad_payload")),
        (400, "Bad Request: BUTTON_URL_INVALID", ("PERMANENT", "delivery", "bad_payload")),
        (
            400,
            "Bad Request: inline keyboard button URL 'http://x/chat not found' is invalid: Wrong HTTP URL",
            ("PERMANENT", "delivery", "bad_payload"),
        ),
        (400, "Bad Request: something new", ("PERMANENT", "delivery", "400")),
        (400, "Bad Request: chat not found", ("PERMANENT", "channel", "chat_not_found")),
        (400, "Bad Request: PEER_ID_INVALID", ("PERMANENT", "channel", "chat_not_found")),
        (
            400,
            "Bad Request: not enough rights to send text messages to the chat",
            ("PERMANENT", "channel", "no_access"),
        ),
        (400, "Bad Request: have no rights to send a message", ("PERMANENT", "channel", "no_access")),
        (
            400,
            "Bad Request: need administrator rights in the channel chat",
            ("PERMANENT", "channel", "no_access"),
        ),
        (400, "Bad Request: CHAT_WRITE_FORBIDDEN", ("PERMANENT", "channel", "no_access")),
        (400, "Bad Request: TOPIC_CLOSED", ("PERMANENT", "channel", "thread_not_found")),
        (400, "Bad Request: message thread not found", ("PERMANENT", "channel", "thread_not_found")),
        (403, "Forbidden: bot was blocked by the user", ("PERMANENT", "channel", "403")),
        (403, "Forbidden: bot is not a member of the channel chat", ("PERMANENT", "channel", "403")),
        (403, "Forbidden: bot was kicked from the supergroup chat", ("PERMANENT", "channel", "403")),
        (401, "Unauthorized", ("PERMANENT", "channel", "401")),
        (404, "Not Found", ("PERMANENT", "channel", "404")),
        (409, "Conflict: terminated by other getUpdates request", ("TRANSIENT", "delivery", "409")),
        (413, "Request Entity Too Large", ("PERMANENT", "delivery", "413")),
        (429, "Too Many Requests", ("TRANSIENT", "platform", "429")),
        (400, "Bad Request: SLOWMODE_WAIT_30", ("TRANSIENT", "channel", "429")),
        (500, "Internal Server Error", ("TRANSIENT", "platform", "500")),
        (502, "Bad Gateway: chat not found", ("TRANSIENT", "platform", "502")),
    ],
)
async def test_the_words_of_a_refusal(
    telegram_rig: SandboxRig, status: int, description: str, expected: tuple[str, str, str]
) -> None:
    telegram_rig.fault(str(status), message=description)
    error = await error_of(telegram_rig.adapter(), telegram_rig.channel)
    assert verdict(error) == expected
    assert error.raw["description"] == description
    assert error.raw["status"] == status


@pytest.mark.parametrize(
    ("text", "wait", "named"),
    [
        ("Too Many Requests: retry after 35", 35_000, False),
        ("Too Many Requests: SLOWMODE_WAIT_30", 30_000, False),
        ("Too Many Requests", None, False),
        ("Too Many Requests: this bot is limited, retry after 5", 5_000, True),
    ],
)
async def test_a_wait_that_only_the_words_tell(
    telegram_rig: SandboxRig, text: str, wait: int | None, named: bool
) -> None:
    telegram_rig.fault("429", message=text)
    error = await error_of(telegram_rig.adapter(), telegram_rig.channel)
    assert (error.retry_after_ms, error.scope_named) == (wait, named)


async def test_a_group_that_became_a_supergroup(telegram_rig: SandboxRig) -> None:
    from aiohttp import web
    from test_http import answering

    async def moved(request: web.Request) -> web.StreamResponse:
        said = "Bad Request: group chat was upgraded to a supergroup chat"
        body = {
            "ok": False,
            "error_code": 400,
            "description": said,
            "parameters": {"migrate_to_chat_id": -100777},
        }
        return web.json_response(body, status=400)

    async with answering(moved) as url:
        error = await error_of(telegram_rig.adapter(base_url=url), telegram_rig.channel)
    assert verdict(error) == ("PERMANENT", "channel", "chat_migrated")
    assert error.raw["migrate_to_chat_id"] == -100777


async def test_a_gateway_that_gave_up_does_not_know_either(telegram_rig: SandboxRig) -> None:
    telegram_rig.fault("504")
    error = await error_of(telegram_rig.adapter(), telegram_rig.channel)
    assert error.raw["outcome"] == "unknown"
