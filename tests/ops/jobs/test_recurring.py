"""What the service itself does by the clock: one schedule for each kind, whoever starts how often."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from job_rig import Jobs
from runner_rig import until

from vestnik.autopost.media.blobs import INCOMING, BlobStore
from vestnik.autopost.media.sweep import LONGEST_ARRIVAL, arrivals_sweep
from vestnik.db.pool import Pool
from vestnik.errors import NotFound
from vestnik.ops.jobs import verbs
from vestnik.ops.jobs.recurring import Recurring, put_recurring
from vestnik.ops.jobs.registry import JobContext, JobKind, Stats
from vestnik.storage import open_store


async def nothing(job: JobContext) -> Stats:
    return {}


async def test_every_start_finds_the_same_schedule_with_the_same_next_tick(own_jobs: Jobs, pool: Pool) -> None:
    kept = Recurring(JobKind("tidy", nothing), every=timedelta(hours=1))
    await put_recurring(pool, [kept])
    (first,) = await verbs.list_schedules(pool)
    await put_recurring(pool, [kept])
    (second,) = await verbs.list_schedules(pool)
    assert (first["workspace_id"], first["schedule_id"], first["kind"]) == ("*", "service:tidy", "tidy")
    assert second["next_at"] == first["next_at"]


async def test_a_newer_release_may_do_it_at_other_times(own_jobs: Jobs, pool: Pool) -> None:
    kind = JobKind("tidy", nothing)
    await put_recurring(pool, [Recurring(kind, every=timedelta(hours=1))])
    await put_recurring(pool, [Recurring(kind, cron="30 3 * * *", missed="skip")])
    (schedule,) = await verbs.list_schedules(pool)
    assert (schedule["cron"], schedule["every"], schedule["missed"]) == ("30 3 * * *", None, "skip")
    assert (schedule["next_at"].hour, schedule["next_at"].minute) == (3, 30)


async def test_what_somebody_paused_stays_paused_over_a_start(own_jobs: Jobs, pool: Pool) -> None:
    kept = Recurring(JobKind("tidy", nothing), every=timedelta(hours=1))
    await put_recurring(pool, [kept])
    await verbs.pause_kind(pool, "*", "tidy")
    await put_recurring(pool, [kept])
    assert await verbs.pause_kind(pool, "*", "tidy") is False


async def test_it_can_be_had_now_once_and_its_ticks_stay(own_jobs: Jobs, pool: Pool) -> None:
    await put_recurring(pool, [Recurring(JobKind("tidy", nothing), every=timedelta(hours=1))])
    (before,) = await verbs.list_schedules(pool)
    first = await verbs.fire_schedule_now(pool, "*", "service:tidy")
    again = await verbs.fire_schedule_now(pool, "*", "service:tidy")
    assert (first.is_new, again.is_new, again.job_id) == (True, False, first.job_id)
    assert await verbs.list_schedules(pool) == [before]
    with pytest.raises(NotFound, match="no schedule service:other"):
        await verbs.fire_schedule_now(pool, "*", "service:other")


async def test_files_that_broke_off_on_their_way_in_are_swept_by_a_job(
    own_jobs: Jobs, pool: Pool, run_jobs: Any, tmp_path: Path
) -> None:
    sweep = arrivals_sweep(BlobStore(open_store(tmp_path.as_uri())))
    incoming = tmp_path / INCOMING
    incoming.mkdir()
    (incoming / "new").write_bytes(b"half")
    (incoming / "old").write_bytes(b"half")
    long_ago = (incoming / "old").stat().st_mtime - LONGEST_ARRIVAL.total_seconds() - 60
    os.utime(incoming / "old", (long_ago, long_ago))
    await put_recurring(pool, [sweep])
    await run_jobs(sweep.kind)
    job = await verbs.fire_schedule_now(pool, "*", sweep.schedule_id)

    async def done() -> Any:
        shown = await verbs.show_job(pool, "*", job.job_id)
        return shown if shown["status"] == "done" else None

    assert (await until(done))["runs"][0]["stats"] == {"files": 1}
    assert [file.name for file in incoming.iterdir()] == ["new"]
