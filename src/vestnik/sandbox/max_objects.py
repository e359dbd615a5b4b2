"""MAX's objects: User, Message and the markup in it."""

from __future__ import annotations

from typing import Any

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


def message_object(chat: Chat, token: Token, post: Post, seq: int) -> dict[str, Any]:
    body: dict[str, Any] = {"mid": post.message_id, "seq": seq, "text": post.rich.text}
    if post.buttons:
        keyboard = {"type": "inline_keyboard", "payload": {"buttons": post.buttons}}
        body["attachments"] = [keyboard]
    if post.rich.spans:
        body["markup"] = [_markup(post.rich.text, span) for span in post.rich.spans if span.kind in _MARKUP]
    message: dict[str, Any] = {
        "recipient": {"chat_id": chat.number, "chat_type": chat.kind},
        "timestamp": int(post.at * 1000),
        "body": body,
    }
    return message if chat.kind == "channel" else {**message, "sender": bot_object(token)}


def _markup(text: str, span: Span) -> dict[str, Any]:
    element: dict[str, Any] = {
        "type": _MARKUP[span.kind],
        "from": utf16(text[: span.start]),
        "length": utf16(text[span.start : span.end]),
    }
    return {**element, "url": span.value} if span.kind == "text_link" else element
