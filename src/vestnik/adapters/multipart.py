"""Files on their way to a platform: a form whose body is read while it is written, and never held.

``finished`` tells whether the last byte was handed to the connection. Until then the platform cannot have
acted on the form, however the call ended. A limit on the whole time would forbid large files on slow lines, so
there is one on silence instead: each piece must move on within that time.
"""

from __future__ import annotations

import asyncio
import mimetypes
import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload

from vestnik.adapters.contract import MediaItem, Resolved, SendError

PIECE = 64 * 1024
LONGEST_NAME = 120
_EXTENSION = {"image": ".jpg", "video": ".mp4", "audio": ".mp3", "animation": ".gif", "file": ".bin"}


@dataclass(frozen=True, slots=True)
class File:
    """One file field. Without a size the form goes out in chunks of HTTP."""

    field: str
    name: str
    content_type: str
    size: int | None
    read: Callable[[], AsyncIterator[bytes]]


def file_of(field: str, resolved: Resolved) -> File:
    """What a platform needs beside the bytes; its own ideas of a file begin with the name."""
    item = resolved.item
    content_type = item.content_type or mimetypes.guess_type(item.file_name or "")[0] or "application/octet-stream"
    return File(field, _name(item), _one_line(content_type), item.size_bytes, resolved.read)


class Form(Payload):
    """multipart/form-data for one request; a second attempt needs a form of its own."""

    _autoclose = True  # what it reads is closed where it is read

    def __init__(self, fields: Mapping[str, str], files: Sequence[File], *, silence: float) -> None:
        self._boundary = secrets.token_hex(16)
        super().__init__(None, content_type=f"multipart/form-data; boundary={self._boundary}")
        self._files = [(self._head(file), file) for file in files]
        self._fields = fields
        self._preface = b"".join(self._field(name, value) for name, value in fields.items())
        self._end = f"--{self._boundary}--\r\n".encode()
        self._silence = silence
        self.finished = False
        self.failure: SendError | None = None  # why it could not be read to its end

    def told(self) -> dict[str, Any]:
        """What is in it, but for the bytes of the files."""
        files = [
            {"field": f.field, "name": f.name, "content_type": f.content_type, "size": f.size} for _, f in self._files
        ]
        return {"fields": dict(self._fields), "files": files}

    @property
    def size(self) -> int | None:
        size = len(self._preface) + len(self._end)
        for head, file in self._files:
            if file.size is None:
                return None
            size += len(head) + file.size + len(b"\r\n")
        return size

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        raise TypeError("a form that is read while it is written has no text")

    async def write(self, writer: AbstractStreamWriter) -> None:
        await self.write_with_length(writer, None)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        await self._pass_on(writer, self._preface)
        for head, file in self._files:
            await self._pass_on(writer, head)
            await self._pass_on_file(writer, file)
            await self._pass_on(writer, b"\r\n")
        await self._pass_on(writer, self._end)
        self.finished = True

    async def _pass_on(self, writer: AbstractStreamWriter, data: bytes) -> None:
        for at in range(0, len(data), PIECE):
            async with asyncio.timeout(self._silence):
                await writer.write(data[at : at + PIECE])

    async def _pass_on_file(self, writer: AbstractStreamWriter, file: File) -> None:
        passed = 0
        async with aclosing(_chunks(file)) as chunks:
            while (chunk := await self._next(chunks)) is not None:
                passed += len(chunk)
                if file.size is not None and passed > file.size:
                    break  # before it is written: more than was announced would be read as the next request
                await self._pass_on(writer, chunk)
        if file.size not in (None, passed):
            raise self._failed(_broken(f"not the {file.size} bytes that it should be"))

    async def _next(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        # Raised outside the except blocks: what a store says of its failure may name more than people should read.
        try:
            async with asyncio.timeout(self._silence):
                return await anext(chunks, None)
        except SendError as e:
            failure = e
        except TimeoutError:
            failure = _broken("no byte came for too long")
        except Exception as e:
            failure = _broken(type(e).__name__)
        raise self._failed(failure)

    def _failed(self, error: SendError) -> SendError:
        self.failure = error
        return error

    def _field(self, name: str, value: str) -> bytes:
        return f'--{self._boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()

    def _head(self, file: File) -> bytes:
        said = f'Content-Disposition: form-data; name="{file.field}"; filename="{file.name}"'
        return f"--{self._boundary}\r\n{said}\r\nContent-Type: {file.content_type}\r\n\r\n".encode()


async def _chunks(file: File) -> AsyncGenerator[bytes, None]:
    """Also where opening it fails, that is found out when the first are wanted."""
    chunks = file.read()
    try:
        async for chunk in chunks:
            yield chunk
    finally:
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()


def _broken(what: str) -> SendError:
    return SendError(
        category="TRANSIENT",
        scope="delivery",
        code="media_unreadable",
        message=f"the stored file could not be read: {what}",
        raw={"outcome": "not_sent"},
    )


def _name(item: MediaItem) -> str:
    """Without folders, and nothing that ends it early; one that ends in the right letters where there is none."""
    if item.file_name and (name := re.split(r"[/\\]", item.file_name)[-1].strip()):
        return _one_line(name[-LONGEST_NAME:]).replace('"', "'")
    known = mimetypes.guess_extension(item.content_type or "", strict=False)
    return f"{item.type}{known or _EXTENSION[item.type]}"


def _one_line(text: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f]", " ", text).encode("utf-8", "replace").decode("utf-8")
