"""What is not a job is refused in words, and nothing of it is kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from job_rig import Jobs
from psycopg.types.json import Jsonb

from vestnik.db.pool import Pool
from vestnik.errors import ConfigError, IllegalMove, InvalidPayload, NotFound
from vestnik.ops.jobs import verbs
from vestnik.ops.jobs.registry import Backoff, JobKind, kinds

WRONG: list[tuple[Any, str]] = [
    ({}, "kind is a word"),
    ({"kind": "Über"}, "kind is a word"),
    ({"kind": "x" * 65}, "kind is a word"),
    ({"kind": 5}, "kind is a word"),
    ("work", "a job is an object"),
    (None, "a job is an object"),
    ({"kind": "work", "payload": [1]}, "payload is an object"),
    ({"kind": "work", "payload": "text"}, "payload is an object"),
    ({"kind": "work", "payload": {"text": "x" * (1 << 20)}}, "payload is larger than 256 KiB"),
    ({"kind": "work", "unique_key": ""}, "unique_key has 1 to 200 letters"),
    ({"kind": "work", "unique_key": "x" * 201}, "unique_key has 1 to 200 letters"),
    ({"kind": "work", "trace_id": "x" * 101}, "trace_id has at most 100 letters"),
    ({"kind": "work", "priority": 101}, "priority is a whole number"),
    ({"kind": "work", "priority": 1.5}, "priority is a whole number"),
    ({"kind": "work", "priority": "high"}, "priority is a whole number"),
    ({"kind": "work", "max_attempts": 0}, "max_attempts is a whole number"),
    ({"kind": "work", "max_attempts": 10000}, "max_attempts is a whole number"),
    ({"kind": "work", "run_at": "tomorrow noon"}, "run_at is a moment"),
    ({"kind": "work", "run_at": "infinity"}, "run_at is a moment"),
    ({"kind": "work", "run_at": "0044-03-15 BC"}, "run_at is a moment"),
    ({"kind": "work", "run_at": 1798794000}, "run_at is a moment"),
    ({"kind": "work", "tick": [1]}, "tick is a moment"),
]


@pytest.mark.pg16
@pytest.mark.parametrize(("job", "problem"), WRONG, ids=lambda value: str(value)[:50])
async def test_a_wrong_job_is_refused_by_name_with_all_that_came_with_it(jobs: Jobs, job: Any, problem: str) -> None:
    with pytest.raises(psycopg.Error) as refused:
        await jobs.sql("select ops.enqueue_jobs(%s, %s)", jobs.workspace, Jsonb([{"kind": "work"}, job]))
    assert refused.value.sqlstate == "VP001"
    assert problem in str(refused.value.diag.message_detail)
    assert await jobs.statuses() == {}


@pytest.mark.pg16
@pytest.mark.parametrize("jobs_", ['{"kind": "work"}', '"work"', "null"])
async def test_jobs_that_are_no_list_are_refused(jobs: Jobs, jobs_: str) -> None:
    with pytest.raises(psycopg.Error, match="jobs come as an array"):
        await jobs.sql("select ops.enqueue_jobs(%s, %s::jsonb)", jobs.workspace, jobs_)


@pytest.mark.pg16
async def test_no_jobs_at_all_are_no_mistake(jobs: Jobs) -> None:
    assert await jobs.enqueue_all() == []


async def test_an_unknown_workspace_is_not_found(pool: Pool) -> None:
    with pytest.raises(NotFound, match="no workspace nowhere"):
        await verbs.enqueue(pool, "nowhere", "work")
    with pytest.raises(NotFound, match="no workspace nowhere"):
        await verbs.put_schedule(pool, "nowhere", "s", "work", every=timedelta(hours=1))
    with pytest.raises(NotFound, match="no workspace nowhere"):
        await verbs.pause_kind(pool, "nowhere", "work")


@pytest.mark.parametrize(
    "payload",
    [{"text": "a\0b"}, {"text": "\ud800"}, {"x": float("nan")}, {"x": object()}],
    ids=["NUL", "half a pair", "NaN", "an object"],
)
async def test_what_is_no_json_is_refused_in_words(pool: Pool, payload: dict[str, Any]) -> None:
    with pytest.raises(InvalidPayload, match="it cannot be stored as JSON"):
        await verbs.enqueue(pool, "*", "work", payload)
    assert await verbs.list_jobs(pool) == []


async def test_every_wrong_job_of_many_is_named(pool: Pool) -> None:
    jobs = [verbs.NewJob("work"), verbs.NewJob("Work"), verbs.NewJob("work", priority=1000)]
    with pytest.raises(InvalidPayload) as refused:
        await verbs.enqueue_many(pool, "*", jobs)
    assert [problem.split(":")[0] for problem in refused.value.problems] == ["job 2", "job 3"]
    assert await verbs.list_jobs(pool) == []


async def test_an_order_for_a_job_that_cannot_take_it_says_why(own_jobs: Jobs, pool: Pool) -> None:
    job_id = await own_jobs.enqueue()
    with pytest.raises(IllegalMove, match="is waiting: only a dead or cancelled one can be retried"):
        await verbs.retry_job(pool, "w", job_id)
    await own_jobs.came_to((await own_jobs.claim())[0])
    with pytest.raises(IllegalMove, match="is done: there is nothing to cancel"):
        await verbs.cancel_job(pool, "w", job_id)
    with pytest.raises(IllegalMove, match="is done: only one that waits can be run now"):
        await verbs.run_job_now(pool, "w", job_id)
    for verb in (verbs.retry_job, verbs.cancel_job, verbs.run_job_now, verbs.show_job):
        with pytest.raises(NotFound, match="no job"):
            await verb(pool, "w", uuid4())  # type: ignore[operator]


async def test_a_misspelt_kind_is_not_paused(own_jobs: Jobs, pool: Pool) -> None:
    with pytest.raises(NotFound, match="no job of the kind wrok was ever seen in workspace w"):
        await verbs.pause_kind(pool, "w", "wrok")
    await own_jobs.enqueue("new")
    assert await verbs.pause_kind(pool, "w", "new")
    assert not await verbs.pause_kind(pool, "w", "new"), "it was paused already"


async def test_a_status_that_does_not_exist_is_named(pool: Pool) -> None:
    with pytest.raises(NotFound, match="no job can be 'lost'"):
        await verbs.list_jobs(pool, status="lost")


@pytest.mark.pg16
async def test_an_outcome_that_does_not_exist_settles_nothing(jobs: Jobs) -> None:
    row = await jobs.begun()
    with pytest.raises(psycopg.Error, match='a run does not come to "finished"'):
        await jobs.came_to(row, "finished")
    assert await jobs.statuses() == {"running": 1}


@pytest.mark.parametrize(
    ("schedule", "problem"),
    [
        ({"kind": "No Kind"}, "kind is a word"),
        ({"schedule_id": "with space"}, "its id has"),
        ({"payload": {"x": "y" * (1 << 20)}}, "payload is larger"),
        ({"priority": 999}, "priority is a whole number"),
        ({"missed": "sometimes"}, "missed is skip, once or all"),
    ],
)
async def test_a_wrong_schedule_is_refused_by_name(pool: Pool, schedule: dict[str, Any], problem: str) -> None:
    given = {"schedule_id": "s", "kind": "work", "every": timedelta(hours=1)} | schedule
    with pytest.raises(InvalidPayload, match=problem):
        await verbs.put_schedule(pool, "*", **given)
    assert await verbs.list_schedules(pool) == []


@pytest.mark.pg16
@pytest.mark.parametrize(
    ("definition", "problem"),
    [
        ([], "its definition is an object"),
        ({"kind": "work"}, "it has either cron or every"),
        ({"kind": "work", "every": 60, "cron": "* * * * *"}, "it has either cron or every"),
        ({"kind": "work", "every": "often"}, "every is a number of seconds"),
        ({"kind": "work", "every": 0.5}, "every is a number of seconds"),
        ({"kind": "work", "every": 60, "overlap": "no"}, "overlap and enabled are true or false"),
        ({"every": 60}, "kind is a word"),
    ],
)
async def test_a_wrong_definition_is_refused_by_the_database_too(jobs: Jobs, definition: Any, problem: str) -> None:
    with pytest.raises(psycopg.Error) as refused:
        await jobs.sql("select ops.put_schedule(%s, 's', %s, now())", jobs.workspace, Jsonb(definition))
    assert refused.value.sqlstate == "VP001"
    assert problem in str(refused.value.diag.message_detail)


async def _nothing(_: object) -> None: ...


def test_a_kind_that_cannot_be_is_refused_where_it_is_declared() -> None:
    with pytest.raises(ConfigError, match="is no name"):
        JobKind("Work", _nothing)
    with pytest.raises(ConfigError, match="soft limit"):
        JobKind("work", _nothing, soft_limit=10, hard_limit=5)
    with pytest.raises(ConfigError, match="at least one attempt"):
        JobKind("work", _nothing, max_attempts=0)
    with pytest.raises(ConfigError, match="at least one attempt and one place"):
        JobKind("work", _nothing, concurrency=0)
    with pytest.raises(ConfigError, match="no backoff"):
        Backoff(factor=0.5)
    with pytest.raises(ConfigError, match="two kinds of jobs are called work"):
        kinds([JobKind("work", _nothing), JobKind("work", _nothing)])


async def test_a_moment_keeps_its_time_zone(own_jobs: Jobs, pool: Pool) -> None:
    at = datetime(2030, 6, 1, 12, tzinfo=UTC)
    enqueued = await verbs.enqueue(pool, "w", "work", run_at=at)
    assert (await verbs.show_job(pool, "w", enqueued.job_id))["run_at"] == at
