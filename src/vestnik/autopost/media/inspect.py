"""What a file really is: told from its first bytes, not from what somebody called it."""

from __future__ import annotations

import io
import mimetypes
import warnings
from dataclasses import dataclass

from PIL import Image

from vestnik.adapters.contract import MediaType
from vestnik.errors import VestnikError

HEAD = 256 * 1024  # enough of a file to tell its kind, and the size of a picture behind a large preamble
MOST_PIXELS = 200_000_000  # more is no picture to be shown, but a trap for whoever unpacks it
Image.MAX_IMAGE_PIXELS = MOST_PIXELS // 2  # Pillow warns there, and refuses at twice as many
UNKNOWN = "application/octet-stream"


class MediaRefused(VestnikError):
    """These bytes are not taken as what they are called."""


@dataclass(frozen=True, slots=True)
class Kind:
    """``content_type`` is ours; width and height are those of a picture, where its first bytes tell them."""

    content_type: str
    width: int | None = None
    height: int | None = None


def inspected(head: bytes, wanted: MediaType | None, declared: str = "", name: str = "") -> Kind:
    """MediaRefused when what begins like this cannot be shown as ``wanted``; without it, anything is a file."""
    if not head:
        raise MediaRefused("it is empty")
    kind = _picture(head) or Kind(_told(head) or _called(head, declared, name))
    if wanted is not None and not _fits(kind.content_type, wanted):
        raise MediaRefused(f"it should be {_ARTICLE[wanted]}, and is {kind.content_type}")
    return kind


_ARTICLE = {"image": "an image", "video": "a video", "audio": "audio", "animation": "an animation", "file": "a file"}


def _fits(content_type: str, wanted: MediaType) -> bool:
    family = content_type.partition("/")[0]
    if wanted == "file":
        return True
    if wanted == "animation":
        return content_type == "image/gif" or family == "video"
    return family == wanted


def _picture(head: bytes) -> Kind | None:
    """Reads no pixel: what a picture unpacks to is nobody's concern here."""
    brand = head[8:12] if head[4:8] == b"ftyp" else b""
    if brand in _HEIC:
        return Kind("image/heic")
    if not head.startswith(_PICTURES) and head[8:12] != b"WEBP":
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            picture = Image.open(io.BytesIO(head), formats=_OPENED)
    except Image.DecompressionBombError:
        raise MediaRefused(f"a picture of more than {MOST_PIXELS} points is not taken") from None
    except Exception:  # whatever a decoder raises about bytes that somebody made up
        # The table of a TIFF may stand at its end; of the others the beginning must do.
        if head.startswith(_TIFF):
            return Kind("image/tiff")
        raise MediaRefused("it begins like a picture, and is none") from None
    return Kind(_FORMATS[picture.format or ""], *picture.size)


_TIFF = (b"II*\x00", b"MM\x00*")
_PICTURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"BM", *_TIFF)
_FORMATS = {
    "PNG": "image/png", "JPEG": "image/jpeg", "MPO": "image/jpeg", "GIF": "image/gif", "BMP": "image/bmp",
    "TIFF": "image/tiff", "WEBP": "image/webp",
}  # fmt: skip
_OPENED = [name for name in _FORMATS if name != "MPO"]  # it is a JPEG until it is looked into
_HEIC = (b"heic", b"heix", b"hevc", b"mif1", b"msf1", b"heim", b"heis", b"avif")


def _told(head: bytes) -> str | None:
    """Of formats that begin with a name of their own."""
    if head[4:8] == b"ftyp":
        return "audio/mp4" if head[8:11] in (b"M4A", b"M4B") else _QUICKTIME.get(head[8:12], "video/mp4")
    if head[:4] == b"RIFF":
        return {b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo"}.get(head[8:12])
    if head[:4] == b"\x1a\x45\xdf\xa3":
        return "video/webm" if b"webm" in head[:64] else "video/x-matroska"
    if head[:4] == b"OggS":
        return "video/ogg" if b"theora" in head[:64] else "audio/ogg"
    if len(head) > 2 and head[0] == 0xFF and head[1] & 0xE6 in (0xE2, 0xE4, 0xE6):
        return "audio/mpeg"
    return next((kind for start, kind in _STARTS if head.startswith(start)), None)


_QUICKTIME = {b"qt  ": "video/quicktime", b"3gp4": "video/3gpp", b"3gp5": "video/3gpp"}
_STARTS = (
    (b"ID3", "audio/mpeg"), (b"fLaC", "audio/flac"), (b"%PDF-", "application/pdf"), (b"PK\x03\x04", "application/zip"),
    (b"\x00\x00\x01\xba", "video/mpeg"), (b"\x00\x00\x01\xb3", "video/mpeg"), (b"FLV\x01", "video/x-flv"),
)  # fmt: skip


def _called(head: bytes, declared: str, name: str) -> str:
    """What its server or its name calls it; text is never a picture, a film or a sound."""
    known = declared if declared not in ("", UNKNOWN) else mimetypes.guess_type(name)[0] or UNKNOWN
    if _is_markup(head):
        return "text/html"
    if known.startswith("image/") or (known.startswith(("video/", "audio/")) and _is_text(head)):
        return "text/plain" if _is_text(head) else UNKNOWN
    return known


def _is_markup(head: bytes) -> bool:
    start = head[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return start.startswith((b"<!doctype html", b"<html", b"<head", b"<body"))


def _is_text(head: bytes) -> bool:
    return not any(byte < 9 or 13 < byte < 27 for byte in head[:1024])
