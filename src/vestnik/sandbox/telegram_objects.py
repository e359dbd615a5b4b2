"""The Bot API's objects: User, Chat, Message, MessageEntity."""

from __future__ import annotations

from typing import Any

from vestnik.sandbox.richtext import Span, utf16
from vestnik.sandbox.state import Chat, Post, Token


def bot_object(token: Token) -> dict[str, Any]:
    return {"id": token.number, "is_bot": True, "first_name": token.alias, "username": f"{token.alias}_bot"}


def chat_object(chat: Chat) -> dict[str, Any]:
    return {"id": chat.number, "type": chat.kind, "title": chat.title}


def message_object(chat: Chat, token: Token, post: Post) -> dict[str, Any]:
    message: dict[str, Any] = {
        "message_id": int(post.message_id),
        "chat": chat_object(chat),
        "date": int(post.at),
        "text": post.rich.text,
    }
    message |= {"sender_chat": chat_object(chat)} if chat.kind == "channel" else {"from": bot_object(token)}
    if post.rich.spans:
        message["entities"] = [_entity(post.rich.text, span) for span in post.rich.spans]
    if post.buttons:
        message["reply_markup"] = {"inline_keyboard": post.buttons}
    if not post.preview:
        message["link_preview_options"] = {"is_disabled": True}
    if post.thread_id is not None:
        message |= {"message_thread_id": post.thread_id, "is_topic_message": True}
    return message


def _entity(text: str, span: Span) -> dict[str, Any]:
    start = utf16(text[: span.start])
    entity: dict[str, Any] = {
        "type": span.kind,
        "offset": start,
        "length": utf16(text[span.start : span.end]),
    }
    extra = {"text_link": "url", "pre": "language", "custom_emoji": "custom_emoji_id"}.get(span.kind)
    return {**entity, extra: span.value} if extra and span.value else entity
