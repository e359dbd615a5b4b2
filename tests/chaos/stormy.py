"""The service under bad weather: real processes, a real server of the test's own, real HTTP to the emulators."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from psycopg import AsyncConnection
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from vestnik.app import prepare
from vestnik.db.pool import make_pool
from vestnik.ops.secrets.box import SecretBox
from vestnik.ops.secrets.credentials import Credentials
from vestnik.sandbox.server import Sandbox, serve
from vestnik.sandbox.state import State

CHANNELS = 12
CONCURRENCY = 12


class Server(Protocol):
    @property
    def url(self) -> str: ...


@dataclass
class Storm:
    server: Server
    sandbox: Sandbox
    folder: Path
    channels: int
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    async def sql(self, query: str, *arguments: Any) -> list[dict[str, Any]]:
        """On a connection of its own each time: the server may have been away in between."""
        async with await AsyncConnection.connect(self.server.url, autocommit=True, row_factory=dict_row) as connection:
            cursor = await connection.execute(query, arguments)
            return await cursor.fetchall() if cursor.description else []

    async def push(self, posts: int) -> None:
        for n in range(posts):
            await self.sql(
                "select * from autopost.enqueue_messages_and_deliveries('w', null, 'webhook_push', %s)",
                Jsonb({"text": f"post {n}"}),
            )

    def dispatcher(self, **settings: str) -> subprocess.Popen[bytes]:
        return self.run("dispatcher", **settings)

    def run(self, *roles: str, **settings: str) -> subprocess.Popen[bytes]:
        """``vestnik run ROLE…`` in a process of its own."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("VESTNIK_")}
        ours = {
            "DATABASE_URL": self.server.url,
            "DATA_DIR": str(self.folder),
            "TELEGRAM_API_URL": self.sandbox.telegram_url,
            "SEND_CONCURRENCY": str(CONCURRENCY),
            "HTTP_PORT": "0",
        } | settings
        with (self.folder / f"service-{len(self.running)}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "vestnik", "run", *roles],
                env=kept | {f"VESTNIK_{k}": v for k, v in ours.items()},
                cwd=self.folder,
                stderr=log,
            )
        self.running.append(process)
        return process

    def log(self) -> str:
        return "".join(path.read_text() for path in sorted(self.folder.glob("service-*.log")))

    async def http_url(self) -> str:
        """Where the API listens, once it says so."""
        said = re.compile(r"http://127\.0\.0\.1:\d+")

        async def told() -> bool:
            return said.search(self.log()) is not None

        await self.until(told, "the API's address")
        found = said.search(self.log())
        assert found is not None
        return found[0]

    async def until(self, true: Callable[[], Awaitable[bool]], what: str, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not await true():
            assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s\n{self.log()[-2000:]}"
            await asyncio.sleep(0.05)

    def arrived(self) -> Counter[tuple[str, str]]:
        """How often each text stands in each chat."""
        chats = self.sandbox.state.platforms["telegram"].chats.values()
        return Counter((chat.chat_id, post.text) for chat in chats for post in chat.posts)

    async def arrived_at_least(self, count: int) -> None:
        async def enough() -> bool:
            return self.arrived().total() >= count

        await self.until(enough, f"{count} posts")

    async def all_sent(self) -> None:
        async def done() -> bool:
            return not await self.sql("select 1 from autopost.deliveries where status <> 'sent' limit 1")

        await self.until(done, "every delivery sent")

    async def check(self, posts: int) -> None:
        """Nothing is lost; what arrived twice is in the events; the story of every delivery adds up."""
        arrived = self.arrived()
        assert set(arrived) == {(f"-{c}", f"post {n}") for c in range(1, self.channels + 1) for n in range(posts)}
        told = await self.sql(
            "select c.target_id, d.rendered_text, d.attempt,"
            " count(*) filter (where e.action = 'send_attempt') as attempts,"
            " count(*) filter (where e.action = 'sent') as sent,"
            " count(*) filter (where e.action in ('sending_lease_expired', 'retry_scheduled')) as uncertain"
            " from autopost.deliveries d join autopost.channels c using (workspace_id, channel_id)"
            " join autopost.events e using (workspace_id, delivery_id) group by 1, 2, 3"
        )
        for row in told:
            assert row["attempts"] == row["attempt"], row
            assert row["sent"] == 1, row
            copies = arrived[row["target_id"], row["rendered_text"]]
            assert copies <= 1 + row["uncertain"], (copies, row)

    async def end(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            await asyncio.to_thread(process.wait)


@asynccontextmanager
async def stormy_on(server: Server, folder: Path) -> AsyncIterator[Storm]:
    """Twelve Telegram channels without a rate; a lost send comes back after two seconds."""
    await prepare(server.url)
    state = State(lenient=True, ring=2000)
    limits = state.platforms["telegram"].limits
    limits.chat_rps = limits.token_rps = None
    async with serve(state=state) as sandbox:
        storm = Storm(server, sandbox, folder, CHANNELS)
        await storm.sql("insert into core.workspaces (workspace_id, name) values ('w', 'W')")
        await storm.sql(
            "insert into autopost.policies (workspace_id, sending_lease, expired_send_backoff, max_attempts)"
            " values ('w', '2 seconds', '100 milliseconds', 50)"
        )
        await storm.sql(
            "insert into autopost.channels (workspace_id, channel_id, platform, target_id, auth_ref, rate_group, rate_rps,"
            " max_parallel) select 'w', 'c' || n, 'telegram', '-' || n, 'bot', 'bot', null, 2 from generate_series(1, %s) n",
            CHANNELS,
        )
        async with make_pool(server.url, max_size=1) as pool, pool.connection() as connection:
            credentials = Credentials(pool, SecretBox.open(folder, None))
            await credentials.store(connection, "w", "telegram", "bot", "1:TOKEN")
        try:
            yield storm
        finally:
            await storm.end()
