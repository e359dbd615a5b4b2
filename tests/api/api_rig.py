"""A client of the API under test, with a look into its database."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import aiohttp

from vestnik.db.pool import Pool, call


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

    async def get(self, path: str, key: str | None = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        async with self.http.get(f"{self.url}{path}", headers=headers) as response:
            return response.status, await response.json(content_type=None)

    async def sql(self, query: str, *arguments: Any) -> list[dict[str, Any]]:
        return await call(self.pool, query, arguments)

    async def traces(self) -> dict[str, int]:
        """How many rows a request has left where a post would."""
        tables = ("messages", "deliveries", "ingress_receipts")
        return {t: (await self.sql(f"select count(*) as n from autopost.{t}"))[0]["n"] for t in tables}
