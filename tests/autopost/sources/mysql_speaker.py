"""Speaks enough of MySQL's protocol to be asked one query: for what no real server would say on demand."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

BIGINT, DATETIME, DECIMAL, BLOB, TEXT = 8, 12, 246, 252, 253
BINARY, UTF8 = 63, 45
_CAPABILITIES = 0x0008_8208 | 0x2001  # with a database, protocol 4.1, authentication by plugin
_OK = b"\0\0\0\2\0\0\0"
_END = b"\xfe\0\0\2\0"


@dataclass(frozen=True)
class Answer:
    """Columns as (name, type) and rows of texts; or an error as (number, words)."""

    columns: list[tuple[str, int]] = field(default_factory=list)
    rows: list[tuple[bytes | None, ...]] = field(default_factory=list)
    error: tuple[int, str] | None = None
    hang_up: bool = False


@asynccontextmanager
async def speaking(
    answer: Callable[[str], Answer | None], *, version: str = "8.4.0", refuse: tuple[int, str] | None = None
) -> AsyncIterator[tuple[str, list[str]]]:
    """The server's address, and what it was told; a statement without an answer of its own is done, with no rows."""
    told: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(_packet(0, _greeting(version)))
            await _read(reader)
            writer.write(_packet(2, _error(*refuse) if refuse else _OK))
            while not refuse:
                command = await _read(reader)
                if command[:1] != b"\3":
                    break
                told.append(command[1:].decode())
                said = answer(told[-1])
                if said and said.hang_up:
                    break
                writer.write(_said(said))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"mysql://reader:hunter2@127.0.0.1:{server.sockets[0].getsockname()[1]}/shop", told
    finally:
        server.close()
        await server.wait_closed()


def _greeting(version: str) -> bytes:
    low, high = _CAPABILITIES & 0xFFFF, _CAPABILITIES >> 16
    head = b"\x0a" + version.encode() + b"\0" + struct.pack("<I", 1) + b"saltsalt\0"
    return head + struct.pack("<HBHHB", low, UTF8, 2, high, 21) + b"\0" * 10 + b"saltsaltsalt\0mysql_native_password\0"


async def _read(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(4)
    return await reader.readexactly(int.from_bytes(head[:3], "little"))


def _packet(number: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "little") + bytes([number]) + body


def _said(said: Answer | None) -> bytes:
    if said is None:
        return _packet(1, _OK)
    if said.error:
        return _packet(1, _error(*said.error))
    columns = [_column(name, kind) for name, kind in said.columns]
    rows = [b"".join(b"\xfb" if value is None else _text(value) for value in row) for row in said.rows]
    bodies = [bytes([len(columns)]), *columns, _END, *rows, _END]
    return b"".join(_packet((number + 1) % 256, body) for number, body in enumerate(bodies))


def _error(number: int, words: str) -> bytes:
    return b"\xff" + struct.pack("<H", number) + b"#42000" + words.encode()


def _column(name: str, kind: int) -> bytes:
    charset = UTF8 if kind == TEXT else BINARY
    names = b"".join(_text(part) for part in (b"def", b"shop", b"t", b"t", name.encode(), name.encode()))
    return names + b"\x0c" + struct.pack("<HIBHBxx", charset, 255, kind, 128 if charset == BINARY else 0, 0)


def _text(value: bytes) -> bytes:
    assert len(value) < 251
    return bytes([len(value)]) + value
