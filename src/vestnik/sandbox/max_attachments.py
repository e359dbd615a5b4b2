"""What hangs on a MAX message: uploaded files by their tokens, pictures by their addresses, a keyboard.

Unknown, foreign and expired tokens have no published code; the codes here say which of them it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from vestnik.sandbox.max_keyboard import read_keyboard
from vestnik.sandbox.max_wire import Refused, not_ready
from vestnik.sandbox.media import Handle, Media, Stored
from vestnik.sandbox.state import Platform, Token

MOST_ATTACHMENTS = 12
UPLOADED = ("image", "video", "audio", "file")
_ALONE = ("audio", "file")  # beside them there may only be a keyboard


@dataclass(frozen=True, slots=True)
class Attachments:
    buttons: list[list[dict[str, str]]]
    media: tuple[Media, ...]
    handles: tuple[Handle, ...] = ()


def names_uploads(body: Any) -> bool:
    """Whether a message names a file that was uploaded before."""
    given = body.get("attachments") if isinstance(body, dict) else None
    return any(
        isinstance(item, dict)
        and item.get("type") in UPLOADED
        and not (isinstance(item.get("payload"), dict) and item["payload"].get("url"))
        for item in (given if isinstance(given, list) else [])
    )


def read_attachments(platform: Platform, token: Token, given: Any, now: float) -> Attachments:
    """Everything is looked at before the first "not ready": a message that can never be sent says so at once."""
    items = given if isinstance(given, list) else [None]
    if len(items) > MOST_ATTACHMENTS:
        raise Refused(400, f"attachments: size must be between 0 and {MOST_ATTACHMENTS}", "too_many_attachments")
    buttons: list[list[dict[str, str]]] = []
    media: list[Media] = []
    handles: list[Handle] = []
    for item in items:
        kind, payload = _parts(item)
        if kind == "inline_keyboard":
            if buttons:
                raise Refused(400, "Only one inline_keyboard is allowed", "bad_keyboard")
            buttons = read_keyboard(payload)
        elif kind == "image" and "url" in payload:
            media.append(_by_address(payload))
        else:
            for name in _tokens(kind, payload):
                handles.append(_find(platform, token, kind, name, now))
                media.append(Media(kind, name, handles[-1].file or Stored(None, None, "", "")))
    if len(media) > 1 and any(one.type in _ALONE for one in media):
        raise Refused(400, "Attachments of type audio and file must be the only attachment", "mixed_attachments")
    _wait_for(platform, handles)
    return Attachments(buttons, tuple(media), tuple(handles))


def _parts(item: Any) -> tuple[str, dict[str, Any]]:
    kind = item.get("type") if isinstance(item, dict) else None
    if kind not in (*UPLOADED, "inline_keyboard"):
        raise Refused(400, f"Attachments of type {kind} are not emulated", "bad_attachment")
    payload = item.get("payload")
    if not isinstance(payload, dict):
        raise Refused(400, f"Missing `payload` in {kind} attachment", "bad_attachment")
    return kind, payload


def _by_address(payload: dict[str, Any]) -> Media:
    url = payload["url"]
    if set(payload) & {"token", "photos"}:
        raise Refused(400, "Exactly one of `url`, `token` and `photos` is needed in image attachment", "bad_attachment")
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise Refused(400, "Invalid `url` in image attachment", "bad_attachment")
    return Media("image", None, Stored(None, None, url.rpartition("/")[2][:255], "", url=url[:2048]))


def _tokens(kind: str, payload: dict[str, Any]) -> Iterator[str]:
    photos = payload.get("photos")
    if kind == "image" and ("token" in payload) == (photos is not None):
        raise Refused(400, "Exactly one of `url`, `token` and `photos` is needed in image attachment", "bad_attachment")
    given = (
        [payload] if photos is None or kind != "image" else list(photos.values() if isinstance(photos, dict) else ())
    )
    names = [one.get("token") if isinstance(one, dict) else None for one in given]
    for name in names or [None]:
        if not isinstance(name, str) or not name:
            raise Refused(400, f"Missing `token` in {kind} attachment", "bad_attachment")
        yield name


def _find(platform: Platform, token: Token, kind: str, name: str, now: float) -> Handle:
    handle = platform.handles.get(name, token.bot)
    if handle is None or handle.kind != kind:
        raise Refused(400, f"Unknown {kind} token", "foreign_token", code="attachment.not.found")
    ttl = platform.limits.token_ttl_s
    if ttl is not None and now - handle.at > ttl:
        raise Refused(400, f"The {kind} token has expired", code="attachment.expired")
    return handle


def _wait_for(platform: Platform, handles: list[Handle]) -> None:
    waiting = [handle for handle in handles if handle.file is None or handle.asked < platform.limits.not_ready]
    for handle in waiting:
        handle.asked += handle.file is not None
    if waiting:
        raise not_ready()
