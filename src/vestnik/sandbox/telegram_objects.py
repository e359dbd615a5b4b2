"""The Bot API's objects: User, Chat, Message with its text or its file, MessageEntity."""

from __future__ import annotations

import mimetypes
from typing import Any

from vestnik.sandbox.media import Handle
from vestnik.sandbox.richtext import Rich, Span, utf16
from vestnik.sandbox.state import Chat, Post, Token
from vestnik.sandbox.telegram_files import file_id, photo_sizes

_OF_THE_SENDER = {
    "video": ("duration", "width", "height"),
    "animation": ("duration", "width", "height"),
    "audio": ("duration",),
    "document": (),
}


def bot_object(token: Token) -> dict[str, Any]:
    return {"id": token.number, "is_bot": True, "first_name": token.alias, "username": f"{token.alias}_bot"}


def chat_object(chat: Chat) -> dict[str, Any]:
    return {"id": chat.number, "type": chat.kind, "title": chat.title}


def message_object(chat: Chat, token: Token, post: Post) -> dict[str, Any]:
    message = {**_head(chat, token, post), "text": post.rich.text}
    if post.rich.spans:
        message["entities"] = _entities(post.rich)
    if not post.preview:
        message["link_preview_options"] = {"is_disabled": True}
    return message


def media_message_object(
    chat: Chat, token: Token, post: Post, handle: Handle, fields: dict[str, Any]
) -> dict[str, Any]:
    message = {**_head(chat, token, post), **_file(token, handle, fields)}
    if post.rich.text:
        message["caption"] = post.rich.text
    if post.rich.spans:
        message["caption_entities"] = _entities(post.rich)
    if post.media_group_id:
        message["media_group_id"] = post.media_group_id
    return message


def _head(chat: Chat, token: Token, post: Post) -> dict[str, Any]:
    message: dict[str, Any] = {
        "message_id": int(post.message_id),
        "chat": chat_object(chat),
        "date": int(post.at),
    }
    message |= {"sender_chat": chat_object(chat)} if chat.kind == "channel" else {"from": bot_object(token)}
    if post.buttons:
        message["reply_markup"] = {"inline_keyboard": post.buttons}
    if post.thread_id is not None:
        message |= {"message_thread_id": post.thread_id, "is_topic_message": True}
    return message


def _file(token: Token, handle: Handle, fields: dict[str, Any]) -> dict[str, Any]:
    file, kind = handle.file, handle.kind
    if kind == "photo":
        return {"photo": _photo(token, handle)}
    shown: dict[str, Any] = {"file_id": file_id(token, kind, handle.unique), "file_unique_id": handle.unique}
    shown |= {name: _number(fields.get(name)) for name in _OF_THE_SENDER[kind]}
    shown |= {name: str(fields[name]) for name in ("performer", "title") if kind == "audio" and fields.get(name)}
    if file is not None and file.name:
        shown["file_name"] = file.name
        shown["mime_type"] = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    if file is not None and file.size is not None:
        shown["file_size"] = file.size
    return {kind: shown, "document": shown} if kind == "animation" else {kind: shown}


def _photo(token: Token, handle: Handle) -> list[dict[str, Any]]:
    sizes = [
        {"file_id": name, "file_unique_id": f"{handle.unique}{width}", "width": width, "height": height}
        for name, (width, height) in photo_sizes(token, "photo", handle).items()
    ]
    sizes[-1]["file_unique_id"] = handle.unique
    if handle.file is not None and handle.file.size is not None:
        sizes[-1]["file_size"] = handle.file.size
    return sizes


def _number(value: object) -> int:
    return int(str(value)) if str(value).isascii() and str(value).isdigit() else 0


def _entities(rich: Rich) -> list[dict[str, Any]]:
    return [_entity(rich.text, span) for span in rich.spans]


def _entity(text: str, span: Span) -> dict[str, Any]:
    start = utf16(text[: span.start])
    entity: dict[str, Any] = {
        "type": span.kind,
        "offset": start,
        "length": utf16(text[span.start : span.end]),
    }
    extra = {"text_link": "url", "pre": "language", "custom_emoji": "custom_emoji_id"}.get(span.kind)
    return {**entity, extra: span.value} if extra and span.value else entity
