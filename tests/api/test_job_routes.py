"""Jobs and schedules over HTTP."""

from __future__ import annotations

from whole_rig import OWNER, Whole

from vestnik.db.pool import call
from vestnik.ops import access
from vestnik.ops.jobs.verbs import enqueue


async def test_a_job_is_looked_at_cancelled_and_let_go_again(whole: Whole) -> None:
    key = await access.create_key(whole.api.pool, "shop", "robot", "full")
    job, jobs = whole.known["job_id"], "/v1/workspaces/shop/jobs"
    status, said, _ = await whole.api.ask("POST", f"{jobs}/{job}/retry", key=key)
    assert (status, said["title"]) == (409, "Conflict"), "it waits, so there is nothing to retry"
    assert (await whole.api.ask("POST", f"{jobs}/{job}/cancel", key=key))[1] == {"status": "cancelled"}
    assert (await whole.api.ask("POST", f"{jobs}/{job}/retry", key=key))[1] == {"status": "waiting"}
    _, shown = await whole.api.get(f"{jobs}/{job}", key)
    assert (shown["kind"], shown["status"], shown["runs"]) == ("media.fetch", "waiting", [])
    _, listed = await whole.api.get(f"{jobs}?status=waiting", key)
    assert job in [row["job_id"] for row in listed]


async def test_a_kind_rests_and_a_schedule_fires(whole: Whole) -> None:
    key = await access.create_key(whole.api.pool, "shop", "robot", "full")
    base = "/v1/workspaces/shop"
    answers = [
        (await whole.api.ask("POST", f"{base}/job-kinds/media.fetch/{verb}", key=key))[1]["changed"]
        for verb in ("pause", "pause", "resume", "resume")
    ]
    assert answers == [True, False, True, False]
    first = (await whole.api.ask("POST", f"{base}/schedules/nightly/fire", key=key))[1]
    again = (await whole.api.ask("POST", f"{base}/schedules/nightly/fire", key=key))[1]
    assert (first["is_new"], again) == (True, {"job_id": first["job_id"], "is_new": False})
    _, schedules = await whole.api.get(f"{base}/schedules", key)
    assert {"nightly", "source:feed"} == {row["schedule_id"] for row in schedules}


async def test_the_jobs_of_the_service_are_for_its_own_operators(whole: Whole) -> None:
    job = await enqueue(whole.api.pool, "*", "media.arrivals", {})
    full = await access.create_key(whole.api.pool, "shop", "robot", "full")
    path = f"/v1/workspaces/*/jobs/{job.job_id}"
    assert (await whole.api.get(path, full))[0] == 404
    status, shown, _ = await whole.api.ask("GET", path, by=OWNER)
    assert (status, shown["kind"]) == (200, "media.arrivals")
    assert (await whole.api.get(f"/v1/workspaces/shop/jobs/{job.job_id}", full))[0] == 404
    (row,) = await call(whole.api.pool, "select status from ops.jobs where job_id = %s", (job.job_id,))
    assert row["status"] == "waiting"
