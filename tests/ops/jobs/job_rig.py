"""A small driver of the job functions, for tests that tell a story: one workspace, and a clock in hand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import DictRow, dict_row
from psycopg.types.json import Jsonb

Connection = AsyncConnection[DictRow]
Row = dict[str, Any]
T = TypeVar("T")
START = datetime(2027, 3, 1, 12, 0, tzinfo=UTC)
PLAIN: Row = {
    "concurrency": None, "max_attempts": 5, "backoff_base": 2, "backoff_factor": 2, "backoff_max": 600, "backoff_jitter": 0,
}  # fmt: skip


class Jobs:
    """Every call passes ``now``: nothing here waits, time moves by ``wait``."""

    def __init__(self, connection: Connection, workspace: str = "w") -> None:
        self.connection, self.workspace, self.now = connection, workspace, START

    def on(self, connection: Connection) -> Jobs:
        other = Jobs(connection, self.workspace)
        other.now = self.now
        return other

    def wait(self, **duration: float) -> None:
        self.now += timedelta(**duration)

    async def sql(self, query: str, *arguments: Any) -> list[DictRow]:
        cursor = await self.connection.execute(query.encode(), arguments)
        return await cursor.fetchall() if cursor.description else []

    async def value(self, query: str, *arguments: Any) -> Any:
        row = (await self.sql(query, *arguments))[0]
        return next(iter(row.values()))

    async def kind(self, name: str = "work", **declared: Any) -> None:
        await self.sql(
            "select ops.declare_kinds(%s, %s, %s)", self.workspace, Jsonb([{"kind": name} | PLAIN | declared]), self.now
        )

    async def enqueue(self, kind: str = "work", payload: Any = None, **job: Any) -> UUID:
        return (await self.enqueue_all({"kind": kind, "payload": payload or {}} | job))[0]["job_id"]

    async def enqueue_all(self, *jobs: Any) -> list[DictRow]:
        given = [{k: v.isoformat() if isinstance(v, datetime) else v for k, v in job.items()} for job in jobs]
        return await self.sql(
            "select * from ops.enqueue_jobs(%s, %s, %s) order by item", self.workspace, Jsonb(given), self.now
        )

    async def claim(
        self, limit: int = 100, kinds: Sequence[str] = ("work",), worker: str = "runner-1", lease: float = 60
    ) -> list[DictRow]:
        return await self.sql(
            "select * from ops.claim_jobs(%s, %s, %s, %s, %s, %s)",
            self.workspace, worker, list(kinds), limit, timedelta(seconds=lease), self.now,
        )  # fmt: skip

    async def begun(self, kind: str = "work", **job: Any) -> DictRow:
        """One new job, claimed."""
        job_id = await self.enqueue(kind, **job)
        (row,) = [row for row in await self.claim(kinds=[kind]) if row["job_id"] == job_id]
        return row

    async def settle(self, *results: Row) -> dict[UUID, str]:
        rows = await self.sql("select * from ops.settle_jobs(%s, %s, %s)", self.workspace, Jsonb(results), self.now)
        return {row["job_id"]: row["outcome"] for row in rows}

    async def came_to(self, row: Row, outcome: str = "done", **more: Any) -> str:
        """The run that ``row`` began came to ``outcome``; returns what was made of that."""
        result = {"job_id": str(row["job_id"]), "lease": row["lease"], "outcome": outcome} | more
        return (await self.settle(result))[row["job_id"]]

    async def beat(self, *rows: Row, lease: float = 60, **more: Any) -> dict[tuple[UUID, int], str]:
        beats = [{"job_id": str(row["job_id"]), "lease": row["lease"]} | more for row in rows]
        told = await self.sql(
            "select * from ops.heartbeat_jobs(%s, %s, %s, %s)",
            self.workspace, Jsonb(beats), timedelta(seconds=lease), self.now,
        )  # fmt: skip
        return {(row["job_id"], row["lease"]): row["state"] for row in told}

    async def sweep(self) -> int:
        return int(await self.value("select ops.sweep_jobs(%s, 500, %s)", self.workspace, self.now))

    async def cancel(self, job_id: UUID) -> str:
        return str(await self.value("select ops.cancel_job(%s, %s, %s)", self.workspace, job_id, self.now))

    async def retry(self, job_id: UUID) -> None:
        await self.sql("select ops.retry_job(%s, %s, %s)", self.workspace, job_id, self.now)

    async def run_now(self, job_id: UUID) -> None:
        await self.sql("select ops.run_job_now(%s, %s, %s)", self.workspace, job_id, self.now)

    async def prune(self) -> int:
        query = "select ops.prune_jobs(%s, p_now => %s)"
        return int(await self.value(query, self.workspace, self.now))

    async def job(self, job_id: UUID) -> DictRow:
        query = "select * from ops.jobs where workspace_id = %s and job_id = %s"
        return (await self.sql(query, self.workspace, job_id))[0]

    async def runs(self, job_id: UUID) -> list[DictRow]:
        query = "select * from ops.job_runs where workspace_id = %s and job_id = %s order by lease"
        return await self.sql(query, self.workspace, job_id)

    async def outcomes(self, job_id: UUID) -> list[str]:
        return [run["outcome"] for run in await self.runs(job_id)]

    async def errors(self) -> list[DictRow]:
        return await self.sql("select * from ops.errors where workspace_id = %s order by error_id", self.workspace)

    async def statuses(self) -> dict[str, int]:
        query = "select status, count(*) as n from ops.jobs where workspace_id = %s group by 1"
        return {row["status"]: row["n"] for row in await self.sql(query, self.workspace)}


class Hands:
    """Connections that work at the same time, and a way to know that one waits for another."""

    def __init__(self, url: str, driver: Jobs) -> None:
        self._url, self._driver = url, driver
        self._connections: list[Connection] = []

    async def take(self, count: int) -> list[Jobs]:
        new = [await AsyncConnection.connect(self._url, autocommit=True, row_factory=dict_row) for _ in range(count)]
        self._connections += new
        return [self._driver.on(connection) for connection in new]

    async def blocked(self, hand: Jobs, work: Awaitable[T]) -> asyncio.Future[T]:
        """``work``, once it has been begun by ``hand`` and waits for a lock."""
        task = asyncio.ensure_future(work)
        pid = hand.connection.info.backend_pid
        async with asyncio.timeout(10):
            while not await self._driver.value("select cardinality(pg_blocking_pids(%s)) > 0", pid):
                assert not task.done(), "it did not have to wait"
                await asyncio.sleep(0.005)
        return task

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()
