"""Forms with files, read piece by piece: texts stay, of files stays what they were."""

from __future__ import annotations

from dataclasses import dataclass, field

from aiohttp import BodyPartReader, web

from vestnik.sandbox.media import Intake, Upload

PIECE = 256 * 1024
MOST_FILES = 32
LONGEST_TEXTS = 1024 * 1024  # of all texts of one form


class BadForm(Exception):
    """A form that cannot be read; the text says why."""


@dataclass(slots=True)
class Form:
    texts: dict[str, str] = field(default_factory=dict)
    files: dict[str, Upload] = field(default_factory=dict)


async def read_form(request: web.Request) -> Form:
    """A multipart/form-data body. A part with a file name is a file."""
    form, left = Form(), LONGEST_TEXTS
    try:
        async for part in await request.multipart():
            if not isinstance(part, BodyPartReader) or not part.name:
                raise BadForm("every part of the form has a name and a value")
            if part.filename is not None:
                form.files[part.name] = await _file(part)
            else:
                text = await _text(part, left)
                left -= len(text)
                form.texts[part.name] = text.decode("utf-8", "replace")
            if len(form.files) > MOST_FILES or len(form.texts) > 1000:
                raise BadForm("too many parts in the form")
    except (ValueError, AssertionError, LookupError) as e:
        raise BadForm("the multipart body is broken") from e
    return form


async def _file(part: BodyPartReader) -> Upload:
    intake = Intake()
    while piece := await part.read_chunk(PIECE):
        intake.add(piece)
    return intake.finish(part.filename or "", part.headers.get("Content-Type", ""))


async def _text(part: BodyPartReader, most: int) -> bytes:
    text = bytearray()
    while piece := await part.read_chunk(PIECE):
        text += piece
        if len(text) > most:
            raise BadForm("the texts of the form are too long")
    return bytes(text)
