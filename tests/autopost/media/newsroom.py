"""The whole service as it ships, in front of emulated platforms: what goes in by HTTP, and what the readers see."""

from __future__ import annotations

import asyncio
import io
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from PIL import Image

from vestnik.app import service
from vestnik.autopost import verbs
from vestnik.db.pool import Pool, call, make_pool
from vestnik.ops.secrets.box import SecretBox
from vestnik.ops.secrets.credentials import Credentials
from vestnik.sandbox.faults import parse_faults
from vestnik.sandbox.server import Sandbox, serve
from vestnik.sandbox.site import SiteFile
from vestnik.sandbox.state import Post, State
from vestnik.settings import Settings

TOKENS = {"bot": "1000001:FIRST", "other": "2000002:SECOND"}
ROLES = ("api", "dispatcher", "jobs")


@dataclass
class Newsroom:
    database: str
    folder: Path
    sandbox: Sandbox
    pool: Pool
    http: aiohttp.ClientSession
    secret: str
    fetch_allow: str = "127.0.0.0/8"
    url: str = ""

    @asynccontextmanager
    async def open(self, *roles: str, **settings: Any) -> AsyncIterator[None]:
        """The service, for as long as the block lasts."""
        async with service(self.settings(**settings), self.database, roles or ROLES) as running:
            self.url = running.http_url or self.url
            yield

    def settings(self, **settings: Any) -> Settings:
        return Settings(
            **{
                "_env_file": None,
                "data_dir": self.folder,
                "http_port": 0,
                "telegram_api_url": self.sandbox.telegram_url,
                "max_api_url": self.sandbox.max_url,
                "fetch_allow": self.fetch_allow,
                "dispatch_poll": 0.05,
                "http_timeout": 5.0,
            }
            | settings
        )

    async def sql(self, query: str, *arguments: Any) -> list[dict[str, Any]]:
        return await call(self.pool, query, arguments)

    async def channels(self, platform: str, count: int = 1, *, auth_ref: str = "bot", **settings: Any) -> None:
        already = (await self.sql("select count(*) as n from autopost.channels"))[0]["n"]
        for n in range(already + 1, already + count + 1):
            await self.sql(
                "insert into autopost.channels (workspace_id, channel_id, platform, target_id, auth_ref, rate_group, rate_rps,"
                " settings) values ('w', %s, %s, %s, %s, %s, null, jsonb_strip_nulls(jsonb_build_object('large_image', %s::text)))",
                f"c{n}", platform, f"-{n}", auth_ref, auth_ref, settings.get("large_image"),
            )  # fmt: skip

    async def credential(self, platform: str, auth_ref: str, token: str) -> None:
        credentials = Credentials(self.pool, SecretBox.open(self.folder, None))
        async with self.pool.connection() as connection:
            await credentials.store(connection, "w", platform, auth_ref, token)

    async def push(self, payload: dict[str, Any], **files: bytes) -> dict[str, Any]:
        """Files go along under their names."""
        sent: dict[str, Any] = {"json": payload}
        if files:
            form = aiohttp.FormData(default_to_multipart=True)
            form.add_field("payload", aiohttp.JsonPayload(payload))
            for name, data in files.items():
                form.add_field(name, io.BytesIO(data), filename=f"{name}.bin")
            sent = {"data": form}
        headers = {"Authorization": f"Bearer {self.secret}"}
        async with self.http.post(f"{self.url}/v1/push", headers=headers, **sent) as response:
            return {"status": response.status} | await response.json(content_type=None)

    def put_file(self, name: str, data: bytes, content_type: str = "image/png") -> str:
        self.sandbox.state.site.put(SiteFile(name, content_type, data, 0.0))
        return f"{self.sandbox.url}/files/{name}"

    def fault(self, place: str, kind: str, **fault: Any) -> None:
        """``place``: a platform, or the site."""
        state = self.sandbox.state
        owner = state.site if place == "site" else state.platforms[place]
        owner.faults[:] = parse_faults({"kind": kind, **fault})

    def heal(self) -> None:
        for owner in (self.sandbox.state.site, *self.sandbox.state.platforms.values()):
            owner.faults.clear()

    def uploads(self, platform: str = "telegram") -> int:
        return self.sandbox.state.platforms[platform].counters["uploads"]

    def fetches(self) -> int:
        return self.sandbox.state.site.counters["files"]

    def posts(self, platform: str = "telegram") -> list[Post]:
        chats = self.sandbox.state.platforms[platform].chats.values()
        return [post for chat in chats for post in chat.posts]

    def shown(self, platform: str = "telegram") -> list[str | None]:
        """The hash of every file that readers see."""
        return [media.file.sha256 for post in self.posts(platform) for media in post.media]

    async def statuses(self) -> Counter[str]:
        rows = await self.sql("select status, count(*) as n from autopost.deliveries group by 1")
        return Counter({row["status"]: row["n"] for row in rows})

    async def until(self, true: Callable[[], Awaitable[Any]], what: str, seconds: float = 30) -> None:
        try:
            async with asyncio.timeout(seconds):
                while not await true():
                    await asyncio.sleep(0.01)
        except TimeoutError:
            found = await self.sql(
                "select status, attempt, last_error, not_before::text from autopost.deliveries limit 5"
            )
            raise AssertionError(f"{what}: not within {seconds:g} s; {found}") from None

    async def settled(self, *statuses: str) -> None:
        """Every delivery has come to its end, and all of them to one of these."""

        async def none_left() -> bool:
            found = await self.statuses()
            return bool(found) and not set(found) & {"queued", "claimed", "sending", "retry"}

        await self.until(none_left, "every delivery settled")
        found = await self.statuses()
        errors = await self.sql("select distinct last_error from autopost.deliveries where last_error is not null")
        assert set(found) <= set(statuses or {"sent"}), (found, errors)

    async def gate(self) -> str:
        """Of all deliveries, which have the same."""
        rows = await self.sql(
            "select distinct y.gate from autopost.deliveries d, autopost.why_delivery('w', d.delivery_id) y"
        )
        (row,) = rows
        return str(row["gate"])

    async def error(self) -> dict[str, Any]:
        """The one reason of all deliveries that failed."""
        rows = await self.sql("select distinct last_error from autopost.deliveries where status = 'failed_permanent'")
        (row,) = rows
        return dict(row["last_error"])


