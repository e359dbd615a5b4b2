"""What cannot be in one workspace costs the others neither their results nor their sweeps."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from job_rig import Jobs

from vestnik.db.pool import Pool, make_pool
from vestnik.ops.jobs.housekeeping import FINISHED_JOBS, sweep
from vestnik.ops.jobs.run import Result
from vestnik.ops.jobs.settler import Settler
from vestnik.ops.retention import run


async def neighbours(own_jobs: Jobs) -> tuple[Jobs, Jobs]:
    both = []
    for name in ("aaa", "bbb"):
        other = own_jobs.on(own_jobs.connection)
        other.workspace = name
        await own_jobs.sql("insert into core.workspaces (workspace_id, name) values (%s, '')", name)
        await other.kind()
        both.append(other)
    return both[0], both[1]


async def nothing_moves_in_aaa(own_jobs: Jobs) -> None:
    await own_jobs.sql(
        "create function public.refuse() returns trigger language plpgsql as"
        " $$ begin raise exception 'not this one' using errcode = '22008'; end $$"
    )
    await own_jobs.sql(
        "create trigger refuse before update or delete on ops.jobs for each row"
        " when (old.workspace_id = 'aaa') execute function public.refuse()"
    )


async def status(jobs: Jobs, job_id: UUID) -> str:
    return await jobs.value("select status from ops.jobs where job_id = %s", job_id)


async def test_a_result_that_cannot_be_written_is_left_to_its_lease(own_jobs: Jobs, pool: Pool) -> None:
    rows = [(jobs, await jobs.begun()) for jobs in await neighbours(own_jobs)]
    await nothing_moves_in_aaa(own_jobs)
    settler = Settler(pool, lambda _: None)
    for jobs, row in rows:
        settler.put(Result(jobs.workspace, row["job_id"], row["lease"], "done"))
    settler.close()
    async with asyncio.timeout(10):
        await settler.run()
    assert [await status(jobs, row["job_id"]) for jobs, row in rows] == ["running", "done"]


async def test_a_lock_in_one_workspace_holds_up_the_results_of_no_other(
    own_jobs: Jobs, pool: Pool, database: str
) -> None:
    rows = [(jobs, await jobs.begun()) for jobs in await neighbours(own_jobs)]
    async with make_pool(database, max_size=2, lock_timeout=0.05) as impatient:
        settler = Settler(impatient, lambda _: None)
        for jobs, row in rows:
            settler.put(Result(jobs.workspace, row["job_id"], row["lease"], "done"))
        settler.close()
        async with own_jobs.connection.transaction():
            await own_jobs.sql("select from ops.jobs where workspace_id = 'aaa' for update")
            running = asyncio.create_task(settler.run())
            async with asyncio.timeout(10):
                while await status(rows[1][0], rows[1][1]["job_id"]) != "done":
                    await asyncio.sleep(0.01)
            assert await status(rows[0][0], rows[0][1]["job_id"]) == "running"
        async with asyncio.timeout(10):
            await running
    assert await status(rows[0][0], rows[0][1]["job_id"]) == "done"


async def test_a_workspace_that_cannot_be_swept_or_pruned_stops_no_other(own_jobs: Jobs, pool: Pool) -> None:
    own_jobs.now = datetime(2020, 3, 1, tzinfo=UTC)
    both = await neighbours(own_jobs)
    runs: list[Any] = [await jobs.begun() for jobs in both]
    ended = [await jobs.begun() for jobs in both]
    for jobs, row in zip(both, ended, strict=True):
        await jobs.came_to(row)
    await nothing_moves_in_aaa(own_jobs)
    assert await sweep(pool) == 1
    assert [await status(jobs, row["job_id"]) for jobs, row in zip(both, runs, strict=True)] == ["running", "retry"]
    done = await run(pool, [FINISHED_JOBS])
    assert (done["removed"], list(done["failed"])) == ({"jobs": 1}, ["aaa/jobs"])
