"""MAX: from a post to the messages that show it. Pure; preview and sending both ask here.

Images and videos go together, up to ten a message; audio and a file are each alone in theirs. Only neighbours
are put together, so the order stays, and more than ten are shared out evenly. What does not fit into one message
goes as a series. An animation goes as an image when it is a GIF, else as a video.

The text goes with the first message, and so do the buttons. MAX knows no captions of items: they are added to
the text of the message that carries the item, in order, each on a line of its own. The text goes first, as
messages of its own and with the buttons, when it is too long together with the captions, and when there are
buttons and the first message is audio or a file, which stand alone.

``format`` is sent exactly when the message has a parse mode. Rows of buttons that are wider than MAX takes
are broken into several, none is dropped. A chat is addressed by its number.

MAX's documents contradict each other about ``disable_link_preview``: one page says that ``false`` means no
preview, another that ``true`` does. Its name, its default (``false``) and the same parameter of POST /answers
say ``true``, and so do we.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vestnik.adapters.classify import refused
from vestnik.adapters.contract import Call, Channel, MediaItem, SendError, SendMeta
from vestnik.adapters.grouping import slots, together
from vestnik.adapters.wording import Wording, check_version, too_long, whole, worded

PLATFORM = "max"
SEND = "POST /messages"
LONGEST_TEXT = 4000
MOST_ATTACHMENTS = 10  # besides the keyboard
ROW = 7
ROW_WITH_LINK = 3
MB = 1024 * 1024
LARGEST = {"image": 50 * MB, "video": 250 * MB, "audio": 256 * MB, "file": 4096 * MB}
IMAGE_SIDE = 7680
_FAMILIES = {"image": "seen", "video": "seen"}


def plan(channel: Channel, media: Sequence[MediaItem], text: str | None, meta: SendMeta) -> list[Call]:
    check_version(PLATFORM, meta)
    params, keyboard = _params(channel, meta), _keyboard(meta)
    if not media:
        return _texts(params, text or "", meta, keyboard)
    items = as_sent(media, meta)
    groups = together([_FAMILIES.get(item.type) for item in items], MOST_ATTACHMENTS)
    text = text if text and text.strip() else None
    alone = bool(keyboard) and items[0].type not in _FAMILIES
    wording = None if alone else _wording(items, groups[0], text, meta)
    calls: list[Call] = []
    if text is not None and wording is None:
        calls, keyboard = _texts(params, text, meta, keyboard), []
    elif alone:
        raise _refused(f"{items[0].type} cannot carry buttons; give the post a text, and they go with that")
    for group in groups:
        with_text = wording or _wording(items, group, None, meta)
        calls.append(_message(params, with_text, _attachments(items, group, meta) + keyboard, group))
        wording, keyboard = None, []
    return calls


def as_sent(media: Sequence[MediaItem], meta: SendMeta) -> list[MediaItem]:
    """The items under the types that they go by."""
    return [_as_sent(item, place, meta.largest) for place, item in enumerate(media)]


def payload(item: MediaItem, meta: SendMeta) -> dict[str, str] | None:
    """What MAX takes as it stands; None: the item has to be uploaded first."""
    if item.type == "image" and item.url and meta.upload_policy.get("image") == "url_allowed":
        if not re.match(r"https?://[^/\s]", item.url):
            raise _refused(f"not an http or https address: {item.url[:200]!r}")
        return {"url": item.url}
    if item.blob_ref or (item.url and not item.attachment_token):
        return None
    if item.attachment_token:
        return {"token": item.attachment_token}
    raise _refused(f"the {item.type} names nothing that MAX can take: neither a stored file nor a token of its own")


def _texts(params: Mapping[str, str], text: str, meta: SendMeta, keyboard: Sequence[Mapping[str, Any]]) -> list[Call]:
    wordings = worded(PLATFORM, text, meta, LONGEST_TEXT)
    calls = [_message(params, wording, ()) for wording in wordings[:-1]]
    return [*calls, _message(params, wordings[-1], keyboard)]


def _message(
    params: Mapping[str, str],
    wording: Wording | None,
    attachments: Sequence[Mapping[str, Any]],
    items: Sequence[int] = (),
) -> Call:
    body: dict[str, Any] = {}
    if wording is not None:
        body["text"], parse_mode = wording
        if parse_mode is not None:
            body["format"] = parse_mode
    if attachments:
        body["attachments"] = list(attachments)
    return Call(SEND, body, tuple(items), body.get("text"), params)


def _wording(items: Sequence[MediaItem], group: Sequence[int], text: str | None, meta: SendMeta) -> Wording | None:
    """The text and the captions of one message. None: there are none, or the text is too long to stand with them."""
    captions = [caption for place in group if (caption := items[place].caption)]
    parts = ([text] if text is not None else []) + captions
    if not parts:
        return None
    # A single newline is no end of a line in Markdown.
    joined = ("\n\n" if meta.parse_mode == "Markdown" else "\n").join(parts)
    fitting = whole(PLATFORM, joined, meta, LONGEST_TEXT)
    if fitting is None and text is None:
        raise too_long(PLATFORM, f"captions from item {group[0] + 1} on are", joined, meta, LONGEST_TEXT)
    return fitting


def _attachments(items: Sequence[MediaItem], group: Sequence[int], meta: SendMeta) -> list[dict[str, Any]]:
    names = slots(items)
    return [
        {"type": items[place].type, "payload": payload(items[place], meta) or {"token": names[place]}}
        for place in group
    ]


def _as_sent(item: MediaItem, place: int, own: Mapping[str, int]) -> MediaItem:
    if item.type == "animation":
        name = (item.file_name or (item.url or "").partition("?")[0]).lower()
        gif = item.content_type == "image/gif" if item.content_type else not name.endswith((".mp4", ".webm", ".mov"))
        item = replace(item, type="image" if gif else "video")
    largest = own.get(item.type, LARGEST[item.type])
    if (item.size_bytes or 0) > largest:
        raise _refused(f"item {place + 1}: {item.type} has at most {largest / MB:g} MB, not {item.size_bytes} bytes")
    if item.type == "image" and item.content_type == "image/webp":
        raise _refused(f"item {place + 1}: MAX shows no WebP pictures; send it as a file")
    if item.type == "image" and max(item.width or 0, item.height or 0) > IMAGE_SIDE:
        raise _refused(
            f"item {place + 1}: an image has at most {IMAGE_SIDE} pixels a side, not {item.width}×{item.height}"
        )
    return item


def chat_of(channel: Channel) -> str:
    if not re.fullmatch(r"-?\d{1,18}", channel.target_id):
        raise refused(PLATFORM, "channel", "bad_target", f"a chat is a number, not {channel.target_id!r}")
    return channel.target_id


def _params(channel: Channel, meta: SendMeta) -> dict[str, str]:
    return {"chat_id": chat_of(channel), "disable_link_preview": "true" if meta.disable_preview else "false"}


def _keyboard(meta: SendMeta) -> list[dict[str, Any]]:
    rows = [part for row in meta.buttons for part in _rows(row)]
    return [{"type": "inline_keyboard", "payload": {"buttons": rows}}] if rows else []


def _rows(row: Sequence[Mapping[str, str]]) -> list[list[dict[str, str]]]:
    buttons = [_button(button) for button in row]
    width = ROW_WITH_LINK if any(button["type"] == "link" for button in buttons) else ROW
    return [buttons[at : at + width] for at in range(0, len(buttons), width)]


def _button(button: Mapping[str, str]) -> dict[str, str]:
    text = button.get("text", "")
    if 0 < len(text) <= 128:
        if 0 < len(button.get("url", "")) <= 2048:
            return {"type": "link", "text": text, "url": button["url"]}
        if 0 < len(button.get("callback", "")) <= 1024:
            return {"type": "callback", "text": text, "payload": button["callback"]}
    raise _refused(f"a button needs text (1–128), and url (≤ 2048) or callback (≤ 1024): {button!r}")


def _refused(reason: str) -> SendError:
    return refused(PLATFORM, "delivery", "validation_failed", reason)
