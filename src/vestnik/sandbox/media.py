"""Files as the emulated platforms keep them: what they were, and who may name them. Never the bytes of a big one."""

from __future__ import annotations

import hashlib
import warnings
from collections import OrderedDict
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

from PIL import Image

LARGEST_KEPT = 512 * 1024  # of one file whose bytes stay, for the pages and for downloads
MOST_KEPT = 32 * 1024 * 1024  # of all of them
MOST_HANDLES = 50_000
MOST_SESSIONS = 10_000
BEYOND = 1_000_000  # a side of a picture with more pixels than anybody takes
_READ = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF")


@dataclass(frozen=True, slots=True)
class Stored:
    """A file that was received, or named by its address and never seen."""

    sha256: str | None
    size: int | None
    name: str
    content_type: str
    width: int = 0  # of a picture that could be read
    height: int = 0
    picture_type: str = ""  # what its bytes say, whatever the sender said
    url: str | None = None

    def as_json(self) -> dict[str, Any]:
        shown = ("sha256", "size", "name", "content_type", "width", "height", "url")
        return {name: getattr(self, name) for name in shown}


@dataclass(frozen=True, slots=True)
class Upload:
    """A file on its way in; ``kept`` are its bytes if there are few of them."""

    stored: Stored
    kept: bytes | None
    start: bytes = b""


@dataclass(frozen=True, slots=True)
class Media:
    """What hangs on a post."""

    type: str
    file_id: str | None
    file: Stored
    caption: str | None = None
    media_group_id: str | None = None

    def as_json(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("type", "file_id", "caption", "media_group_id")}
        return {**own, **self.file.as_json()}


class Intake:
    """Takes a file piece by piece and forgets the pieces."""

    def __init__(self) -> None:
        self.size = 0
        self._hash = hashlib.sha256()
        self._head = bytearray()  # enough to know a picture by

    def add(self, piece: bytes) -> None:
        self.size += len(piece)
        self._hash.update(piece)
        if len(self._head) < LARGEST_KEPT:
            self._head += piece[: LARGEST_KEPT - len(self._head)]

    def finish(self, name: str, content_type: str) -> Upload:
        whole = self.size <= LARGEST_KEPT
        head = bytes(self._head)
        self._head.clear()
        picture_type, width, height = _measure(head, whole)
        # A header may carry bytes that are no text.
        name = name.encode("utf-8", "replace").decode().replace("\\", "/").rpartition("/")[2][:255]
        stored = Stored(self._hash.hexdigest(), self.size, name, content_type[:127], width, height, picture_type)
        return Upload(stored, head if whole else None, head[:16])


def _measure(head: bytes, whole: bool) -> tuple[str, int, int]:
    """Type and size of a picture; nothing for what is none, or is none any more."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(BytesIO(head), formats=_READ) as picture:
                kind, size = Image.MIME[picture.format or ""], picture.size
                if whole:
                    picture.verify()
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        return "image/png", BEYOND, BEYOND
    except Exception:  # whatever a decoder raises about bytes that somebody made up
        return "", 0, 0
    return kind, *size


@dataclass(slots=True)
class Handle:
    """A name for a file that one bot may use."""

    bot: str
    kind: str
    unique: str  # the same for every bot
    file: Stored | None  # None: promised, not uploaded yet
    at: float
    asked: int = 0
    uses: int = 0


@dataclass(slots=True)
class Session:
    """A place to upload one file to."""

    bot: str
    kind: str
    token: str | None  # known before the upload, for some kinds
    at: float
    intake: Intake = field(default_factory=Intake)  # of an upload in pieces


class Handles:
    """Handles by their names. The one that was not used for longest goes first when there are too many."""

    def __init__(self) -> None:
        self._all: OrderedDict[str, Handle] = OrderedDict()

    def put(self, name: str, handle: Handle) -> Handle:
        known = self._all.setdefault(name, handle)
        self._all.move_to_end(name)
        while len(self._all) > MOST_HANDLES:
            self._all.popitem(last=False)
        return known

    def get(self, name: str, bot: str) -> Handle | None:
        """Only its own bot finds it."""
        handle = self._all.get(name)
        if handle is None or handle.bot != bot:
            return None
        self._all.move_to_end(name)
        return handle

    def __len__(self) -> int:
        return len(self._all)


class Kept:
    """The bytes of small files by their hashes, the newest of them."""

    def __init__(self) -> None:
        self._all: OrderedDict[str, tuple[Stored, bytes]] = OrderedDict()
        self._size = 0

    def put(self, upload: Upload) -> None:
        sha256, data = upload.stored.sha256, upload.kept
        if data is None or sha256 is None:
            return
        if sha256 not in self._all:
            self._size += len(data)
        self._all[sha256] = (upload.stored, data)
        self._all.move_to_end(sha256)
        while self._size > MOST_KEPT:
            _, (_, dropped) = self._all.popitem(last=False)
            self._size -= len(dropped)

    def get(self, sha256: str | None) -> tuple[Stored, bytes] | None:
        return self._all.get(sha256 or "")

    def __contains__(self, sha256: object) -> bool:
        return sha256 in self._all


def size_of(number: int) -> str:
    """Bytes as a person reads them."""
    if number < 1024:
        return f"{number} B"
    amount, unit = (number / 1024, "KB") if number < 1024**2 else (number / 1024**2, "MB")
    return f"{amount:.0f} {unit}" if amount >= 10 else f"{amount:.1f} {unit}"
