"""The MAX Bot API, emulated: /me, /chats/{id}, /subscriptions, /messages, /uploads under /max.

The limits are MAX's: 4000 UTF-16 units of text as it was sent, tags included; the sizes of keyboards and files;
30 requests a second for a token. A retry-after goes into the header, for the body has no place for it.
``disable_link_preview=true`` means no preview.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

from vestnik.sandbox import max_account, max_messages, max_uploads
from vestnik.sandbox.faults import Call
from vestnik.sandbox.max_attachments import names_uploads
from vestnik.sandbox.max_objects import bot_object
from vestnik.sandbox.max_wire import MaxVoice, Refused, refuse
from vestnik.sandbox.state import Platform, Token
from vestnik.sandbox.strict_json import loads
from vestnik.sandbox.wire import STATE, play

Work = Callable[[web.Request, Platform, Token, Any], dict[str, Any]]
_VOICE = MaxVoice()


def routes() -> list[web.RouteDef]:
    return [
        web.get("/max/me", _handler("me", _me)),
        web.get(r"/max/chats/{chat_id:-?\d+}", _handler("chats", _get_chat)),
        web.get(r"/max/chats/{chat_id:-?\d+}/members/me", _handler("chats", max_account.member)),
        web.get("/max/subscriptions", _handler("subscriptions", max_account.listed)),
        web.post("/max/subscriptions", _handler("subscriptions", max_account.subscribe)),
        web.delete("/max/subscriptions", _handler("subscriptions", max_account.unsubscribe)),
        web.get("/max/messages", _handler("messages", max_messages.listed)),
        web.post("/max/messages", _handler("messages", max_messages.send)),
        web.put("/max/messages", _handler("messages", max_messages.change)),
        web.delete("/max/messages", _handler("messages", max_messages.delete)),
        web.get(r"/max/messages/{message_id:[\w.-]+}", _handler("messages", max_messages.get)),
        web.post("/max/uploads", _handler("uploads", max_uploads.open_upload)),
        web.route("*", "/max/{rest:.*}", _handler("", _nothing)),
        *max_uploads.routes(),
    ]


def _handler(name: str, work: Work) -> Callable[[web.Request], Any]:
    async def handle(request: web.Request) -> web.StreamResponse:
        platform = request.app[STATE].platforms["max"]
        platform.counters["requests"] += 1
        try:
            token = _token(request, platform)
            _pace(platform, token, request.app[STATE].clock.monotonic())
            body = await _body(request)
            key = max_messages.key_of(request)
            chat = platform.chat(key) if key else None
            call = Call(name, names_uploads(body))
            return await play(
                request, platform, chat, _VOICE, call, lambda: _answer(work, request, platform, token, body)
            )
        except Refused as e:
            return refuse(platform, e)

    return handle


def _answer(work: Work, request: web.Request, platform: Platform, token: Token, body: Any) -> web.Response:
    try:
        return web.json_response(work(request, platform, token, body))
    except Refused as e:
        return refuse(platform, e)


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
        return await request.json(loads=loads)
    except ValueError:
        raise Refused(400, "Cannot parse the body as JSON", "bad_json") from None


def _me(request: web.Request, platform: Platform, token: Token, body: Any) -> dict[str, Any]:
    return {**bot_object(token), "last_activity_time": max_messages.now_ms(request), "commands": None}


def _get_chat(request: web.Request, platform: Platform, token: Token, body: Any) -> dict[str, Any]:
    chat = max_messages.find_chat(request, platform)
    return {
        "chat_id": chat.number,
        "type": chat.kind,
        "status": "left" if chat.bot == "left" else "active",
        "title": chat.title,
        "last_event_time": max_messages.now_ms(request),
        "participants_count": 1,
        "is_public": False,
        "messages_count": chat.total,
    }


def _nothing(request: web.Request, platform: Platform, token: Token, body: Any) -> dict[str, Any]:
    known = request.match_info["rest"] in ("me", "messages", "uploads", "subscriptions")
    raise Refused(405 if known else 404, None if known else "Path not found", "unknown_method")
