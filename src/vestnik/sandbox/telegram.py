"""The Telegram Bot API, emulated, under /telegram/bot<token>/; files to download under /telegram/file/bot<token>/.

Bodies are JSON or forms, nested objects may be JSON texts, files are parts of a multipart form. The limits are
Telegram's: 4096 UTF-16 units after parsing, 1024 for a caption, one message a second in a chat, 30 a second for a
token; 20 a minute in a group when switched on. Only parse_mode HTML is parsed; texts in Telegram's own Markdown
dialects are kept as they came.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

from vestnik.sandbox.faults import Call
from vestnik.sandbox.state import Platform, Token
from vestnik.sandbox.telegram_account import delete_webhook, get_chat_member, get_webhook_info, set_webhook
from vestnik.sandbox.telegram_files import download, get_file
from vestnik.sandbox.telegram_media import SENDERS, send_media_group
from vestnik.sandbox.telegram_messages import delete_message, get_chat, get_me, send_message
from vestnik.sandbox.telegram_wire import Asked, Refused, TelegramVoice, read_params
from vestnik.sandbox.wire import STATE, play

_VOICE = TelegramVoice()
Method = Callable[[Asked], Any]


def routes() -> list[web.RouteDef]:
    return [
        web.get(r"/telegram/file/bot{token:[^/]*}/{path:.+}", _download),
        web.route("*", r"/telegram/bot{token:[^/]*}/{method}", _call),
    ]


async def _call(request: web.Request) -> web.StreamResponse:
    state = request.app[STATE]
    platform = state.platforms["telegram"]
    platform.counters["requests"] += 1
    try:
        token, method = _token(request, platform), _METHODS.get(request.match_info["method"].lower())
        if method is None:
            raise Refused(404, "Not Found", "unknown_method")
        asked = Asked(state, platform, token, *await read_params(request))
        chat, call = platform.chat(str(asked.params.get("chat_id", ""))), Call(request.match_info["method"])
        return await play(request, platform, chat, _VOICE, call, lambda: _answer(method, asked))
    except Refused as e:
        return _refuse(platform, e)


def _token(request: web.Request, platform: Platform) -> Token:
    token = platform.token(request.match_info["token"])
    if token is None:
        raise Refused(401, "Unauthorized", "bad_token")
    return token


def _answer(method: Method, asked: Asked) -> web.Response:
    try:
        return web.json_response({"ok": True, "result": method(asked)})
    except Refused as e:
        return _refuse(asked.platform, e)


def _refuse(platform: Platform, e: Refused) -> web.Response:
    platform.counters[f"refused.{e.status}"] += 1
    if e.violation:
        platform.violations[e.violation] += 1
    return e.response()


async def _download(request: web.Request) -> web.StreamResponse:
    state = request.app[STATE]
    platform = state.platforms["telegram"]
    platform.counters["requests"] += 1
    try:
        data = download(state, _token(request, platform), request.match_info["path"])
    except Refused as e:
        return _refuse(platform, e)
    answer = web.Response(body=data, content_type="application/octet-stream")
    return await play(request, platform, None, _VOICE, Call("download"), lambda: answer)


_METHODS: dict[str, Method] = {
    "getme": get_me,
    "getchat": get_chat,
    "getchatmember": get_chat_member,
    "getwebhookinfo": get_webhook_info,
    "setwebhook": set_webhook,
    "deletewebhook": delete_webhook,
    "getfile": get_file,
    "sendmessage": send_message,
    "deletemessage": delete_message,
    "sendmediagroup": send_media_group,
    **SENDERS,
}
