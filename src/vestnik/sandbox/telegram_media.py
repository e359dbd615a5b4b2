"""Telegram's messages with files: one file, or an album of two to ten.

Everything is looked at before anything is kept: an album that is refused leaves nothing behind. The server itself
takes an album of one as a plain message; here it is refused, as the documentation has it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vestnik.sandbox.media import Handle, Media, Stored
from vestnik.sandbox.richtext import Rich, utf16
from vestnik.sandbox.state import Chat, Post
from vestnik.sandbox.strict_json import loads
from vestnik.sandbox.telegram_files import file_id, find_media, keep
from vestnik.sandbox.telegram_keyboard import read_buttons
from vestnik.sandbox.telegram_messages import find_chat, find_thread, read_rich, take_turn
from vestnik.sandbox.telegram_objects import media_message_object
from vestnik.sandbox.telegram_wire import Asked, Refused, read_object

LONGEST_CAPTION = 1024
SMALLEST_ALBUM, LARGEST_ALBUM = 2, 10
_ALONE = ("document", "audio")  # in an album only with their own kind
_ALBUM_KINDS = ("photo", "video", "document", "audio")
_group_ids = itertools.count(13_000_000_000_000_001)


@dataclass(frozen=True, slots=True)
class _Item:
    """One file of a message, looked at and found good."""

    kind: str
    name: str
    handle: Handle
    source: str
    caption: Rich
    fields: dict[str, Any]  # everything else that was said about it


def _send_one(kind: str) -> Callable[[Asked], dict[str, Any]]:
    def send(asked: Asked) -> dict[str, Any]:
        chat = find_chat(asked)
        thread = find_thread(chat, asked.params.get("message_thread_id"))
        item = _look_at(asked, kind, asked.params, asked.params.get(kind), kind)
        buttons = read_buttons(read_object(asked.params.get("reply_markup")))
        take_turn(asked, chat)
        return _post(asked, chat, item, thread, None, buttons)

    return send


SENDERS = {f"send{kind}": _send_one(kind) for kind in (*_ALBUM_KINDS, "animation")}


def send_media_group(asked: Asked) -> list[dict[str, Any]]:
    chat = find_chat(asked)
    thread = find_thread(chat, asked.params.get("message_thread_id"))
    items = [_album_item(asked, item) for item in _album(asked.params.get("media"))]
    for kind in _ALONE:
        if {kind} < {item.kind for item in items}:
            raise Refused(400, f"Bad Request: {kind} can't be mixed with other media types", "mixed_album")
    take_turn(asked, chat, len(items))
    if asked.params.get("reply_markup"):
        asked.platform.violations["album_keyboard"] += 1  # dropped without a word
    group = str(next(_group_ids))
    return [_post(asked, chat, item, thread, group, []) for item in items]


def _album(value: object) -> list[Any]:
    if isinstance(value, str):
        try:
            value = loads(value)
        except ValueError:
            value = None
    if not isinstance(value, list):
        raise Refused(400, "Bad Request: can't parse media JSON object", "bad_json")
    if not value:
        raise Refused(400, "Bad Request: there are no messages to send", "album_size")
    if len(value) > LARGEST_ALBUM:
        raise Refused(400, "Bad Request: too many messages to send as an album", "album_size")
    if len(value) < SMALLEST_ALBUM:
        raise Refused(400, "Bad Request: media group must include 2-10 items", "album_size")
    return value


def _album_item(asked: Asked, item: Any) -> _Item:
    said = "Bad Request: can't parse InputMedia: "
    if not isinstance(item, dict):
        raise Refused(400, said + "expected an Object", "bad_json")
    kind = str(item.get("type", ""))
    if kind == "animation":
        raise Refused(400, said + 'type "animation" can\'t be used in sendMediaGroup', "mixed_album")
    if kind not in _ALBUM_KINDS:
        raise Refused(400, said + f'type "{kind}" is unsupported', "bad_media")
    if not item.get("media"):
        raise Refused(400, said + "media not found", "bad_media")
    return _look_at(asked, kind, item, item["media"])


def _look_at(asked: Asked, kind: str, fields: dict[str, Any], value: object, part: str | None = None) -> _Item:
    source = fields.get("caption")
    caption = read_rich(asked.platform, source, fields.get("parse_mode"))
    if utf16(caption.text) > LONGEST_CAPTION:
        raise Refused(400, "Bad Request: message caption is too long", "caption_too_long")
    name, handle = find_media(asked, kind, value, part)
    return _Item(kind, name, handle, source if isinstance(source, str) else "", caption, fields)


def _post(
    asked: Asked,
    chat: Chat,
    item: _Item,
    thread: int | None,
    group: str | None,
    buttons: list[list[dict[str, str]]],
) -> dict[str, Any]:
    keep(asked, item.kind, item.name, item.handle)
    file = item.handle.file or Stored(None, None, "", "")
    name = file_id(asked.token, item.kind, item.handle.unique)
    chat.last_id += 1
    post = Post(
        message_id=str(chat.last_id),
        at=asked.state.clock.time(),
        token=asked.token.alias,
        text=item.source,
        rich=item.caption,
        parse_mode=item.fields.get("parse_mode") or None,
        buttons=buttons,
        preview=True,
        thread_id=thread,
        media=(Media(item.kind, name, file, item.caption.text or None, group),),
        media_group_id=group,
    )
    asked.platform.accept(chat, post)
    return media_message_object(chat, asked.token, post, item.handle, item.fields)
