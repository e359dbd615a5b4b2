"""Telegram's messages of text, and what every message has: a chat, a topic, marked text, a place in the rates."""

from __future__ import annotations

import math
from typing import Any

from vestnik.sandbox.richtext import Rich, utf16
from vestnik.sandbox.state import Chat, Platform, Post
from vestnik.sandbox.telegram_html import EntityError, parse_telegram_html
from vestnik.sandbox.telegram_keyboard import read_buttons
from vestnik.sandbox.telegram_objects import bot_object, chat_object, message_object
from vestnik.sandbox.telegram_wire import Asked, Refused, is_true, read_object

LONGEST_TEXT = 4096
DELETABLE_FOR = 48 * 3600


_NOT_ALLOWED = {
    "left": (403, "Forbidden: bot is not a member of the {} chat"),
    "member": (400, "Bad Request: need administrator rights in the channel chat"),
}


def get_me(asked: Asked) -> dict[str, Any]:
    return {
        **bot_object(asked.token),
        "can_join_groups": True,
        "can_read_all_group_messages": False,
        "supports_inline_queries": False,
    }


def get_chat(asked: Asked) -> dict[str, Any]:
    return {**chat_object(find_chat(asked)), "accent_color_id": 0, "max_reaction_count": 11}


def delete_message(asked: Asked) -> bool:
    post = find_chat(asked).find(str(asked.params.get("message_id", "")))
    if post is None:
        raise Refused(400, "Bad Request: message to delete not found")
    if asked.state.clock.time() - post.at > DELETABLE_FOR:
        raise Refused(400, "Bad Request: message can't be deleted")
    post.deleted = True
    return True


def send_message(asked: Asked) -> dict[str, Any]:
    params, chat = asked.params, find_chat(asked)
    thread = find_thread(chat, params.get("message_thread_id"))
    source = params.get("text")
    rich = _text(asked.platform, source, params.get("parse_mode"))
    buttons = read_buttons(read_object(params.get("reply_markup")))
    take_turn(asked, chat)
    chat.last_id += 1
    preview = read_object(params.get("link_preview_options"))
    post = Post(
        message_id=str(chat.last_id),
        at=asked.state.clock.time(),
        token=asked.token.alias,
        text=str(source),
        rich=rich,
        parse_mode=params.get("parse_mode") or None,
        buttons=buttons,
        preview=not is_true(preview.get("is_disabled")) and not is_true(params.get("disable_web_page_preview")),
        thread_id=thread,
    )
    asked.platform.accept(chat, post)
    return message_object(chat, asked.token, post)


def find_chat(asked: Asked) -> Chat:
    chat_id = str(asked.params.get("chat_id", ""))
    if not chat_id:
        raise Refused(400, "Bad Request: chat_id is empty", "chat_not_found")
    chat = asked.platform.chat(chat_id)
    if chat is None:
        raise Refused(400, "Bad Request: chat not found", "chat_not_found")
    return chat


def not_allowed(chat: Chat) -> Refused:
    status, said = _NOT_ALLOWED.get(chat.bot, (400, "Bad Request: not enough rights to send text messages to the chat"))
    return Refused(status, said.format(chat.kind), "no_rights")


def find_thread(chat: Chat, value: object) -> int | None:
    if value is None or value == "":
        return None
    if not str(value).isdigit() or (chat.threads is not None and int(str(value)) not in chat.threads):
        raise Refused(400, "Bad Request: message thread not found", "thread_not_found")
    return int(str(value))


def _text(platform: Platform, source: object, parse_mode: object) -> Rich:
    rich = read_rich(platform, source, parse_mode)
    if not rich.text:
        raise Refused(400, "Bad Request: message text is empty", "text_empty")
    if utf16(rich.text) > LONGEST_TEXT:
        raise Refused(400, "Bad Request: message is too long", "text_too_long")
    return rich


def read_rich(platform: Platform, source: object, parse_mode: object) -> Rich:
    if parse_mode not in (None, "", "HTML", "Markdown", "MarkdownV2"):
        raise Refused(400, "Bad Request: unsupported parse_mode", "bad_markup")
    text = source if isinstance(source, str) else ""
    try:
        rich = parse_telegram_html(text) if parse_mode == "HTML" else Rich(text)
    except EntityError as e:
        raise Refused(400, f"Bad Request: can't parse entities: {e}", "bad_markup") from None
    platform.violations["lost_link"] += rich.lost_links
    return rich.stripped()


def take_turn(asked: Asked, chat: Chat, messages: int = 1) -> None:
    """A group passes where one message would, and counts as all of its messages afterwards."""
    if not chat.takes_posts:
        raise not_allowed(chat)
    token, limits, now = asked.token, asked.platform.limits, asked.state.clock.monotonic()
    per_minute = limits.group_per_minute if chat.kind in ("group", "supergroup") else None
    a_minute = None if per_minute is None else per_minute / 60
    waits = {
        "rate_chat": chat.pace.wait(now, limits.chat_rps, limits.chat_burst),
        "rate_group": chat.minute.wait(now, a_minute, per_minute or 1),
        "rate_token": token.pace.wait(now, limits.token_rps, limits.token_burst),
    }
    broken, wait = max(waits.items(), key=lambda item: item[1])
    if wait > 0:
        seconds = math.ceil(wait)
        raise Refused(429, f"Too Many Requests: retry after {seconds}", broken, retry_after=seconds)
    chat.pace.take(now, limits.chat_rps, messages)
    chat.minute.take(now, a_minute, messages)
    token.pace.take(now, limits.token_rps, messages)
