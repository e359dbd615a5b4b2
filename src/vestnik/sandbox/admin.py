"""The admin API: register tokens and chats, read what was posted, switch faults. JSON, under /admin.

====================================================  ========================================================
GET    /admin                                         everything at a glance
POST   /admin/reset                                   forget everything
GET    /admin/{platform}                              settings, counters, violations, tokens' aliases
PUT    /admin/{platform}/settings                     lenient, chat_rps, token_rps, chat_burst, token_burst,
                                                      group_per_minute; null for no limit
PUT    /admin/{platform}/tokens/{alias}               {"token": "…"}
DELETE /admin/{platform}/tokens/{alias}
GET    /admin/{platform}/chats                        the list
PUT    /admin/{platform}/chats                        many at once: [{"chat_id", "title", "type", "threads"}]
GET PUT DELETE /admin/{platform}/chats/{chat_id}      {"title", "type", "threads"}
GET DELETE /admin/{platform}/chats/{chat_id}/posts    what was posted, oldest first
GET PUT DELETE /admin/{platform}/faults               of the whole platform: one fault or a list
GET PUT DELETE /admin/{platform}/chats/{chat_id}/faults
====================================================  ========================================================

No answer ever shows a token. Faults are described in ``faults.py``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from vestnik.sandbox.faults import BadFault, Fault, parse_faults
from vestnik.sandbox.state import PLATFORMS, Chat, Full, Platform
from vestnik.sandbox.wire import STATE

Handler = Callable[[web.Request], Awaitable[Any]]
_NAME = "|".join(PLATFORMS)
_CHAT = rf"/admin/{{platform:{_NAME}}}/chats/{{chat_id}}"
_PLATFORM = rf"/admin/{{platform:{_NAME}}}"
_KINDS = {
    "telegram": ("channel", "supergroup", "group", "private"),
    "max": ("channel", "chat", "dialog"),
}


class Wrong(Exception):
    """A request that the admin API does not take; the text says why."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def routes() -> list[web.RouteDef]:
    return [
        web.get("/admin", _json(_overview)),
        web.post("/admin/reset", _json(_reset)),
        web.get(_PLATFORM, _json(_show_platform)),
        web.put(f"{_PLATFORM}/settings", _json(_put_settings)),
        web.put(f"{_PLATFORM}/tokens/{{alias}}", _json(_put_token)),
        web.delete(f"{_PLATFORM}/tokens/{{alias}}", _json(_delete_token)),
        web.get(f"{_PLATFORM}/chats", _json(_list_chats)),
        web.put(f"{_PLATFORM}/chats", _json(_put_chats)),
        web.get(_CHAT, _json(_show_chat)),
        web.put(_CHAT, _json(_put_chat)),
        web.delete(_CHAT, _json(_delete_chat)),
        web.get(f"{_CHAT}/posts", _json(_list_posts)),
        web.delete(f"{_CHAT}/posts", _json(_delete_posts)),
        *(
            route
            for base in (_PLATFORM, _CHAT)
            for route in (
                web.get(f"{base}/faults", _json(_list_faults)),
                web.put(f"{base}/faults", _json(_put_faults)),
                web.delete(f"{base}/faults", _json(_delete_faults)),
            )
        ),
    ]


def _json(handler: Handler) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        try:
            return web.json_response(await handler(request))
        except (Wrong, BadFault, Full) as e:
            return web.json_response({"error": str(e)}, status=getattr(e, "status", 400))

    return answer


async def _body(request: web.Request) -> Any:
    try:
        return await request.json()
    except (ValueError, RecursionError):
        raise Wrong("the body is not JSON") from None


def _fields(body: Any, *known: str) -> dict[str, Any]:
    if not isinstance(body, dict) or set(body) - set(known):
        raise Wrong(f"the body is an object with any of: {', '.join(known)}")
    return body


def _platform(request: web.Request) -> Platform:
    return request.app[STATE].platforms[request.match_info["platform"]]


def _chat(request: web.Request) -> Chat:
    chat_id = request.match_info["chat_id"]
    chat = _platform(request).chats.get(chat_id)
    if chat is None:
        raise Wrong(f"there is no chat {chat_id}; PUT {request.path.removesuffix('/posts')} adds one", 404)
    return chat


def _faults(request: web.Request) -> list[Fault]:
    return _chat(request).faults if "chat_id" in request.match_info else _platform(request).faults


async def _overview(request: web.Request) -> Any:
    return {name: _describe(platform) for name, platform in request.app[STATE].platforms.items()}


