"""What the acts play on: sandbox, database, API and dispatcher, all real, talking HTTP."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from vestnik.app import Service, prepare, service
from vestnik.autopost.apply import apply
from vestnik.autopost.declaration import read_declaration
from vestnik.db.embedded.locks import holding
from vestnik.db.home import database
from vestnik.db.pool import Pool, call, make_pool
from vestnik.errors import ConfigError, VestnikError
from vestnik.ops.secrets.box import SecretBox
from vestnik.ops.secrets.credentials import Credentials
from vestnik.sandbox.server import Sandbox, serve
from vestnik.settings import Settings

TELEGRAM_CHANNELS = 30
MAX_CHANNELS = 10
TOPICS = ("news", "sport", "tech", "city", "deals")
T = TypeVar("T")


class Failed(VestnikError):
    """An act did not show what it should have shown."""


@dataclass(frozen=True, slots=True)
class Stage:
    workspace: str
    secret: str
    sandbox: Sandbox
    running: Service
    pool: Pool
    credentials: Credentials
    http: aiohttp.ClientSession

    async def push(self, text: str, **payload: Any) -> dict[str, Any]:
        """A post through the front door. A push that comes too fast waits as it is told to."""
        body = {"text": text, "source_ref": secrets.token_hex(8)} | payload
        while True:
            async with self.http.post(
                f"{self.running.http_url}/v1/push", json=body, headers={"Authorization": f"Bearer {self.secret}"}
            ) as response:
                answer: dict[str, Any] = await response.json(content_type=None)
                if response.status == 429:
                    await asyncio.sleep(float(response.headers["Retry-After"]))
                elif response.status == 202:
                    return answer
                else:
                    raise Failed(f"push was answered {response.status}: {answer}")

    async def sql(self, query: str, *arguments: Any) -> list[dict[str, Any]]:
        return await call(self.pool, query, arguments)

    async def fault(self, platform: str, target: str, **fault: Any) -> None:
        url = f"{self.sandbox.url}/admin/{platform}/chats/{target}/faults"
        async with self.http.put(url, json=fault) as response:
            response.raise_for_status()

    async def texts(self, platform: str, target: str) -> list[str]:
        """What the readers of a chat read."""
        return [post["visible"] for post in await self.posts(platform, target)]

    async def posts(self, platform: str, target: str) -> list[dict[str, Any]]:
        """What the readers of a chat see."""
        async with self.http.get(f"{self.sandbox.url}/admin/{platform}/chats/{target}/posts") as response:
            response.raise_for_status()
            posts: list[dict[str, Any]] = await response.json()
            return posts

    async def add_chat(self, platform: str, target: str, title: str) -> None:
        url = f"{self.sandbox.url}/admin/{platform}/chats/{target}"
        async with self.http.put(url, json={"title": title}) as response:
            response.raise_for_status()

    async def declare(self, **parts: list[dict[str, Any]]) -> None:
        """More of the workspace, as ``vestnik apply`` makes it true."""
        declared = read_declaration({"workspaces": [{"id": self.workspace, **parts}]})
        await apply(self.pool, self.credentials, declared)

    async def read_source(self, source_id: str) -> None:
        """Once, now; returns when it was read."""
        job = await self.sql(
            "select j.job_id, pg_notify('vestnik_jobs', %s)"
            " from ops.enqueue_job(%s, 'source.pull', jsonb_build_object('source_id', %s::text)) j",
            *(self.workspace, self.workspace, source_id),
        )

        async def ended() -> str | None:
            rows = await self.sql(
                "select status from ops.jobs where workspace_id = %s and job_id = %s", self.workspace, job[0]["job_id"]
            )
            return rows[0]["status"] if rows[0]["status"] in ("done", "dead") else None

        if await self.until(ended, f"the reading of {source_id}") == "dead":
            raise Failed(f"{source_id} could not be read")

    async def put_file(self, name: str, content_type: str, data: bytes) -> None:
        """A file of the sandbox's site."""
        url, headers = f"{self.sandbox.url}/admin/files/{name}", {"Content-Type": content_type}
        async with self.http.put(url, data=data, headers=headers) as response:
            response.raise_for_status()

    async def add_items(self, feed: str, items: list[dict[str, Any]]) -> None:
        """To a feed of the sandbox's site."""
        async with self.http.post(f"{self.sandbox.url}/admin/feeds/{feed}/items", json=items) as response:
            response.raise_for_status()

    async def until(self, look: Callable[[], Awaitable[T | None]], what: str, seconds: float = 20) -> T:
        """Looks until there is something to see; raises Failed when there is not in time."""
        deadline = time.monotonic() + seconds
        while True:
            found = await look()
            if found:
                return found
            if time.monotonic() > deadline:
                raise Failed(f"{what}: not within {seconds:g} s")
            await asyncio.sleep(0.05)