@asynccontextmanager
async def newsroom_of(database: str, folder: Path) -> AsyncIterator[Newsroom]:
    """Workspace ``w`` with two bots on each platform and fast retries; nothing runs yet."""
    state = State(lenient=True, ring=1000)
    for platform in state.platforms.values():
        platform.limits.chat_rps = platform.limits.token_rps = None
    async with (
        serve(state=state) as sandbox,
        make_pool(database, max_size=4) as pool,
        aiohttp.ClientSession() as http,
    ):
        await call(pool, "insert into core.workspaces (workspace_id, name) values ('w', 'W')")
        await call(
            pool,
            "insert into autopost.policies (workspace_id, backoff_base, not_ready_backoff, expired_send_backoff, platform_cooldown_for)"
            " values ('w', '20 milliseconds', '20 milliseconds', '20 milliseconds', '20 milliseconds')",
        )
        secret = await verbs.create_endpoint(pool, "w", "site", rps=1000)
        room = Newsroom(database, folder, sandbox, pool, http, secret)
        for platform in ("telegram", "max"):
            for auth_ref, token in TOKENS.items():
                await room.credential(platform, auth_ref, token)
        yield room


def picture(shade: int = 0, *, width: int = 16, height: int = 16) -> bytes:
    """A small picture, another one for each shade."""
    out = io.BytesIO()
    Image.new("RGB", (width, height), (shade, 90, 40)).save(out, "PNG")
    return out.getvalue()


def pictures(count: int) -> dict[str, bytes]:
    return {f"p{n}": picture(n) for n in range(count)}


def named(kind: str, names: Any, **more: Any) -> list[dict[str, Any]]:
    return [{"type": kind, "upload": name, **more} for name in names]
