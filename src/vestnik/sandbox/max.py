"""The MAX Bot API, emulated: /me, /chats/{id}, /messages under /max.

The limits are MAX's: 4000 UTF-16 units of text as it was sent, tags included; the keyboard's sizes; 30
requests a second for a token. A retry-after goes into the header, for the body has no place for it. The
keyboard is the only attachment so far. ``disable_link_preview=true`` means no preview.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from aiohttp import web

from vestnik.sandbox.faults import Fault
from vestnik.sandbox.max_markup import parse_max
from vestnik.sandbox.max_objects import bot_object, message_object
from vestnik.sandbox.richtext import Rich, utf16
from vestnik.sandbox.state import Chat, Platform, Post, Token
from vestnik.sandbox.wire import STATE, play

LONGEST_TEXT = 4000
_WIDE = frozenset({"link", "open_app", "request_geo_location", "request_contact"})
_KINDS = frozenset({*_WIDE, "callback", "message", "clipboard"})
_SAID = {
    400: ("proto.payload", "Invalid request"),
    401: ("verify.token", "Invalid access_token"),
    403: ("chat.denied", "Key: error.dialog.suspended"),
    404: ("not.found", "Chat not found"),
    405: ("method.not.allowed", "Method not allowed"),
    429: ("too.many.requests", "Too many requests"),
    500: ("internal.error", "Internal error"),
    503: ("service.unavailable", "Service unavailable"),
}


class Refused(Exception):
    """A no of the API. ``violation`` names the rule that the caller broke, for the counters."""

    def __init__(
        self,
        status: int,
        message: str | None = None,
        violation: str | None = None,
        *,
        code: str | None = None,
        wait: float | None = None,
    ) -> None:
        usual = _SAID.get(status, ("error", "Error"))
        self.status = status
        self.code = code or usual[0]
        self.message = message or usual[1]
        self.violation = violation
        self.wait = wait
        super().__init__(self.message)

    def response(self) -> web.Response:
        headers = {} if self.wait is None else {"Retry-After": str(math.ceil(self.wait))}
        body = {"code": self.code, "message": self.message}
        return web.json_response(body, status=self.status, headers=headers)


class MaxVoice:
    def error(self, status: int, fault: Fault) -> web.Response:
        return Refused(status, fault.message, code=fault.code, wait=fault.retry_after).response()

    def no(self, fault: Fault) -> web.Response:
        body: dict[str, Any] = {"success": False, "message": fault.message or "Message was not sent"}
        return web.json_response({**body, "code": fault.code} if fault.code else body)


_VOICE = MaxVoice()


def routes() -> list[web.RouteDef]:
    return [
        web.get("/max/me", _handler(_me)),
        web.get(r"/max/chats/{chat_id:-?\d+}", _handler(_get_chat)),
        web.post("/max/messages", _handler(_send)),
        web.delete("/max/messages", _handler(_delete)),
        web.route("*", "/max/{rest:.*}", _handler(_nothing)),
    ]


Call = Callable[[web.Request, Platform, Token, Any], dict[str, Any]]


def _handler(call: Call) -> Callable[[web.Request], Any]:
    async def handle(request: web.Request) -> web.Response:
        platform = request.app[STATE].platforms["max"]
        platform.counters["requests"] += 1
        try:
            token = _token(request, platform)
            _pace(platform, token, request.app[STATE].clock.monotonic())
            body = await _body(request)
            key = _key(request)
            chat = platform.chat(key) if key else None
            return await play(request, platform, chat, _VOICE, lambda: _answer(call, request, platform, token, body))
        except Refused as e:
            return _refuse(platform, e)

    return handle


def _answer(call: Call, request: web.Request, platform: Platform, token: Token, body: Any) -> web.Response:
    try:
        return web.json_response(call(request, platform, token, body))
    except Refused as e:
        return _refuse(platform, e)


def _refuse(platform: Platform, e: Refused) -> web.Response:
    platform.counters[f"refused.{e.status}"] += 1
    if e.violation:
        platform.violations[e.violation] += 1
    return e.response()


def _token(request: web.Request, platform: Platform) -> Token:
    sent = request.headers.get("Authorization", "")
    token = None if " " in sent else platform.token(sent)  # no "Bearer", the token stands alone
    if token is None:
        raise Refused(401, None if sent else "Empty access_token", "bad_token")
    return token


def _pace(platform: Platform, token: Token, now: float) -> None:
    wait = token.pace.wait(now, platform.limits.token_rps, platform.limits.token_burst)
    if wait > 0:
        raise Refused(429, violation="rate_token", wait=wait)
    token.pace.take(now, platform.limits.token_rps)


async def _body(request: web.Request) -> Any:
    if not request.can_read_body:
        return None
    try:
        return await request.json()
    except (ValueError, RecursionError):
        raise Refused(400, "Cannot parse the body as JSON", "bad_json") from None


def _key(request: web.Request) -> str:
    """The chat that a request is about; a dialog may be addressed by its user."""
    query = request.query
    if "user_id" in query:
        return f"user:{query['user_id']}"
    return query.get("chat_id") or request.match_info.get("chat_id", "")


def _chat(request: web.Request, platform: Platform) -> Chat:
    chat = platform.chat(_key(request))
    if chat is None:
        raise Refused(404, f"Chat {_key(request)} not found", "chat_not_found")
    return chat


def _me(request: web.Request, platform: Platform, token: Token, body: Any) -> dict[str, Any]:
    return {**bot_object(token), "last_activity_time": _now(request), "commands": None}


def _get_chat(request: web.Request, platform: Platform, token: Token, body: Any) -> dict[str, Any]:
    chat = _chat(request, platform)
    return {
        "chat_id": chat.number,
        "type": chat.kind,
        "status": "active",
        "title": chat.title,
        "last_event_time": _now(request),
        "participants_count": 1,
        "is_public": False,
        "messages_count": chat.total,
    }


def _nothing(request: web.Request, platform: Platform, token: Token, body: Any) -> dict[str, Any]:
    known = request.match_info["rest"] in ("me", "messages")
    raise Refused(405 if known else 404, None if known else "Path not found", "unknown_method")


def _delete(request: web.Request, platform: Platform, token: Token, body: Any) -> dict[str, Any]:
    mid = request.query.get("message_id", "")
    for chat in platform.chats.values():
        if (post := chat.find(mid)) is not None:
            post.deleted = True
            return {"success": True}
    return {"success": False, "message": f"Message {mid} not found"}


def _send(request: web.Request, platform: Platform, token: Token, body: Any) -> dict[str, Any]:
    if ("chat_id" in request.query) == ("user_id" in request.query):
        raise Refused(400, "Exactly one of chat_id and user_id is needed", "bad_target")
    if not isinstance(body, dict):
        raise Refused(400, "The body must be an object", "bad_json")
    chat = _chat(request, platform)
    if chat.kind == "channel" and body.get("notify") is False:
        raise Refused(400, "errors.send-message.channel-notify", "bad_notify")
    buttons = _keyboard(body.get("attachments") or [])
    rich = _text(body, bool(buttons))
    chat.last_id += 1
    now = _now(request)
    seq = (now << 16) + chat.last_id
    post = Post(
        message_id=f"mid.{chat.number & (1 << 64) - 1:016x}{seq:016x}",
        at=now / 1000,
        token=token.alias,
        text=body.get("text") or "",
        rich=rich,
        parse_mode=body.get("format"),
        buttons=buttons,
        preview=request.query.get("disable_link_preview", "false") != "true",
    )
    platform.accept(chat, post)
    return {"message": message_object(chat, token, post, seq)}


def _text(body: dict[str, Any], has_more: bool) -> Rich:
    text, form = body.get("text"), body.get("format")
    if form not in (None, "markdown", "html"):
        raise Refused(400, f"Unknown format: {form}", "bad_markup")
    if text is not None and not isinstance(text, str):
        raise Refused(400, "Field 'text' must be a string", "bad_json")
    if utf16(text or "") > LONGEST_TEXT:
        raise Refused(400, f"text: size must be between 0 and {LONGEST_TEXT}", "text_too_long")
    rich = parse_max(text or "", form).stripped()
    if not rich.text and not has_more:
        raise Refused(400, "Message is empty", "text_empty")
    return rich


def _keyboard(attachments: Any) -> list[list[dict[str, str]]]:
    rows: list[list[dict[str, str]]] = []
    for attachment in attachments if isinstance(attachments, list) else [None]:
        if not isinstance(attachment, dict) or attachment.get("type") != "inline_keyboard":
            raise Refused(400, "Only inline_keyboard is emulated", "bad_attachment")
        given = (attachment.get("payload") or {}).get("buttons")
        if not isinstance(given, list) or not given or not all(isinstance(row, list) for row in given):
            raise Refused(400, "Field 'buttons' cannot be empty", "bad_keyboard")
        rows += [_row(row) for row in given]
    if len(rows) > 30 or sum(len(row) for row in rows) > 210:
        raise Refused(400, "Keyboard has too many rows or buttons", "bad_keyboard")
    return rows


def _row(row: list[Any]) -> list[dict[str, str]]:
    buttons = [_button(button) for button in row]
    widest = 3 if any(button["type"] in _WIDE for button in buttons) else 7
    if len(buttons) > widest:
        raise Refused(400, f"Too many buttons in a row, at most {widest}", "bad_keyboard")
    return buttons


def _button(button: Any) -> dict[str, str]:
    if not isinstance(button, dict) or button.get("type") not in _KINDS:
        raise Refused(400, "Unknown button type", "bad_keyboard")
    if not 1 <= len(str(button.get("text") or "")) <= 128:
        raise Refused(400, "Button text: size must be between 1 and 128", "bad_keyboard")
    if button["type"] == "link":
        url = str(button.get("url") or "")
        if not url.startswith(("http://", "https://")) or len(url) > 2048:
            raise Refused(400, "Must have only http/https links format in buttons", "bad_keyboard")
    if button["type"] == "callback" and not 1 <= len(str(button.get("payload") or "")) <= 1024:
        raise Refused(400, "Field 'payload' cannot be null", "bad_keyboard")
    return {key: str(button[key]) for key in ("type", "text", "url", "payload") if key in button}


def _now(request: web.Request) -> int:
    return int(request.app[STATE].clock.time() * 1000)
