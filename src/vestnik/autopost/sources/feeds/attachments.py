"""What kind of thing an address leads to, as far as one can tell without asking it."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final
from urllib.parse import urlsplit

_KINDS: Final = frozenset({"image", "video", "audio"})
_PAGES: Final = frozenset({"text/html", "application/xhtml+xml", "application/x-shockwave-flash", "image/svg+xml"})
_ENDINGS: Final = {
    **dict.fromkeys(("jpg", "jpeg", "png", "webp", "avif", "bmp", "heic", "tif", "tiff"), "image"),
    **dict.fromkeys(("mp4", "m4v", "mov", "webm", "mkv", "avi", "mpg", "mpeg"), "video"),
    **dict.fromkeys(("mp3", "m4a", "ogg", "oga", "opus", "wav", "flac", "aac"), "audio"),
    **dict.fromkeys(("html", "htm", "php", "svg", "swf"), None),
    "gif": "animation",
}


def media_type(url: str, mime: str = "", medium: str = "") -> str | None:
    """The type of media as a payload names it; None for what is a page or a drawing rather than a file."""
    mime = mime.partition(";")[0].strip().lower()
    if mime in _PAGES:
        return None
    if mime == "image/gif":
        return "animation"
    for kind in (mime.partition("/")[0], medium.strip().lower()):
        if kind in _KINDS:
            return kind
    named = mime not in ("", "application/octet-stream")
    return "file" if named else _ENDINGS.get(_ending(url), "file")


def _ending(url: str) -> str:
    try:
        return PurePosixPath(urlsplit(url).path).suffix.removeprefix(".").lower()
    except ValueError:
        return ""
