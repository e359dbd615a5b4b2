"""Faults played on the wire: late answers, no answers, broken connections."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from aiohttp import web

from vestnik.sandbox.faults import Call, Fault, pick
from vestnik.sandbox.state import Chat, State

STATE: web.AppKey[State] = web.AppKey("state", State)
CLOSING: web.AppKey[asyncio.Event] = web.AppKey("closing", asyncio.Event)
ZEROS = bytes(64 * 1024)
GARBAGE = "<!doctype html><title>Welcome</title><h1>It works!</h1>"


class Voice(Protocol):
    """How a platform says no."""

    def error(self, status: int, fault: Fault) -> web.Response: ...
    def no(self, fault: Fault) -> web.Response: ...


class Place(Protocol):
    """What has faults of its own and counts them."""

    faults: list[Fault]
    counters: Counter[str]


async def play(
    request: web.Request,
    place: Place,
    chat: Chat | None,
    voice: Voice,
    call: Call,
    work: Callable[[], web.Response],
) -> web.StreamResponse:
    """The answer to a request: what ``work`` says, or what a fault makes of it."""
    fault = pick(chat.faults if chat else [], place.faults, call=call)
    if fault is None:
        return work()
    place.counters[f"fault.{fault.kind}"] += 1
    if fault.latency_ms:
        await asyncio.sleep(fault.latency_ms / 1000)
    if fault.kind in ("slow", "truncated", "cut"):
        return await _spoil(request, fault.kind, work())
    if fault.kind == "endless":
        return await _endless(request, work())
    if fault.kind.endswith("_after_accept"):
        work()
    if fault.kind.startswith("timeout"):
        await request.app[CLOSING].wait()
        return web.Response(status=503)
    if fault.kind.startswith("reset"):
        return _reset(request)
    if fault.kind == "garbage":
        return web.Response(text=GARBAGE, content_type="text/html")
    if fault.kind == "redirect":
        return web.Response(status=302, headers={"Location": fault.location or request.path_qs})
    status = fault.status()
    return voice.no(fault) if status is None else voice.error(status, fault)


async def _spoil(request: web.Request, kind: str, answer: web.Response) -> web.StreamResponse:
    whole = answer.body if isinstance(answer.body, bytes | bytearray) else b""
    half = bytes(whole[: len(whole) // 2])
    if kind == "truncated":
        answer.body = half
    if kind != "cut":
        return answer
    # The headers promise the whole. What is written gets out before the connection ends, unlike with a reset.
    broken = web.StreamResponse(status=answer.status, headers=answer.headers)
    broken.content_length = len(whole)
    await broken.prepare(request)
    await broken.write(half)
    if request.transport is not None:
        request.transport.close()
    return broken


async def _endless(request: web.Request, answer: web.Response) -> web.StreamResponse:
    stream = web.StreamResponse(status=answer.status, headers=answer.headers)
    await stream.prepare(request)
    await stream.write(answer.body if isinstance(answer.body, bytes | bytearray) else b"")
    while not request.app[CLOSING].is_set():
        await stream.write(ZEROS)
    return stream


def _reset(request: web.Request) -> web.Response:
    """A real RST: without lingering, a closed socket drops what it has not sent."""
    if request.transport is not None:
        sock: Any = request.transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        request.transport.abort()
    return web.Response(status=503)  # nobody is left to read it
