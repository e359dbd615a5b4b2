"""MAX's messages: send, change, read, delete."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from vestnik.sandbox.max_attachments import Attachments, read_attachments
from vestnik.sandbox.max_markup import parse_max
from vestnik.sandbox.max_objects import message_object
from vestnik.sandbox.max_wire import Refused
from vestnik.sandbox.richtext import Rich, utf16
from vestnik.sandbox.state import Chat, Platform, Post, Token
from vestnik.sandbox.wire import STATE

LONGEST_TEXT = 4000
MOST_LISTED = 100


def send(request: web.Request, platform: Platform, token: Token, body: Any) -> dict[str, Any]:
    if ("chat_id" in request.query) == ("user_id" in request.query):
        raise Refused(400, "Exactly one of chat_id and user_id is needed", "bad_target")
    _check_object(body)
    chat = find_chat(request, platform)
    if not chat.takes_posts:
        raise Refused(403, violation="no_rights")
    if chat.kind == "channel" and body.get("notify") is False:
        raise Refused(400, "errors.send-message.channel-notify", "bad_notify")
    rich = _text(body)
    attached = read_attachments(platform, token, body.get("attachments") or [], now_ms(request) / 1000)
    if not rich.text and not attached.media and not attached.buttons:
        raise Refused(400, "Message is empty", "text_empty")
    chat.last_id += 1
    now = now_ms(request)
    seq = (now << 16) + chat.last_id
    post = Post(
        message_id=f"mid.{chat.number & (1 << 64) - 1:016x}{seq:016x}",
        at=now / 1000,
        token=token.alias,
        text=body.get("text") or "",
        rich=rich,
        parse_mode=body.get("format"),
        buttons=attached.buttons,
        preview=request.query.get("disable_link_preview", "false") != "true",
        media=attached.media,
    )
    _use(platform, attached)
    platform.accept(chat, post)
    return {"message": message_object(chat, token, post)}


def change(request: web.Request, platform: Platform, token: Token, body: Any) -> dict[str, Any]:
    """What is absent or null stays as it is; an empty list of attachments takes them away."""
    _check_object(body)
    mid = request.query.get("message_id", "")
    found = _find(platform, mid)
    if found is None:
        return {"success": False, "message": f"Message {mid} not found"}
    post = found[1]
    rich = post.rich if body.get("text") is None else _text(body)
    attached = Attachments(post.buttons, post.media)
    if body.get("attachments") is not None:
        attached = read_attachments(platform, token, body["attachments"], now_ms(request) / 1000)
    if not rich.text and not attached.media and not attached.buttons:
        raise Refused(400, "Message is empty", "text_empty")
    if body.get("text") is not None:
        post.text, post.parse_mode = body["text"], body.get("format")
    post.rich, post.buttons, post.media = rich, attached.buttons, attached.media
    _use(platform, attached)
    return {"success": True}


def delete(request: web.Request, platform: Platform, token: Token, body: Any) -> dict[str, Any]:
    mid = request.query.get("message_id", "")
    found = _find(platform, mid)
    if found is None:
        return {"success": False, "message": f"Message {mid} not found"}
    found[1].deleted = True
    return {"success": True}


def get(request: web.Request, platform: Platform, token: Token, body: Any) -> dict[str, Any]:
    mid = request.match_info["message_id"]
    found = _find(platform, mid)
    if found is None:
        raise Refused(404, f"Message {mid} not found")
    return message_object(found[0], token, found[1])


def listed(request: web.Request, platform: Platform, token: Token, body: Any) -> dict[str, Any]:
    """The newest first, of a chat or by their ids."""
    count = request.query.get("count", "50")
    if not count.isdecimal() or not 1 <= int(count) <= MOST_LISTED:
        raise Refused(400, f"count: must be between 1 and {MOST_LISTED}", "bad_query")
    if wanted := [mid for mid in request.query.get("message_ids", "").split(",") if mid]:
        found = [pair for mid in wanted[:MOST_LISTED] if (pair := _find(platform, mid)) is not None]
    else:
        chat = find_chat(request, platform)
        found = [(chat, post) for post in reversed(chat.posts) if not post.deleted][: int(count)]
    return {"messages": [message_object(chat, token, post) for chat, post in found]}


def key_of(request: web.Request) -> str:
    """The chat that a request is about; a dialog may be addressed by its user."""
    query = request.query
    if "user_id" in query:
        return f"user:{query['user_id']}"
    return query.get("chat_id") or request.match_info.get("chat_id", "")


def find_chat(request: web.Request, platform: Platform) -> Chat:
    chat = platform.chat(key_of(request))
    if chat is None:
        raise Refused(404, f"Chat {key_of(request)} not found", "chat_not_found")
    return chat


def now_ms(request: web.Request) -> int:
    return int(request.app[STATE].clock.time() * 1000)


def _find(platform: Platform, mid: str) -> tuple[Chat, Post] | None:
    for chat in platform.chats.values():
        if (post := chat.find(mid)) is not None:
            return chat, post
    return None


def _check_object(body: Any) -> None:
    if not isinstance(body, dict):
        raise Refused(400, "The body must be an object", "bad_json")


def _text(body: dict[str, Any]) -> Rich:
    text, form = body.get("text"), body.get("format")
    if form not in (None, "markdown", "html"):
        raise Refused(400, f"Unknown format: {form}", "bad_markup")
    if text is not None and not isinstance(text, str):
        raise Refused(400, "Field 'text' must be a string", "bad_json")
    if utf16(text or "") > LONGEST_TEXT:
        raise Refused(400, f"text: size must be between 0 and {LONGEST_TEXT}", "text_too_long")
    return parse_max(text or "", form).stripped()


def _use(platform: Platform, attached: Attachments) -> None:
    for handle in attached.handles:
        platform.counters["reused"] += handle.uses > 0
        handle.uses += 1