async def _reset(request: web.Request) -> Any:
    request.app[STATE].reset()
    return {"reset": True}


async def _show_platform(request: web.Request) -> Any:
    return _describe(_platform(request))


def _describe(platform: Platform) -> dict[str, Any]:
    limits = platform.limits
    return {
        "lenient": platform.lenient,
        "limits": {name: getattr(limits, name) for name in limits.__slots__},
        "tokens": sorted(token.alias for token in platform.tokens.values()),
        "chats": len(platform.chats),
        "counters": dict(platform.counters),
        "violations": {name: count for name, count in platform.violations.items() if count},
        "faults": [fault.as_json() for fault in platform.faults],
    }


async def _put_settings(request: web.Request) -> Any:
    platform = _platform(request)
    names = platform.limits.__slots__
    body = _fields(await _body(request), "lenient", *names)
    for name, value in body.items():
        if name == "lenient":
            if not isinstance(value, bool):
                raise Wrong("lenient is true or false")
        elif isinstance(value, bool) or not (value is None or (isinstance(value, int | float) and value > 0)):
            raise Wrong(f"{name} is a number above 0, or null")
        elif name.endswith("_burst") and (not isinstance(value, int) or value < 1):
            raise Wrong(f"{name} is a whole number from 1")
    platform.lenient = body.pop("lenient", platform.lenient)
    for name, value in body.items():
        setattr(platform.limits, name, value)
    return _describe(platform)


async def _put_token(request: web.Request) -> Any:
    token = _fields(await _body(request), "token").get("token")
    if not isinstance(token, str) or not token:
        raise Wrong("token is a text")
    alias = _platform(request).add_token(token, request.match_info["alias"]).alias
    return {"alias": alias}


async def _delete_token(request: web.Request) -> Any:
    platform, alias = _platform(request), request.match_info["alias"]
    platform.tokens = {token: entry for token, entry in platform.tokens.items() if entry.alias != alias}
    return {"alias": alias}


async def _list_chats(request: web.Request) -> Any:
    return [_summary(chat) for chat in _platform(request).chats.values()]


async def _put_chats(request: web.Request) -> Any:
    body = await _body(request)
    if not isinstance(body, list):
        raise Wrong("the body is a list of chats")
    chats = [_fields(item, "chat_id", "title", "type", "threads") for item in body]
    return [_summary(_add(_platform(request), str(chat.pop("chat_id", "")), chat)) for chat in chats]


async def _show_chat(request: web.Request) -> Any:
    return _summary(_chat(request))


async def _put_chat(request: web.Request) -> Any:
    body = _fields(await _body(request), "title", "type", "threads") if request.can_read_body else {}
    return _summary(_add(_platform(request), request.match_info["chat_id"], body))


def _add(platform: Platform, chat_id: str, fields: dict[str, Any]) -> Chat:
    kind, threads = fields.get("type", "channel"), fields.get("threads")
    if not chat_id or kind not in _KINDS[platform.name]:
        raise Wrong(f"a chat has a chat_id, and type is one of {', '.join(_KINDS[platform.name])}")
    if threads is not None and not (isinstance(threads, list) and all(isinstance(t, int) for t in threads)):
        raise Wrong("threads is a list of numbers")
    return platform.add_chat(
        chat_id,
        title=str(fields.get("title") or ""),
        kind=kind,
        threads=None if threads is None else frozenset(threads),
    )


async def _delete_chat(request: web.Request) -> Any:
    del _platform(request).chats[_chat(request).chat_id]
    return {"chat_id": request.match_info["chat_id"]}


async def _list_posts(request: web.Request) -> Any:
    return [post.as_json() for post in _chat(request).posts]


async def _delete_posts(request: web.Request) -> Any:
    _chat(request).posts.clear()
    return []


async def _list_faults(request: web.Request) -> Any:
    return [fault.as_json() for fault in _faults(request)]


async def _put_faults(request: web.Request) -> Any:
    given = parse_faults(await _body(request))
    book = _faults(request)
    book[:] = given
    return [fault.as_json() for fault in book]


async def _delete_faults(request: web.Request) -> Any:
    _faults(request).clear()
    return []


def _summary(chat: Chat) -> dict[str, Any]:
    last = chat.posts[-1] if chat.posts else None
    return {
        "chat_id": chat.chat_id,
        "id": chat.number,
        "title": chat.title,
        "type": chat.kind,
        "threads": None if chat.threads is None else sorted(chat.threads),
        "total": chat.total,
        "kept": len(chat.posts),
        "last_at": last.at if last else None,
        "faults": [fault.as_json() for fault in chat.faults],
    }
