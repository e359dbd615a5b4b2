"""Files on the pages: pictures and videos as a grid of tiles, everything else as a line with name and size."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from vestnik.sandbox.media import Media, size_of
from vestnik.sandbox.page_words import Words
from vestnik.sandbox.state import Post, State

_TILES = {"photo", "image", "video", "animation"}
_WORD = {"image": "photo", "file": "document"}  # MAX's names for what has a word already
# How many tiles stand in each row: every row is as wide as the others.
_ROWS = {
    1: (1,),
    2: (2,),
    3: (1, 2),
    4: (2, 2),
    5: (2, 3),
    6: (3, 3),
    7: (2, 2, 3),
    8: (2, 3, 3),
    9: (3, 3, 3),
    10: (2, 2, 3, 3),
    11: (2, 3, 3, 3),
    12: (3, 3, 3, 3),
}


@dataclass(frozen=True, slots=True)
class Pictures:
    """Where a page finds the picture of a file, if the sandbox has one."""

    state: State
    base: str

    def address(self, media: Media) -> str | None:
        file = media.file
        if file.sha256 and file.picture_type and file.sha256 in self.state.kept:
            return f"/thumbs/{file.sha256}"
        # A page shows nothing from elsewhere, but what the sandbox itself serves is shown.
        if file.url and file.url.startswith(f"{self.base}/files/"):
            return file.url.removeprefix(self.base)
        return None


def media_html(media: list[Media], words: Words, pictures: Pictures) -> str:
    tiles = [one for one in media if one.type in _TILES]
    lines = [one for one in media if one.type not in _TILES]
    return _grid(tiles, words, pictures) + "".join(_line(one, words) for one in lines)


def said_in_a_line(album: list[Post], words: Words) -> str:
    """A post for the list of chats: its text, and what hangs on it."""
    text = " ".join(next((post.rich.text for post in album if post.rich.text), "").split())[:90]
    if not album[0].media:
        return text or "—"
    kind = words[_word(album[0].media[0])]
    return f"{kind}: {text}" if text else kind


def _grid(tiles: list[Media], words: Words, pictures: Pictures) -> str:
    if not tiles:
        return ""
    rows = _ROWS.get(len(tiles), (3,) * -(-len(tiles) // 3))
    widths = [row for row in rows for _ in range(row)]
    shown = "".join(_tile(tile, width, words, pictures) for tile, width in zip(tiles, widths, strict=False))
    return f'<div class="grid">{shown}</div>'


def _tile(media: Media, in_row: int, words: Words, pictures: Pictures) -> str:
    address, file = pictures.address(media), media.file
    title = escape(f"{file.name} · {_size(media, words)}" if file.name else _size(media, words))
    mark = {"video": "▶", "animation": "GIF"}.get(media.type, "")
    badge = f'<span class="mark">{mark}</span>' if mark else ""
    if address is None:
        name = escape(file.name or words[_word(media)])
        inside = f'<span class="blank">{badge}<b>{name}</b><span>{_size(media, words)}</span></span>'
        return f'<div class="tile of{in_row}" title="{title}">{inside}</div>'
    picture = f'<img src="{escape(address)}" alt="{escape(file.name)}">'
    return f'<div class="tile of{in_row}" title="{title}">{picture}{badge}</div>'


def _line(media: Media, words: Words) -> str:
    name = media.file.name or words[_word(media)]
    suffix = name.rpartition(".")[2] if "." in name else ""
    icon = "♪" if media.type == "audio" else (suffix[:4].upper() or "·")
    return (
        f'<div class="file"><span class="icon">{escape(icon)}</span>'
        f'<span class="name"><b>{escape(name)}</b><span>{_size(media, words)}</span></span></div>'
    )


def _size(media: Media, words: Words) -> str:
    return words["unknown_size"] if media.file.size is None else size_of(media.file.size)


def _word(media: Media) -> str:
    return _WORD.get(media.type, media.type)
