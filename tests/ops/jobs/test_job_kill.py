"""Runners that are killed, and a server that goes away in the middle: every job ends done, and is counted once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from vestnik.app import prepare
from vestnik.db.embedded import EmbeddedServer

CHILD = """
import asyncio, sys
from vestnik.db.pool import make_pool
from vestnik.ops.jobs.registry import JobKind, kinds
from vestnik.ops.jobs.runner import Runner

async def work(job):
    with open(sys.argv[2], "a") as log:
        log.write(f"{job.job_id}\\n")
    await asyncio.sleep(0.1)

async def main():
    async with make_pool(sys.argv[1], max_size=4) as pool:
        await Runner(sys.argv[1], pool, kinds([JobKind("work", work)]), concurrency=8, poll=0.05, lease=2).run()

asyncio.run(main())
"""
JOBS = 60
Start = Callable[[str], "subprocess.Popen[bytes]"]


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Start]:
    """Starts a runner in a process of its own; what it began stands in ``began``."""
    running: list[subprocess.Popen[bytes]] = []

    def start(url: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", CHILD, url, str(tmp_path / "began")]
        with (tmp_path / f"runner-{len(running)}.log").open("wb") as log:
            running.append(subprocess.Popen(command, stderr=log, stdout=log))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()


async def sql(url: str, query: str, *arguments: Any) -> list[dict[str, Any]]:
    async with await AsyncConnection.connect(url, autocommit=True, row_factory=dict_row) as connection:
        cursor = await connection.execute(query.encode(), arguments)
        return await cursor.fetchall() if cursor.description else []


async def until(true: Callable[[], Awaitable[bool]], folder: Path, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not await true():
        logs = "".join(path.read_text()[-1500:] for path in folder.glob("*.log"))
        assert time.monotonic() < deadline, logs
        await asyncio.sleep(0.05)


async def fill(url: str) -> None:
    await sql(url, "insert into core.workspaces (workspace_id, name) values ('w', '')")
    await sql(
        url,
        "select * from ops.enqueue_jobs('w', (select jsonb_agg(jsonb_build_object('kind', 'work')) from generate_series(1, %s)))",
        JOBS,
    )


def done(url: str, at_least: int = JOBS) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return (await sql(url, "select count(*) as n from ops.jobs where status = 'done'"))[0]["n"] >= at_least

    return look


async def check(url: str, began: Path) -> dict[str, int]:
    """Each job is done and has one run that says so; each run that began is written down. Returns the runs by outcome."""
    assert await sql(url, "select status, count(*)::integer as n from ops.jobs group by 1") == [
        {"status": "done", "n": JOBS}
    ]
    wrong = await sql(
        url,
        "select j.job_id from ops.jobs j join ops.job_runs r using (workspace_id, job_id) group by j.job_id, j.lease, j.attempt"
        " having count(*) filter (where r.outcome = 'done') <> 1 or count(*) <> j.lease or j.lease <> j.attempt",
    )
    assert wrong == []
    runs = await sql(url, "select outcome, count(*)::integer as n from ops.job_runs group by 1")
    found = {row["outcome"]: row["n"] for row in runs}
    assert len(began.read_text().splitlines()) <= sum(found.values())
    return found


async def test_what_a_killed_runner_held_runs_again_after_its_lease(
    database: str, runner: Start, tmp_path: Path
) -> None:
    await fill(database)
    killed = runner(database)
    await until(done(database, 10), tmp_path)
    killed.send_signal(signal.SIGKILL)
    await asyncio.to_thread(killed.wait)
    held = await sql(database, "select count(*)::integer as n from ops.jobs where status = 'running'")
    assert 0 < held[0]["n"] <= 8, "no more than it ran at once"
    runner(database)
    await until(done(database), tmp_path)
    assert await check(database, tmp_path / "began") == {"done": JOBS, "lost": held[0]["n"]}


async def test_a_runner_outlives_a_restart_of_the_server(
    own_server: EmbeddedServer, runner: Start, tmp_path: Path
) -> None:
    url = own_server.url
    await prepare(url)
    await fill(url)
    process = runner(url)
    for count in (5, 30):
        await until(done(url, count), tmp_path)
        await asyncio.to_thread(own_server.stop, force=True)
        await asyncio.to_thread(own_server.start)
    await until(done(url), tmp_path)
    assert process.poll() is None
    await check(url, tmp_path / "began")


async def test_the_role_of_the_service_runs_jobs_fires_schedules_and_stops_when_it_is_told(
    database: str, tmp_path: Path
) -> None:
    await sql(database, "insert into core.workspaces (workspace_id, name) values ('w', '')")
    await sql(
        database,
        "select ops.put_schedule('w', 's', %s, now())",
        Jsonb({"kind": "source.pull", "every": 1, "payload": {"source_id": "none"}}),
    )
    kept = {k: v for k, v in os.environ.items() if not k.startswith("VESTNIK_")}
    ours = {"VESTNIK_DATABASE_URL": database, "VESTNIK_DATA_DIR": str(tmp_path)}
    with (tmp_path / "role.log").open("wb") as log:
        role = subprocess.Popen(
            [sys.executable, "-m", "vestnik", "run", "jobs"], env=kept | ours, stderr=log, stdout=log
        )
    try:
        await until(lambda: _two_ticks_are_over(database, role), tmp_path)
        role.terminate()
        assert await asyncio.to_thread(role.wait, 30) == 0
    finally:
        role.kill()
        role.wait()
    assert await sql(database, "select 1 from ops.jobs group by tick having count(*) > 1") == []


async def _two_ticks_are_over(url: str, role: subprocess.Popen[bytes]) -> bool:
    assert role.poll() is None
    query = "select count(distinct tick) as n from ops.jobs where finished_at is not null and schedule_id = 's'"
    return bool((await sql(url, query))[0]["n"] >= 2)
