"""MAX's objects: User, Message with the markup and the files in it."""

from __future__ import annotations

import hashlib
from typing import Any

from vestnik.sandbox.media import Media
from vestnik.sandbox.richtext import Span, utf16
from vestnik.sandbox.state import Chat, Post, Token

_MARKUP = {
    "bold": "strong",
    "italic": "emphasized",
    "code": "monospaced",
    "pre": "monospaced",
    "strikethrough": "strikethrough",
    "underline": "underline",
    "heading": "heading",
    "mark": "highlighted",
    "blockquote": "quote",
    "text_link": "link",
}


def bot_object(token: Token) -> dict[str, Any]:
    return {
        "user_id": token.number,
        "first_name": token.alias,
        "username": f"{token.alias}_bot",
        "is_bot": True,
    }


def message_object(chat: Chat, token: Token, post: Post) -> dict[str, Any]:
    seq = int(post.message_id[-16:], 16)
    body: dict[str, Any] = {"mid": post.message_id, "seq": seq, "text": post.rich.text}
    attachments = [_attachment(media) for media in post.media]
    if post.buttons:
        attachments.append({"type": "inline_keyboard", "payload": {"buttons": post.buttons}})
    if attachments:
        body["attachments"] = attachments
    if post.rich.spans:
        body["markup"] = [_markup(post.rich.text, span) for span in post.rich.spans if span.kind in _MARKUP]
    message: dict[str, Any] = {
        "recipient": {"chat_id": chat.number, "chat_type": chat.kind},
        "timestamp": int(post.at * 1000),
        "body": body,
    }
    return message if chat.kind == "channel" else {**message, "sender": bot_object(token)}


def _attachment(media: Media) -> dict[str, Any]:
    file, token = media.file, media.file_id or ""
    payload: dict[str, Any] = {"url": file.url or f"https://files.example/{file.sha256}", "token": token}
    if media.type == "image":
        payload["photo_id"] = int(hashlib.sha256(f"{token}{file.url}".encode()).hexdigest()[:15], 16)
    shown: dict[str, Any] = {"type": media.type, "payload": payload}
    if media.type == "file":
        shown |= {"filename": file.name, "size": file.size}
    if media.type == "video":
        shown |= {"width": file.width, "height": file.height, "duration": 0}
    return shown


def _markup(text: str, span: Span) -> dict[str, Any]:
    element: dict[str, Any] = {
        "type": _MARKUP[span.kind],
        "from": utf16(text[: span.start]),
        "length": utf16(text[span.start : span.end]),
    }
    return {**element, "url": span.value} if span.kind == "text_link" else element
