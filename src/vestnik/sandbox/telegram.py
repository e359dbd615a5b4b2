"""The Telegram Bot API, emulated: getMe, getChat, sendMessage, deleteMessage under /telegram/bot<token>/.

Bodies are JSON or forms, nested objects may be JSON texts. The limits are Telegram's: 4096 UTF-16 units after
parsing, one message a second in a chat, 30 a second for a token; 20 a minute in a group when switched on.
Only parse_mode HTML is parsed; texts in Telegram's own Markdown dialects are kept as they came.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from aiohttp import web

from vestnik.sandbox.faults import Fault
from vestnik.sandbox.richtext import Rich, utf16
from vestnik.sandbox.state import Chat, Platform, Post, Token
from vestnik.sandbox.telegram_html import EntityError, checked_link, parse_telegram_html
from vestnik.sandbox.telegram_objects import bot_object, chat_object, message_object
from vestnik.sandbox.wire import STATE, play

LONGEST_TEXT = 4096
MOST_BUTTONS = 100
DELETABLE_FOR = 48 * 3600
_OTHER_BUTTONS = frozenset(
    {"web_app", "login_url", "switch_inline_query", "switch_inline_query_current_chat", "copy_text", "pay"}
)
_SAID = {
    400: "Bad Request: chat not found",
    401: "Unauthorized",
    403: "Forbidden: bot is not a member of the channel chat",
    404: "Not Found",
    409: "Conflict: terminated by other getUpdates request",
    413: "Request Entity Too Large",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


class Refused(Exception):
    """A no of the API. ``violation`` names the rule that the caller broke, for the counters."""

    def __init__(self, status: int, description: str, violation: str | None = None, **parameters: Any) -> None:
        super().__init__(description)
        self.status = status
        self.description = description
        self.violation = violation
        self.parameters = parameters

    def response(self) -> web.Response:
        body: dict[str, Any] = {"ok": False, "error_code": self.status, "description": self.description}
        if self.parameters:
            body["parameters"] = self.parameters
        return web.json_response(body, status=self.status)


class TelegramVoice:
    def error(self, status: int, fault: Fault) -> web.Response:
        wait = None if fault.retry_after is None else math.ceil(fault.retry_after)
        text = _SAID.get(status, "Bad Request: something is wrong")
        if status == 429:
            text = "Too Many Requests" if wait is None else f"Too Many Requests: retry after {wait}"
        parameters: dict[str, Any] = {} if wait is None else {"retry_after": wait}
        return Refused(status, fault.message or text, **parameters).response()

    def no(self, fault: Fault) -> web.Response:
        text = fault.message or "Bad Request: message can't be sent"
        return web.json_response({"ok": False, "error_code": 400, "description": text})


_VOICE = TelegramVoice()


def routes() -> list[web.RouteDef]:
    return [web.route("*", r"/telegram/bot{token:[^/]*}/{method}", _call)]


async def _call(request: web.Request) -> web.Response:
    platform = request.app[STATE].platforms["telegram"]
    platform.counters["requests"] += 1
    try:
        token, call = _who_and_what(request, platform)
        params = await _params(request)
        chat = platform.chat(str(params.get("chat_id", "")))
        return await play(request, platform, chat, _VOICE, lambda: _answer(call, request, platform, token, params))
    except Refused as e:
        return _refuse(platform, e)


def _who_and_what(request: web.Request, platform: Platform) -> tuple[Token, Method]:
    token = platform.token(request.match_info["token"])
    if token is None:
        raise Refused(401, "Unauthorized", "bad_token")
    call = _METHODS.get(request.match_info["method"].lower())
    if call is None:
        raise Refused(404, "Not Found", "unknown_method")
    return token, call


def _answer(
    call: Method, request: web.Request, platform: Platform, token: Token, params: dict[str, Any]
) -> web.Response:
    try:
        return web.json_response({"ok": True, "result": call(request, platform, token, params)})
    except Refused as e:
        return _refuse(platform, e)


def _refuse(platform: Platform, e: Refused) -> web.Response:
    platform.counters[f"refused.{e.status}"] += 1
    if e.violation:
        platform.violations[e.violation] += 1
    return e.response()


async def _params(request: web.Request) -> dict[str, Any]:
    params: dict[str, Any] = dict(request.query)
    if request.content_type == "application/json":
        try:
            body = await request.json()
        except (ValueError, RecursionError):
            raise Refused(400, "Bad Request: can't parse JSON object", "bad_json") from None
        params.update(body if isinstance(body, dict) else {})
    elif request.can_read_body:
        params.update(await request.post())
    return params


def _chat(platform: Platform, params: dict[str, Any]) -> Chat:
    chat_id = str(params.get("chat_id", ""))
    if not chat_id:
        raise Refused(400, "Bad Request: chat_id is empty", "chat_not_found")
    chat = platform.chat(chat_id)
    if chat is None:
        raise Refused(400, "Bad Request: chat not found", "chat_not_found")
    return chat


def _get_me(request: web.Request, platform: Platform, token: Token, params: dict[str, Any]) -> dict[str, Any]:
    return {
        **bot_object(token),
        "can_join_groups": True,
        "can_read_all_group_messages": False,
        "supports_inline_queries": False,
    }


def _get_chat(request: web.Request, platform: Platform, token: Token, params: dict[str, Any]) -> dict[str, Any]:
    return {**chat_object(_chat(platform, params)), "accent_color_id": 0, "max_reaction_count": 11}


def _delete_message(request: web.Request, platform: Platform, token: Token, params: dict[str, Any]) -> bool:
    post = _chat(platform, params).find(str(params.get("message_id", "")))
    if post is None:
        raise Refused(400, "Bad Request: message to delete not found")
    if request.app[STATE].clock.time() - post.at > DELETABLE_FOR:
        raise Refused(400, "Bad Request: message can't be deleted")
    post.deleted = True
    return True


def _send_message(request: web.Request, platform: Platform, token: Token, params: dict[str, Any]) -> dict[str, Any]:
    chat = _chat(platform, params)
    thread = _thread(chat, params.get("message_thread_id"))
    source = params.get("text")
    rich = _text(platform, source if isinstance(source, str) else "", params.get("parse_mode"))
    buttons = _buttons(_object(params.get("reply_markup")))
    _pace(platform, chat, token, request.app[STATE].clock.monotonic())
    chat.last_id += 1
    preview = _object(params.get("link_preview_options"))
    post = Post(
        message_id=str(chat.last_id),
        at=request.app[STATE].clock.time(),
        token=token.alias,
        text=str(source),
        rich=rich,
        parse_mode=params.get("parse_mode") or None,
        buttons=buttons,
        preview=not _true(preview.get("is_disabled")) and not _true(params.get("disable_web_page_preview")),
        thread_id=thread,
    )
    platform.accept(chat, post)
    return message_object(chat, token, post)


def _text(platform: Platform, source: str, parse_mode: object) -> Rich:
    if parse_mode not in (None, "", "HTML", "Markdown", "MarkdownV2"):
        raise Refused(400, "Bad Request: unsupported parse_mode", "bad_markup")
    try:
        rich = parse_telegram_html(source) if parse_mode == "HTML" else Rich(source)
    except EntityError as e:
        raise Refused(400, f"Bad Request: can't parse entities: {e}", "bad_markup") from None
    rich = rich.stripped()
    if not rich.text:
        raise Refused(400, "Bad Request: message text is empty", "text_empty")
    if utf16(rich.text) > LONGEST_TEXT:
        raise Refused(400, "Bad Request: message is too long", "text_too_long")
    platform.violations["lost_link"] += rich.lost_links
    return rich


def _thread(chat: Chat, value: object) -> int | None:
    if value is None or value == "":
        return None
    if not str(value).isdigit() or (chat.threads is not None and int(str(value)) not in chat.threads):
        raise Refused(400, "Bad Request: message thread not found", "thread_not_found")
    return int(str(value))


def _buttons(markup: dict[str, Any]) -> list[list[dict[str, str]]]:
    rows = markup.get("inline_keyboard") or []
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise Refused(400, "Bad Request: can't parse inline keyboard: must be an Array of Arrays", "bad_keyboard")
    if sum(len(row) for row in rows) > MOST_BUTTONS:
        raise Refused(400, "Bad Request: reply markup is too long", "bad_keyboard")
    return [[_button(button) for button in row] for row in rows]


def _button(button: Any) -> dict[str, str]:
    said = "Bad Request: can't parse inline keyboard button: "
    if not isinstance(button, dict) or not isinstance(button.get("text"), str) or not button["text"]:
        raise Refused(400, said + 'Field "text" must be of type String', "bad_keyboard")
    if "callback_data" in button:
        if not 1 <= len(str(button["callback_data"]).encode()) <= 64:
            raise Refused(400, "Bad Request: BUTTON_DATA_INVALID", "bad_keyboard")
    elif "url" in button:
        if not checked_link(str(button["url"])):
            wrong = f"inline keyboard button URL '{button['url']}' is invalid: Wrong HTTP URL"
            raise Refused(400, f"Bad Request: {wrong}", "bad_keyboard")
    elif not _OTHER_BUTTONS & set(button):
        raise Refused(400, said + "Text buttons are unallowed in the inline keyboard", "bad_keyboard")
    return {key: str(button[key]) for key in ("text", "url", "callback_data") if key in button}


def _pace(platform: Platform, chat: Chat, token: Token, now: float) -> None:
    limits = platform.limits
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
    chat.pace.take(now, limits.chat_rps)
    chat.minute.take(now, a_minute)
    token.pace.take(now, limits.token_rps)


def _object(value: Any) -> dict[str, Any]:
    """A nested object, which a form carries as a JSON text."""
    if isinstance(value, str) and value:
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise Refused(400, "Bad Request: object expected as reply markup", "bad_json") from None
    return value if isinstance(value, dict) else {}


def _true(value: object) -> bool:
    return value is True or str(value).lower() in ("true", "1")


Method = Callable[[web.Request, Platform, Token, dict[str, Any]], Any]
_METHODS: dict[str, Method] = {
    "getme": _get_me,
    "getchat": _get_chat,
    "sendmessage": _send_message,
    "deletemessage": _delete_message,
}
