"""Telegram: from a post to the calls that show it. Pure; preview and sending both ask here.

Without media it is sendMessage, several for a long text that is split. An image goes by sendPhoto, a video by
sendVideo, a file by sendDocument, audio by sendAudio, an animation by sendAnimation. Two or more are albums
(sendMediaGroup, 2-10 items): images and videos mix, files go with files, audio with audio, an animation alone.
Only neighbours are put together, so the order stays; more than ten are shared out evenly.

The text is the caption of the first call, on its first item, when it has at most 1024 characters after its
markup is read, no item of that call has a caption of its own, and there are no buttons over an album, which
cannot carry them. In every other case it goes first, as messages of its own, and the buttons with the last of
these. An item's own caption stays on it. An album with buttons and without a text is refused.

A picture that is no photo to Telegram (HEIC or TIFF, over 10 MB, or too large or too narrow in pixels) is refused,
or sent as a file where the channel's setting ``large_image`` is ``document``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vestnik.adapters.classify import refused
from vestnik.adapters.contract import Call, Channel, MediaItem, SendError, SendMeta
from vestnik.adapters.grouping import slots, together
from vestnik.adapters.wording import Wording, captioned, check_version, whole, worded

PLATFORM = "telegram"
LONGEST_TEXT = 4096
LONGEST_CAPTION = 1024
CALLBACK_BYTES = 64
MOST_IN_ALBUM = 10
MB = 1024 * 1024
LARGEST_PHOTO = 10 * MB
LARGEST_FILE = 50 * MB
PHOTO_SIDES = 10_000  # width and height together
PHOTO_RATIO = 20
NO_PHOTOS = ("image/heic", "image/tiff")
METHODS = {
    "image": ("sendPhoto", "photo"),
    "video": ("sendVideo", "video"),
    "file": ("sendDocument", "document"),
    "audio": ("sendAudio", "audio"),
    "animation": ("sendAnimation", "animation"),
}
_FAMILIES = {"image": "seen", "video": "seen", "file": "file", "audio": "audio"}


def plan(channel: Channel, media: Sequence[MediaItem], text: str | None, meta: SendMeta) -> list[Call]:
    check_version(PLATFORM, meta)
    target, keyboard = _target(channel), _keyboard(meta)
    if not media:
        return _texts(target, text or "", meta, keyboard)
    items = as_sent(channel, media, meta)
    groups = together([_FAMILIES.get(item.type) for item in items], MOST_IN_ALBUM)
    text = text if text and text.strip() else None
    caption = _caption(text, [items[place] for place in groups[0]], meta)
    calls: list[Call] = []
    if text is not None and caption is None:
        calls, keyboard = _texts(target, text, meta, keyboard), {}
    elif keyboard and len(groups[0]) > 1:
        raise _refused("an album cannot carry buttons; give the post a text, and they go with that")
    for group in groups:
        calls.append(_shown(target, items, group, meta, caption, keyboard))
        caption, keyboard = None, {}
    return calls


def as_sent(channel: Channel, media: Sequence[MediaItem], meta: SendMeta) -> list[MediaItem]:
    """The items under the types that they go by."""
    return [_as_sent(channel, item, place, meta.largest) for place, item in enumerate(media)]


def reference(item: MediaItem, meta: SendMeta) -> str | None:
    """What Telegram takes as it stands; None: the item has to be resolved first."""
    if item.url and meta.upload_policy.get(item.type) == "url_allowed":
        if not re.match(r"https?://[^/\s]", item.url):
            raise _refused(f"not an http or https address: {item.url[:200]!r}")
        return item.url
    if item.blob_ref or (item.url and not item.file_id):
        return None
    # A server of one's own would read "file:///…" from its disk.
    if item.file_id and re.fullmatch(r"[A-Za-z0-9_-]+", item.file_id):
        return item.file_id
    raise _refused(
        f"the {item.type} names nothing that Telegram can take: neither a stored file nor a file_id of its own"
    )


def _texts(target: Mapping[str, Any], text: str, meta: SendMeta, keyboard: Mapping[str, Any]) -> list[Call]:
    preview = {"link_preview_options": {"is_disabled": True}} if meta.disable_preview else {}
    wordings = worded(PLATFORM, text, meta, LONGEST_TEXT)
    bodies = [{**target, **_wording("text", wording), **preview} for wording in wordings]
    bodies[-1].update(keyboard)
    return [Call("sendMessage", body, text=body["text"]) for body in bodies]


def _caption(text: str | None, first: Sequence[MediaItem], meta: SendMeta) -> Wording | None:
    """The text as the caption of these items; None: it goes before them."""
    if text is None or any(item.caption for item in first) or (meta.buttons and len(first) > 1):
        return None
    return whole(PLATFORM, text, meta, LONGEST_CAPTION)


def _shown(
    target: Mapping[str, Any],
    items: Sequence[MediaItem],
    group: Sequence[int],
    meta: SendMeta,
    caption: Wording | None,
    keyboard: Mapping[str, Any],
) -> Call:
    names = slots(items)
    shown: list[dict[str, Any]] = []
    for place in group:
        item = items[place]
        method, field = METHODS[item.type]
        own = captioned(PLATFORM, item.caption, meta, LONGEST_CAPTION, place) if item.caption else None
        wording = own or (caption if place == group[0] else None)
        shown.append({"kind": field, "media": reference(item, meta) or names[place], **_wording("caption", wording)})
    told = shown[0].get("caption")
    if len(group) > 1:
        album = [{"type": each.pop("kind"), **each} for each in shown]
        return Call("sendMediaGroup", {**target, "media": album}, tuple(group), told)
    (only,) = shown
    body = {**target, only.pop("kind"): only.pop("media"), **only, **keyboard}
    if method == "sendDocument":
        body["disable_content_type_detection"] = True  # or a picture that goes as a file would come as a picture
    return Call(method, body, tuple(group), told)


def _wording(key: str, wording: Wording | None) -> dict[str, str]:
    if wording is None:
        return {}
    text, parse_mode = wording
    return {key: text} if parse_mode is None else {key: text, "parse_mode": parse_mode}


def _as_sent(channel: Channel, item: MediaItem, place: int, largest: Mapping[str, int]) -> MediaItem:
    if item.type == "image" and (problem := _no_photo(item, largest.get("image", LARGEST_PHOTO))):
        if channel.settings.get("large_image") != "document":
            raise _refused(f"item {place + 1}: {problem}; settings.large_image = document sends it as a file")
        item = replace(item, type="file")
    most = largest.get(item.type, LARGEST_PHOTO if item.type == "image" else LARGEST_FILE)
    if (item.size_bytes or 0) > most:
        raise _refused(f"item {place + 1}: a bot can send at most {most / MB:g} MB of it, not {item.size_bytes} bytes")
    return item


def _no_photo(item: MediaItem, most: int) -> str | None:
    if item.content_type in NO_PHOTOS:
        return "a photo is no HEIC and no TIFF"
    if (item.size_bytes or 0) > most:
        return f"a photo has at most {most / MB:g} MB, not {item.size_bytes} bytes"
    if item.width and item.height:
        narrow, wide = sorted((item.width, item.height))
        if narrow + wide > PHOTO_SIDES or wide > PHOTO_RATIO * narrow:
            return (
                f"a photo of {item.width}×{item.height} pixels is too large (width and height together {PHOTO_SIDES}) "
                f"or too narrow (1 to {PHOTO_RATIO})"
            )
    return None


def chat_of(channel: Channel) -> int | str:
    name = channel.target_id
    return int(name) if re.fullmatch(r"-?\d{1,18}", name) else name


def _target(channel: Channel) -> dict[str, Any]:
    target: dict[str, Any] = {"chat_id": chat_of(channel)}
    if (thread := channel.settings.get("message_thread_id")) is not None:
        target["message_thread_id"] = _thread(thread)
    return target


def _thread(value: object) -> int:
    if isinstance(value, bool) or not re.fullmatch(r"\d{1,18}", str(value)):
        raise refused(
            PLATFORM,
            "channel",
            "bad_settings",
            f"settings.message_thread_id is not a topic's number: {value!r}",
        )
    return int(str(value))


def _keyboard(meta: SendMeta) -> dict[str, Any]:
    rows = [[_button(button) for button in row] for row in meta.buttons if row]
    return {"reply_markup": {"inline_keyboard": rows}} if rows else {}


def _button(button: Mapping[str, str]) -> dict[str, str]:
    text = button.get("text", "")
    if text and button.get("url"):
        return {"text": text, "url": button["url"]}
    data = button.get("callback", "")
    if text and 0 < len(data.encode()) <= CALLBACK_BYTES:
        return {"text": text, "callback_data": data}
    raise _refused(f"a button needs text, and url or callback (1–64 bytes): {button!r}")


def _refused(reason: str) -> SendError:
    return refused(PLATFORM, "delivery", "validation_failed", reason)
