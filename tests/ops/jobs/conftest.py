from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from job_rig import Connection, Hands, Jobs
from psycopg import AsyncConnection
from psycopg.rows import dict_row

from vestnik.db.pool import Pool, make_pool
from vestnik.ops.jobs.registry import JobKind, kinds
from vestnik.ops.jobs.runner import Runner

WORKSPACE = "insert into core.workspaces (workspace_id, name) values (%s, 'a test')"


@pytest.fixture
async def own_jobs(db: Connection) -> Jobs:
    """An active workspace in a database of its own, where a kind called work is declared."""
    jobs = Jobs(db)
    await jobs.sql(WORKSPACE, jobs.workspace)
    await jobs.kind()
    return jobs


@pytest.fixture
async def jobs(worker_database: str) -> AsyncIterator[Jobs]:
    """The same, cheaper, in a database with other workspaces: enough for what stays inside one."""
    async with await AsyncConnection.connect(worker_database, autocommit=True, row_factory=dict_row) as connection:
        jobs = Jobs(connection, f"w-{uuid4().hex}")
        await jobs.sql(WORKSPACE, jobs.workspace)
        await jobs.kind()
        yield jobs


@pytest.fixture
async def hands(worker_database: str, jobs: Jobs) -> AsyncIterator[Hands]:
    """Many connections to the workspace of ``jobs``."""
    hands = Hands(worker_database, jobs)
    yield hands
    await hands.close()


@pytest.fixture
async def run_jobs(database: str, own_jobs: Jobs) -> AsyncIterator[Any]:
    """Starts a runner, with connections of its own; what it was given to do is over when the test ends."""
    running: list[tuple[Runner, asyncio.Task[None], Pool]] = []

    async def start(*declared: JobKind, **how: Any) -> Runner:
        pool = make_pool(database, max_size=4)
        await pool.open()
        runner = Runner(database, pool, kinds(declared), **{"poll": 30.0, "grace": 5.0} | how)
        running.append((runner, asyncio.create_task(runner.run()), pool))
        return runner

    async def end() -> None:
        for runner, _, _ in running:
            runner.stop()
        try:
            async with asyncio.timeout(30):
                await asyncio.gather(*(task for _, task, _ in running))
        finally:
            for _, _, pool in running:
                await pool.close()
            running.clear()

    start.end = end  # type: ignore[attr-defined]
    yield start
    await end()
