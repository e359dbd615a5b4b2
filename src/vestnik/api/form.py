"""A multipart/form-data body as the parts that come by, one after the other: nothing of it is held."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from vestnik.autopost.media.upload import Part, UploadRefused

SILENCE = 60.0  # most seconds without a byte


def is_form(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "multipart/form-data"


async def parts(content_type: str, body: AsyncIterator[bytes]) -> AsyncIterator[Part]:
    """Each is to be read before the next is asked for; what is not read of it is passed over."""
    reader = _Reader(content_type, body)
    while (part := await reader.part()) is not None:
        yield part


class _Reader:
    """The parser is told what comes, and tells what it was: None between parts, else headers or a piece of data."""

    def __init__(self, content_type: str, body: AsyncIterator[bytes]) -> None:
        self._body = body
        self._heard: deque[dict[str, str] | bytes | None] = deque()
        self._headers: dict[str, str] = {}
        self._field, self._value = bytearray(), bytearray()
        self._ended = False
        _, options = parse_options_header(content_type)
        try:
            self._parser = MultipartParser(
                options.get(b"boundary", b""),
                {
                    "on_part_begin": self._headers.clear,
                    "on_header_field": lambda data, start, end: self._field.extend(data[start:end]),
                    "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
                    "on_header_end": self._header,
                    "on_headers_finished": lambda: self._heard.append(dict(self._headers)),
                    "on_part_data": lambda data, start, end: self._heard.append(bytes(data[start:end])),
                    "on_part_end": lambda: self._heard.append(None),
                    "on_end": self._end,
                },
            )
        except FormParserError:
            raise UploadRefused("the Content-Type of the form names no usable boundary") from None
        if not options.get(b"boundary"):
            raise UploadRefused("the Content-Type of the form names no boundary")

    async def part(self) -> Part | None:
        heard = await self._next()
        while isinstance(heard, bytes) or (heard is None and not self._over()):
            heard = await self._next()
        return None if heard is None else self._described(heard)

    def _described(self, headers: dict[str, str]) -> Part:
        disposition, options = parse_options_header(headers.get("content-disposition", ""))
        name = _decoded(options.get(b"name", b""))
        if disposition != b"form-data" or not name:
            raise UploadRefused("a part of the form has no name")
        content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        return Part(name, self._data(), _decoded(options.get(b"filename", b"")) or None, content_type)

    async def _data(self) -> AsyncIterator[bytes]:
        while isinstance(piece := await self._next(), bytes):
            yield piece

    async def _next(self) -> dict[str, str] | bytes | None:
        while not self._heard:
            if self._over():
                return None
            await self._hear()
        return self._heard.popleft()

    async def _hear(self) -> None:
        try:
            async with asyncio.timeout(SILENCE):
                chunk = await anext(self._body, None)
            if chunk is None:
                raise UploadRefused("the form breaks off before its end")
            self._parser.write(chunk)
        except FormParserError:
            raise UploadRefused("the body is not the form that its Content-Type says") from None
        except TimeoutError:
            raise UploadRefused(f"no byte came for {SILENCE:g} seconds") from None

    def _over(self) -> bool:
        return self._ended and not self._heard

    def _header(self) -> None:
        self._headers[self._field.decode("latin-1").strip().lower()] = self._value.decode("latin-1").strip()
        self._field.clear()
        self._value.clear()

    def _end(self) -> None:
        self._ended = True


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")
