"""The admin API: register tokens and chats, read what was posted, switch faults. JSON, under /admin.

====================================================  ========================================================
GET    /admin                                         everything at a glance
POST   /admin/reset                                   forget everything
GET    /admin/{platform}                              settings, counters, violations, tokens' aliases
PUT    /admin/{platform}/settings                     lenient, chat_rps, token_rps, chat_burst, token_burst,
                                                      group_per_minute, token_ttl_s, upload_ttl_s: null for no limit;
                                                      not_ready: how often each uploaded file is not
PUT    /admin/{platform}/tokens/{alias}               {"token": "…"}
DELETE /admin/{platform}/tokens/{alias}
GET PUT DELETE /admin/{platform}/tokens/{alias}/webhook    {"url", "pending", "error", "error_at"}: where its updates go
GET    /admin/{platform}/chats                        the list
PUT    /admin/{platform}/chats                        many at once: [{"chat_id", "title", "type", "threads", "bot"}]
GET PUT DELETE /admin/{platform}/chats/{chat_id}      {"title", "type", "threads", "bot"}; bot is what the bots are there:
                                                      owner, administrator, silent, member or left
GET DELETE /admin/{platform}/chats/{chat_id}/posts    what was posted, oldest first
GET PUT DELETE /admin/{platform}/faults               of the whole platform: one fault or a list
GET PUT DELETE /admin/{platform}/chats/{chat_id}/faults
====================================================  ========================================================

No answer ever shows a token. Faults are described in ``faults.py``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from aiohttp import web

from vestnik.sandbox.faults import BadFault, Fault, parse_faults
from vestnik.sandbox.site import SiteFull
from vestnik.sandbox.state import PLATFORMS, ROLES, Chat, Full, Hook, Platform, Token
from vestnik.sandbox.strict_json import loads
from vestnik.sandbox.wire import STATE

Handler = Callable[[web.Request], Awaitable[Any]]
_NAME = "|".join(PLATFORMS)
_CHAT = rf"/admin/{{platform:{_NAME}}}/chats/{{chat_id}}"
_PLATFORM = rf"/admin/{{platform:{_NAME}}}"
_KINDS = {
    "telegram": ("channel", "supergroup", "group", "private"),
    "max": ("channel", "chat", "dialog"),
}
_OF_A_CHAT = ("title", "type", "threads", "bot")


class Wrong(Exception):
    """A request that the admin API does not take; the text says why."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def routes() -> list[web.RouteDef]:
    return [
        web.get("/admin", answer_json(_overview)),
        web.post("/admin/reset", answer_json(_reset)),
        web.get(_PLATFORM, answer_json(_show_platform)),
        web.put(f"{_PLATFORM}/settings", answer_json(_put_settings)),
        web.put(f"{_PLATFORM}/tokens/{{alias}}", answer_json(_put_token)),
        web.delete(f"{_PLATFORM}/tokens/{{alias}}", answer_json(_delete_token)),
        web.get(f"{_PLATFORM}/tokens/{{alias}}/webhook", answer_json(_show_hooks)),
        web.put(f"{_PLATFORM}/tokens/{{alias}}/webhook", answer_json(_put_hook)),
        web.delete(f"{_PLATFORM}/tokens/{{alias}}/webhook", answer_json(_delete_hooks)),
        web.get(f"{_PLATFORM}/chats", answer_json(_list_chats)),
        web.put(f"{_PLATFORM}/chats", answer_json(_put_chats)),
        web.get(_CHAT, answer_json(_show_chat)),
        web.put(_CHAT, answer_json(_put_chat)),
        web.delete(_CHAT, answer_json(_delete_chat)),
        web.get(f"{_CHAT}/posts", answer_json(_list_posts)),
        web.delete(f"{_CHAT}/posts", answer_json(_delete_posts)),
        *fault_routes(_PLATFORM, lambda request: _platform(request).faults),
        *fault_routes(_CHAT, lambda request: _chat(request).faults),
    ]


def fault_routes(base: str, book_of: Callable[[web.Request], list[Fault]]) -> list[web.RouteDef]:
    async def listed(request: web.Request) -> Any:
        return [fault.as_json() for fault in book_of(request)]

    async def put(request: web.Request) -> Any:
        given = parse_faults(await read_json(request), request.match_info.get("platform", "site"))
        book_of(request)[:] = given
        return await listed(request)

    async def delete(request: web.Request) -> Any:
        book_of(request).clear()
        return []

    path = f"{base}/faults"
    return [web.get(path, answer_json(listed)), web.put(path, answer_json(put)), web.delete(path, answer_json(delete))]


def answer_json(handler: Handler) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        try:
            return web.json_response(await handler(request))
        except (Wrong, BadFault, Full, SiteFull) as e:
            return web.json_response({"error": str(e)}, status=getattr(e, "status", 400))

    return answer


async def read_json(request: web.Request) -> Any:
    try:
        return await request.json(loads=loads)
    except ValueError:
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
    body = _fields(await read_json(request), "lenient", *names)
    for name, value in body.items():
        _check_setting(name, value)
    platform.lenient = body.pop("lenient", platform.lenient)
    for name, value in body.items():
        setattr(platform.limits, name, value)
    return _describe(platform)


