"""A client of the API under test, with a look into its database."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import dataclass
from typing import Any

import aiohttp
from PIL import Image

from vestnik.db.pool import Pool, call

MEDIA_LIMIT = 1024 * 1024  # of one file
BOUNDARY = "a-boundary-of-the-test"


@dataclass
class Api:
    url: str
    pool: Pool
    http: aiohttp.ClientSession
    secret: str

    async def push(
        self, body: Any = None, *, raw: bytes | io.BytesIO | None = None, **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        headers = {"Authorization": f"Bearer {self.secret}", "Content-Type": "application/json"} | headers
        sent = {"data": raw} if raw is not None else {"json": body}
        async with self.http.post(f"{self.url}/v1/push", headers=headers, **sent) as response:
            return response.status, await response.json(content_type=None), dict(response.headers)

    async def push_form(self, *parts: bytes, end: bool = True, **headers: str) -> tuple[int, Any, dict[str, str]]:
        headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"} | headers
        body = b"".join(parts) + (f"--{BOUNDARY}--\r\n".encode() if end else b"")
        return await self.push(raw=io.BytesIO(body), **headers)

    async def get(self, path: str, key: str | None = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        async with self.http.get(f"{self.url}{path}", headers=headers) as response:
            return response.status, await response.json(content_type=None)

    async def ask(
        self, verb: str, path: str, body: Any = None, *, key: str | None = None, by: tuple[str, str] | None = None
    ) -> tuple[int, Any, dict[str, str]]:
        """With a key or a session's token, or as an operator by login and password."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        if by:
            headers["Authorization"] = "Basic " + base64.b64encode(":".join(by).encode()).decode()
        async with self.http.request(verb, f"{self.url}{path}", headers=headers, json=body) as response:
            said = await response.read()
            return response.status, json.loads(said) if said else None, dict(response.headers)

    async def sql(self, query: str, *arguments: Any) -> list[dict[str, Any]]:
        return await call(self.pool, query, arguments)

    async def traces(self) -> dict[str, int]:
        """How many rows a request has left where a post would."""
        tables = ("messages", "deliveries", "ingress_receipts")
        return {t: (await self.sql(f"select count(*) as n from autopost.{t}"))[0]["n"] for t in tables}


def payload_part(payload: Any) -> bytes:
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return form_part("payload", body, content_type="application/json")


def form_part(name: str, data: bytes, file_name: str | None = None, content_type: str = "") -> bytes:
    """As a browser writes it."""
    named = "" if file_name is None else f'; filename="{file_name}"'
    kind = f"Content-Type: {content_type}\r\n" if content_type else ""
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{named}\r\n{kind}\r\n'
    return head.encode() + data + b"\r\n"


def picture(shade: int = 0, side: int = 8) -> bytes:
    """A small picture, another one for each shade."""
    out = io.BytesIO()
    Image.new("RGB", (side, side), (shade, 40, 90)).save(out, "PNG")
    return out.getvalue()
