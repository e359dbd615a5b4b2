"""MAX's answers about a bot: what it is in a chat, and where its updates go."""

from __future__ import annotations

import re
from typing import Any

from aiohttp import web

from vestnik.sandbox.max_messages import find_chat, now_ms
from vestnik.sandbox.max_objects import bot_object
from vestnik.sandbox.max_wire import Refused
from vestnik.sandbox.state import MOST_HOOKS, Hook, Platform, Token

MOST_URL = 2048
_PERMISSIONS = (
    *("read_all_messages", "add_remove_members", "add_admins", "change_chat_info", "pin_message", "edit_link"),
    *("write", "edit", "delete", "view_stats"),
)


def member(request: web.Request, platform: Platform, token: Token, body: Any) -> dict[str, Any]:
    chat = find_chat(request, platform)
    if chat.bot == "left":
        raise Refused(403)
    admin = chat.bot in ("owner", "administrator", "silent")
    shown: dict[str, Any] = {
        **bot_object(token),
        "last_access_time": now_ms(request),
        "is_owner": chat.bot == "owner",
        "is_admin": admin,
        "join_time": now_ms(request),
    }
    if admin:
        shown["permissions"] = [name for name in _PERMISSIONS if name != "write" or chat.bot != "silent"]
    return shown


def listed(request: web.Request, platform: Platform, token: Token, body: Any) -> dict[str, Any]:
    return {"subscriptions": [_shown(hook) for hook in token.hooks.values()]}


def subscribe(request: web.Request, platform: Platform, token: Token, body: Any) -> dict[str, Any]:
    """Beside those that there are: a second address gets everything, too."""
    fields = body if isinstance(body, dict) else {}
    url, secret, types = fields.get("url"), fields.get("secret"), fields.get("update_types")
    if not isinstance(url, str) or len(url) > MOST_URL or not re.fullmatch(r"https://[^\s/:]+(:443)?(/\S*)?", url):
        return {"success": False, "message": "Invalid URL: HTTPS on port 443 is needed"}
    if secret is not None and not (isinstance(secret, str) and re.fullmatch(r"[\w-]{5,256}", secret)):
        raise Refused(400, "secret: must match [a-zA-Z0-9_-]{5,256}", "bad_webhook")
    if types is not None and not (isinstance(types, list) and all(isinstance(each, str) for each in types)):
        raise Refused(400, "update_types: must be a list of names", "bad_webhook")
    if url not in token.hooks and len(token.hooks) >= MOST_HOOKS:
        return {"success": False, "message": "Too many subscriptions"}
    token.hooks[url] = Hook(url, now_ms(request) / 1000, types[:100] if types else None)
    return {"success": True}


def unsubscribe(request: web.Request, platform: Platform, token: Token, body: Any) -> dict[str, Any]:
    if token.hooks.pop(request.query.get("url", ""), None) is None:
        return {"success": False, "message": "There is no such subscription"}
    return {"success": True}


def _shown(hook: Hook) -> dict[str, Any]:
    types = {} if hook.update_types is None else {"update_types": hook.update_types}
    return {"url": hook.url, "time": int(hook.at * 1000), **types}
