"""What a benchmark stands on: a server of its own in a temporary folder, and fresh databases in it."""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from vestnik.db.embedded import EmbeddedServer
from vestnik.db.embedded.place import ROLE
from vestnik.db.migrate import migrate
from vestnik.errors import VestnikError

MIGRATED = "vestnik"


class BenchError(VestnikError):
    """What was measured did not do what it should have done: its figures would mean nothing."""


@dataclass(frozen=True)
class Ground:
    server: EmbeddedServer
    say: Callable[[str], None]

    async def prepare(self) -> None:
        await migrate(self.server.url)

    @asynccontextmanager
    async def database(self, name: str, template: str = MIGRATED) -> AsyncIterator[str]:
        """The address of a fresh copy of ``template``, for as long as the block lasts."""
        await self.create(name, template)
        try:
            yield self.address(name)
        finally:
            await self.superuser(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))

    async def create(self, name: str, template: str = MIGRATED) -> str:
        copy = sql.SQL("create database {} owner {} template {}")
        await self.superuser(copy.format(*map(sql.Identifier, (name, ROLE, template))))
        return self.address(name)

    def address(self, name: str) -> str:
        return self.server.url.replace("/vestnik?", f"/{name}?")

    async def settle(self, url: str) -> None:
        """Statistics as they would be, and every page's first change after a checkpoint still to come."""
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            await connection.execute("vacuum analyze")
        await self.superuser(sql.SQL("checkpoint"))

    async def wal_position(self) -> int:
        return int((await self.superuser(sql.SQL("select pg_current_wal_insert_lsn() - '0/0'")))[0])

    async def superuser(self, query: sql.SQL | sql.Composed) -> tuple[Any, ...]:
        where = self.server.superuser_url
        async with await psycopg.AsyncConnection.connect(where, autocommit=True) as connection:
            cursor = await connection.execute(query)
            return (await cursor.fetchone() or ()) if cursor.description else ()

    async def machine(self) -> dict[str, Any]:
        version = (await self.superuser(sql.SQL("show server_version")))[0]
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return {
            "cores": os.cpu_count(),
            "memory_gb": round(memory / 2**30),
            "postgresql": version,
            "python": platform.python_version(),
            "commit_ms": await self._commit_ms(),
        }

    async def _commit_ms(self, times: int = 25) -> float:
        """How long this disk takes to make one small transaction durable: no figure can be read without it."""
        taken = []
        async with await psycopg.AsyncConnection.connect(self.server.url, autocommit=True) as connection:
            await connection.execute("create table if not exists public.bench_commit (n integer)")
            for n in range(times):
                began = time.perf_counter()
                await connection.execute("insert into public.bench_commit values (%s)", (n,))
                taken.append(time.perf_counter() - began)
            await connection.execute("drop table public.bench_commit")
        return round(statistics.median(taken) * 1000, 2)


@contextmanager
def fresh_server(version: int) -> Iterator[EmbeddedServer]:
    """With the durability and the settings that Vestnik ships; nothing of it is left behind."""
    folder = Path(tempfile.mkdtemp(prefix="vestnik-bench-"))
    # As root the server runs as another user, who has to pass through.
    folder.chmod(0o711)
    server = EmbeddedServer(folder, version)
    cluster: Path | None = None
    try:
        with server.running():
            cluster = server.status().folder
            yield server
    finally:
        shutil.rmtree(folder)
        if cluster is not None and not cluster.is_relative_to(folder):
            shutil.rmtree(cluster.parent)
