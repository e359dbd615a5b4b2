"""Faults played on the wire: late answers, no answers, broken connections."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Any, Protocol

from aiohttp import web

from vestnik.sandbox.faults import Fault, pick
from vestnik.sandbox.state import Chat, Platform, State

STATE: web.AppKey[State] = web.AppKey("state", State)
CLOSING: web.AppKey[asyncio.Event] = web.AppKey("closing", asyncio.Event)
GARBAGE = "<!doctype html><title>Welcome</title><h1>It works!</h1>"


class Voice(Protocol):
    """How a platform says no."""

    def error(self, status: int, fault: Fault) -> web.Response: ...
    def no(self, fault: Fault) -> web.Response: ...


async def play(
    request: web.Request,
    platform: Platform,
    chat: Chat | None,
    voice: Voice,
    work: Callable[[], web.Response],
) -> web.Response:
    """The answer to a request: what ``work`` says, or what a fault makes of it."""
    fault = pick(chat.faults if chat else [], platform.faults)
    if fault is None:
        return work()
    platform.counters[f"fault.{fault.kind}"] += 1
    if fault.latency_ms:
        await asyncio.sleep(fault.latency_ms / 1000)
    if fault.kind.endswith("_after_accept"):
        work()
    if fault.kind.startswith("timeout"):
        await request.app[CLOSING].wait()
        return web.Response(status=503)
    if fault.kind.startswith("reset"):
        return _reset(request)
    if fault.kind == "slow":
        return work()
    if fault.kind == "garbage":
        return web.Response(text=GARBAGE, content_type="text/html")
    status = fault.status()
    return voice.no(fault) if status is None else voice.error(status, fault)


def _reset(request: web.Request) -> web.Response:
    """A real RST: without lingering, a closed socket drops what it has not sent."""
    if request.transport is not None:
        sock: Any = request.transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        request.transport.abort()
    return web.Response(status=503)  # nobody is left to read it