def _check_setting(name: str, value: Any) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    whole = number and isinstance(value, int)
    if name == "lenient":
        if not isinstance(value, bool):
            raise Wrong("lenient is true or false")
    elif name == "not_ready":
        if not whole or value < 0:
            raise Wrong("not_ready is a whole number from 0")
    elif value is not None and not (number and value > 0):
        raise Wrong(f"{name} is a number above 0, or null")
    elif name.endswith("_burst") and not whole:
        raise Wrong(f"{name} is a whole number from 1")


async def _put_token(request: web.Request) -> Any:
    token = _fields(await read_json(request), "token").get("token")
    if not isinstance(token, str) or not token:
        raise Wrong("token is a text")
    alias = _platform(request).add_token(token, request.match_info["alias"]).alias
    return {"alias": alias}


async def _delete_token(request: web.Request) -> Any:
    platform, alias = _platform(request), request.match_info["alias"]
    platform.tokens = {token: entry for token, entry in platform.tokens.items() if entry.alias != alias}
    return {"alias": alias}


def _hooks(request: web.Request) -> Token:
    alias = request.match_info["alias"]
    token = next((each for each in _platform(request).tokens.values() if each.alias == alias), None)
    if token is None:
        raise Wrong(f"there is no token {alias}; PUT {request.path.removesuffix('/webhook')} adds one", 404)
    return token


async def _show_hooks(request: web.Request) -> Any:
    return [asdict(hook) for hook in _hooks(request).hooks.values()]


async def _put_hook(request: web.Request) -> Any:
    """The one address, and what the platform says of it."""
    token, body = _hooks(request), _fields(await read_json(request), "url", "pending", "error", "error_at")
    url, pending, error, at = (body.get(key) for key in ("url", "pending", "error", "error_at"))
    if (
        not isinstance(url, str)
        or not url
        or not isinstance(error, str | None)
        or not isinstance(at, int | float | None)
    ):
        raise Wrong("url and error are texts, error_at is in Unix seconds")
    if not isinstance(pending, int | None):
        raise Wrong("pending is a whole number")
    now = request.app[STATE].clock.time()
    token.hooks.clear()
    token.hooks[url] = Hook(url, now, None, pending or 0, error, (at or now) if error else None)
    return await _show_hooks(request)


async def _delete_hooks(request: web.Request) -> Any:
    _hooks(request).hooks.clear()
    return []


async def _list_chats(request: web.Request) -> Any:
    return [_summary(chat) for chat in _platform(request).chats.values()]


async def _put_chats(request: web.Request) -> Any:
    body = await read_json(request)
    if not isinstance(body, list):
        raise Wrong("the body is a list of chats")
    chats = [_fields(item, "chat_id", *_OF_A_CHAT) for item in body]
    return [_summary(_add(_platform(request), str(chat.pop("chat_id", "")), chat)) for chat in chats]


async def _show_chat(request: web.Request) -> Any:
    return _summary(_chat(request))


async def _put_chat(request: web.Request) -> Any:
    body = _fields(await read_json(request), *_OF_A_CHAT) if request.can_read_body else {}
    return _summary(_add(_platform(request), request.match_info["chat_id"], body))


def _add(platform: Platform, chat_id: str, fields: dict[str, Any]) -> Chat:
    kind, threads = fields.get("type", "channel"), fields.get("threads")
    if not chat_id or kind not in _KINDS[platform.name]:
        raise Wrong(f"a chat has a chat_id, and type is one of {', '.join(_KINDS[platform.name])}")
    if threads is not None and not (isinstance(threads, list) and all(isinstance(t, int) for t in threads)):
        raise Wrong("threads is a list of numbers")
    if fields.get("bot", "owner") not in ROLES:
        raise Wrong(f"bot is one of {', '.join(ROLES)}")
    chat = platform.add_chat(
        chat_id,
        title=str(fields.get("title") or ""),
        kind=kind,
        threads=None if threads is None else frozenset(threads),
    )
    chat.bot = fields.get("bot", chat.bot)
    return chat


async def _delete_chat(request: web.Request) -> Any:
    del _platform(request).chats[_chat(request).chat_id]
    return {"chat_id": request.match_info["chat_id"]}


async def _list_posts(request: web.Request) -> Any:
    return [post.as_json() for post in _chat(request).posts]


async def _delete_posts(request: web.Request) -> Any:
    _chat(request).posts.clear()
    return []


def _summary(chat: Chat) -> dict[str, Any]:
    last = chat.posts[-1] if chat.posts else None
    return {
        "chat_id": chat.chat_id,
        "id": chat.number,
        "title": chat.title,
        "type": chat.kind,
        "threads": None if chat.threads is None else sorted(chat.threads),
        "bot": chat.bot,
        "total": chat.total,
        "kept": len(chat.posts),
        "last_at": last.at if last else None,
        "faults": [fault.as_json() for fault in chat.faults],
    }
