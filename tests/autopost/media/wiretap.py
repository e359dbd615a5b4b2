"""Stands before an emulated platform, passes everything on, and remembers what was asked."""

from __future__ import annotations

import email.parser
import email.policy
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web


@dataclass(frozen=True, slots=True)
class Asked:
    method: str  # as a plan names it
    target: str
    body: Mapping[str, Any]
    params: Mapping[str, str]


@dataclass(slots=True)
class Wiretap:
    url: str = ""
    asked: list[Asked] = field(default_factory=list)

    def to(self, target: str) -> list[Asked]:
        return [asked for asked in self.asked if asked.target == target]


@asynccontextmanager
async def wiretap(platforms_url: str) -> AsyncIterator[Wiretap]:
    tap = Wiretap()
    async with aiohttp.ClientSession() as http:

        async def passed_on(request: web.Request) -> web.Response:
            raw = await request.read()
            if (asked := _asked(request, raw)) is not None:
                tap.asked.append(asked)
            headers = {name: value for name, value in request.headers.items() if name.lower() != "host"}
            url = f"{platforms_url}{request.rel_url}"
            async with http.request(request.method, url, data=raw, headers=headers) as answer:
                return web.Response(body=await answer.read(), status=answer.status, content_type=answer.content_type)

        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", passed_on)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            tap.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield tap
        finally:
            await runner.cleanup()


def _asked(request: web.Request, raw: bytes) -> Asked | None:
    """Sends only: MAX is asked for places to upload to as well."""
    if request.path.startswith("/telegram/"):
        body = _form(request, raw) if request.content_type == "multipart/form-data" else json.loads(raw)
        return Asked(request.path.rpartition("/")[2], str(body["chat_id"]), body, {})
    if request.path == "/max/messages":
        return Asked("POST /messages", request.query["chat_id"], json.loads(raw), dict(request.query))
    return None


def _form(request: web.Request, raw: bytes) -> dict[str, str]:
    """The fields of a form that are no files."""
    head = f"Content-Type: {request.headers['Content-Type']}\r\n\r\n".encode()
    message = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + raw)
    parts = [part for part in message.iter_parts() if part.get_filename() is None]
    return {
        str(part.get_param("name", header="Content-Disposition")): part.get_payload(decode=True).decode()
        for part in parts
    }