@asynccontextmanager
async def stage(settings: Settings, say: Callable[[str], None]) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        stack.enter_context(_alone(settings.data_dir))
        sandbox = await stack.enter_async_context(serve("127.0.0.1", 0))
        settings = settings.model_copy(
            update={
                "telegram_api_url": sandbox.telegram_url,
                "max_api_url": sandbox.max_url,
                "fetch_allow": "127.0.0.1/32",  # the sandbox is where files and feeds are fetched from
            }
        )
        say("starting the database")
        url = await stack.enter_async_context(database(settings))
        await prepare(url)
        pool = await stack.enter_async_context(make_pool(url, max_size=4, name="vestnik demo"))
        http = await stack.enter_async_context(aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)))

        say("declaring 40 channels")
        workspace, secret, tokens = f"demo-{time.strftime('%Y%m%d-%H%M%S')}", secrets.token_urlsafe(24), _tokens()
        await _retire_former_demos(pool)
        key = settings.secret_key.get_secret_value() if settings.secret_key else None
        credentials = Credentials(pool, SecretBox.open(settings.data_dir, key))
        await apply(pool, credentials, read_declaration(declaration(workspace, secret, tokens)))
        await _furnish(http, sandbox, tokens)

        say("starting API, dispatcher and jobs")
        running = await stack.enter_async_context(service(settings, url))
        yield Stage(workspace, secret, sandbox, running, pool, credentials, http)


def _alone(folder: Path) -> AbstractContextManager[None]:
    """Of two demos on one database, each would send the other's posts."""
    folder.mkdir(parents=True, exist_ok=True)
    busy = ConfigError(f"a demo runs in {folder} already", hint="end it, or choose another VESTNIK_DATA_DIR")
    return holding(folder / "demo.lock", timeout=0, or_else=busy)


def declaration(workspace: str, secret: str, tokens: dict[str, str]) -> dict[str, Any]:
    """The demo's workspace as one would write it in YAML for ``vestnik apply``."""
    return {
        "workspaces": [
            {
                "id": workspace,
                "name": "Demo",
                # One hour of pause would be a long demo.
                "policy": {"pause_on_permanent_for": "PT1S", "backoff_base": "PT0.5S"},
                "credentials": [
                    {"platform": platform, "auth_ref": f"{platform}-bot", "token": token}
                    for platform, token in tokens.items()
                ],
                "endpoints": [{"id": "main", "secret": secret, "ingress_rps": 20}],
                "channels": [_numbered_channel(platform, n) for platform, n in _numbered()],
            }
        ]
    }


def target_of(platform: str, n: int) -> str:
    return f"-100{n:04}" if platform == "telegram" else f"-700{n:04}"


def _numbered() -> list[tuple[str, int]]:
    return [
        *(("telegram", n) for n in range(1, TELEGRAM_CHANNELS + 1)),
        *(("max", n) for n in range(1, MAX_CHANNELS + 1)),
    ]


def _numbered_channel(platform: str, n: int) -> dict[str, Any]:
    topic = TOPICS[n % len(TOPICS)]
    return {
        "id": f"{platform}-{n:02}",
        "platform": platform,
        "target": target_of(platform, n),
        "auth_ref": f"{platform}-bot",
        "title": _title(platform, n),
        "tags": [topic],
        "route_filter": {"include_any": [topic, "all"]},
    }


def _title(platform: str, n: int) -> str:
    return f"{TOPICS[n % len(TOPICS)].capitalize()} {n} · {platform}"


def _tokens() -> dict[str, str]:
    return {"telegram": f"7000000001:{secrets.token_urlsafe(16)}", "max": secrets.token_urlsafe(32)}


async def _retire_former_demos(pool: Pool) -> None:
    await call(pool, "update core.workspaces set status = 'disabled' where workspace_id like 'demo-%%'")


async def _furnish(http: aiohttp.ClientSession, sandbox: Sandbox, tokens: dict[str, str]) -> None:
    """Tell the emulated platforms which bots and chats there are."""
    kinds = {"telegram": "channel", "max": "channel"}
    for platform, token in tokens.items():
        async with http.put(f"{sandbox.url}/admin/{platform}/tokens/demo-bot", json={"token": token}) as response:
            response.raise_for_status()
        chats = [
            {"chat_id": target_of(of, n), "title": _title(of, n), "type": kinds[of]}
            for of, n in _numbered()
            if of == platform
        ]
        async with http.put(f"{sandbox.url}/admin/{platform}/chats", json=chats) as response:
            response.raise_for_status()
