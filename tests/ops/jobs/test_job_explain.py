"""What waits and may not go costs a claim nothing. Plans and pages are looked at, not clocks."""

from __future__ import annotations

import pytest
from job_rig import Jobs

pytestmark = pytest.mark.pg16

BACKLOG = """
insert into ops.jobs (workspace_id, job_id, kind, status, run_at, created_at)
select 'w', core.nth_uuid(b.base, n), %s, 'waiting', now() + %s, now()
from generate_series(1, %s) n, (select core.uuid7(now() - interval '1 day') as base offset 0) b
"""
CLAIM = "select * from ops.claim_jobs('w', 'r', '{work,paused,later,full}', 10)"
ASK = "select * from ops.workspaces_with_jobs('{work,paused,later,full}')"


async def pages(jobs: Jobs, query: str) -> int:
    for _ in range(3):  # the first calls plan
        await jobs.sql(query)
    plan = (await jobs.sql(f"explain (analyze, buffers, format json) {query}"))[0]["QUERY PLAN"][0]["Plan"]
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])


async def pile(jobs: Jobs, count: int) -> None:
    """So many each of a paused kind, of a kind with no place left, and of one whose time has not come."""
    for kind, when in (("paused", "-1 hour"), ("full", "-1 hour"), ("later", "1 day")):
        await jobs.sql(BACKLOG, kind, when, count)
    await jobs.sql("vacuum analyze ops.jobs")


@pytest.fixture
async def crowded(own_jobs: Jobs) -> Jobs:
    await pile(own_jobs, 300)
    await own_jobs.kind("full", concurrency=1)
    await own_jobs.sql("select ops.pause_kind('w', 'paused')")
    assert len(await own_jobs.sql(CLAIM)) == 1, "the only place of the full kind is taken"
    return own_jobs


@pytest.mark.parametrize("query", [CLAIM, ASK], ids=["a claim", "the question who has work"])
async def test_a_backlog_that_may_not_go_costs_nothing(crowded: Jobs, query: str) -> None:
    few = await pages(crowded, query)
    await pile(crowded, 100_000)
    many = await pages(crowded, query)
    assert many <= few + 40, (few, many)


@pytest.mark.parametrize(
    "query",
    [
        "select * from ops.jobs where workspace_id = 'w' and kind = 'work' and status in ('waiting', 'retry') order by priority desc, run_at limit 5",
        "select count(*) from ops.jobs where workspace_id = 'w' and kind = 'work' and status = 'running'",
        "select * from ops.jobs where workspace_id = 'w' and kind = 'work' and unique_key = 'k' and status in ('waiting', 'retry', 'running')",
        "select * from ops.jobs where workspace_id = 'w' and status = 'dead'",
        "select * from ops.job_runs where workspace_id = 'w' and job_id = (select core.uuid7(now()))",
        "select * from ops.jobs where workspace_id = 'w' order by job_id desc limit 50",
    ],
)
async def test_what_programs_and_people_ask_finds_an_index(crowded: Jobs, query: str) -> None:
    await pile(crowded, 3_000)
    plan = "\n".join(row["QUERY PLAN"] for row in await crowded.sql(f"explain {query}"))
    assert "Seq Scan on jobs" not in plan, plan


async def test_a_settle_and_a_sign_of_life_go_by_the_key_whatever_the_statistics_say(own_jobs: Jobs) -> None:
    """Statistics of a moment when nothing ran call the partial index on what runs empty."""
    await pile(own_jobs, 30_000)
    await own_jobs.sql(BACKLOG, "work", "-1 hour", 200)
    rows = await own_jobs.sql("select * from ops.claim_jobs('w', 'r', '{work}', 200)")
    one = f'[{{"job_id": "{rows[0]["job_id"]}", "lease": 1, "outcome": "done"}}]'
    assert await pages(own_jobs, f"select * from ops.heartbeat_jobs('w', '{one}')") < 150
    assert await pages(own_jobs, f"select * from ops.settle_jobs('w', '{one}')") < 150
