"""Telegram's files: what a media value names, who may name it, what is too big or no picture."""

from __future__ import annotations

import base64
import hashlib
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from vestnik.sandbox.media import Handle, Stored, Upload
from vestnik.sandbox.state import State, Token
from vestnik.sandbox.telegram_wire import Asked, Refused

LARGEST_PHOTO = 10 * 1024 * 1024
LARGEST_FILE = 50 * 1024 * 1024
LARGEST_DOWNLOAD = 20 * 1024 * 1024
LONGEST_SIDES = 10_000  # of a photo, width and height together
WIDEST = 20  # how much longer one side may be than the other
WRONG = "Bad Request: wrong file identifier/HTTP URL specified"
_PREFIX = {"photo": "AgAC", "video": "BAAC", "document": "BQAC", "audio": "CQAC", "animation": "CgAC"}
_FOLDERS = {"photo": "photos", "video": "videos", "document": "documents", "audio": "music", "animation": "animations"}


def find_media(asked: Asked, kind: str, value: object, part: str | None = None) -> tuple[str, Handle]:
    """The file that a media value means: an uploaded part, a file_id or an address. Nothing is kept yet."""
    attached = str(value).removeprefix("attach://") if str(value).startswith("attach://") else None
    upload = asked.uploads.get(attached or part or "")
    if upload is not None:
        _check(kind, upload)
        return _made(asked, kind, upload.stored)
    if attached is not None:
        raise Refused(400, "Bad Request: can't parse InputMedia: media not found", "bad_media")
    if not isinstance(value, str) or not value:
        raise Refused(400, f"Bad Request: there is no {kind} in the request", "bad_media")
    if "." in value or ":" in value:
        return _made(asked, kind, _from_address(value))
    known = asked.platform.handles.get(value, asked.token.bot)
    if known is None:
        raise Refused(400, WRONG, "foreign_file_id")
    if known.kind != kind:
        said = f"can't use file of type {known.kind.capitalize()} as {kind.capitalize()}"
        raise Refused(400, f"Bad Request: {said}", "bad_media")
    return value, known


def keep(asked: Asked, kind: str, name: str, found: Handle) -> None:
    """The message was accepted: its file may be named by file_id from now on."""
    new = asked.platform.handles.get(name, asked.token.bot) is None
    handle = asked.platform.handles.put(name, found)
    handle.uses += 1
    if not new and handle is found:
        asked.platform.counters["reused"] += 1
    elif found.file is not None and found.file.url is None:
        asked.platform.counters["uploads"] += 1
    for upload in asked.uploads.values():
        if found.file is upload.stored:
            asked.state.kept.put(upload)
    for size_name in photo_sizes(asked.token, kind, handle):
        asked.platform.handles.put(size_name, handle)


def get_file(asked: Asked) -> dict[str, Any]:
    handle = asked.platform.handles.get(str(asked.params.get("file_id", "")), asked.token.bot)
    if handle is None or handle.file is None:
        raise Refused(400, "Bad Request: invalid file_id", "foreign_file_id")
    size = handle.file.size
    if size is not None and size > LARGEST_DOWNLOAD:
        raise Refused(400, "Bad Request: file is too big", "file_too_big")
    name = file_id(asked.token, handle.kind, handle.unique)
    suffix = PurePosixPath(handle.file.name).suffix
    shown: dict[str, Any] = {
        "file_id": name,
        "file_unique_id": handle.unique,
        "file_path": f"{_FOLDERS[handle.kind]}/{name}{suffix}",
    }
    return shown if size is None else {**shown, "file_size": size}


def download(state: State, token: Token, path: str) -> bytes:
    """The bytes behind a file_path, where the sandbox has kept them."""
    handle = state.platforms["telegram"].handles.get(PurePosixPath(path).stem, token.bot)
    kept = state.kept.get(handle.file.sha256) if handle and handle.file else None
    if kept is None:
        raise Refused(404, "Not Found")
    return kept[1]


def file_id(token: Token, kind: str, unique: str, size: str = "") -> str:
    """Of one bot and one file, always the same."""
    return _PREFIX[kind] + _short(f"{token.bot}/{kind}/{unique}/{size}", 42)


def photo_sizes(token: Token, kind: str, handle: Handle) -> dict[str, tuple[int, int]]:
    """What a photo is shown in, smallest first: file_ids with width and height."""
    if kind != "photo" or handle.file is None:
        return {}
    width, height = handle.file.width or 800, handle.file.height or 600
    smaller = [side for side in (90, 320, 800) if side < max(width, height)] if handle.file.width else []
    sizes = {
        file_id(token, kind, handle.unique, str(side)): (
            max(1, width * side // max(width, height)),
            max(1, height * side // max(width, height)),
        )
        for side in smaller
    }
    return {**sizes, file_id(token, kind, handle.unique): (width, height)}


def _made(asked: Asked, kind: str, stored: Stored) -> tuple[str, Handle]:
    unique = "AQAD" + _short(f"{kind}/{stored.sha256 or stored.url}", 16)
    name = file_id(asked.token, kind, unique)
    return name, Handle(asked.token.bot, kind, unique, stored, asked.state.clock.time())


def _check(kind: str, upload: Upload) -> None:
    stored, size = upload.stored, upload.stored.size or 0
    if size == 0:
        raise Refused(400, "Bad Request: file must be non-empty", "empty_file")
    if size > LARGEST_FILE:
        raise Refused(413, "Request Entity Too Large", "file_too_big")
    if kind != "photo":
        return
    if size > LARGEST_PHOTO:
        said = f"file of size {size} bytes is too big for a photo; the maximum size is {LARGEST_PHOTO} bytes"
        raise Refused(400, f"Bad Request: {said}", "file_too_big")
    if not stored.picture_type:
        raise Refused(400, "Bad Request: IMAGE_PROCESS_FAILED", "bad_picture")
    long, short = max(stored.width, stored.height), min(stored.width, stored.height)
    if long + short > LONGEST_SIDES or long > WIDEST * short:
        raise Refused(400, "Bad Request: PHOTO_INVALID_DIMENSIONS", "bad_picture")


def _from_address(value: str) -> Stored:
    try:
        parts = urlsplit(value)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme.lower() not in ("http", "https") or not parts.hostname:
        raise Refused(400, WRONG, "bad_media")
    return Stored(None, None, PurePosixPath(parts.path).name, "", url=value[:2048])


def _short(text: str, length: int) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode()[:length]
