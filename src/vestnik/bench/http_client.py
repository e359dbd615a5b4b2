"""A lean HTTP/1.1 client: one keep-alive connection, one request at a time, so that measuring costs little of what
is measured. It understands what the API answers (a status line and a Content-Length), and nothing else."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

from vestnik.bench.ground import BenchError


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes


class Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._answer: asyncio.Future[Answer] | None = None

    async def ask(self, request: bytes) -> Answer:
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found or len(body) < (length := _content_length(head)):
            return
        self._received = body[length:]
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(Answer(int(head[9:12]), body[:length]))

    def connection_lost(self, reason: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(BenchError(f"the server closed the connection: {reason}"))


async def connect(url: str) -> Connection:
    where = urlsplit(url)
    host, port = str(where.hostname), int(where.port or 80)
    _, connection = await asyncio.get_running_loop().create_connection(Connection, host, port)
    return connection


def push_request(secret: str, payload: dict[str, Any]) -> bytes:
    body = json.dumps(payload).encode()
    return (
        f"POST /v1/push HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {secret}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    raise BenchError("an answer without Content-Length")
