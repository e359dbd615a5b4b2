"""From the enqueue to the end: what goes when, how often, and what is left behind."""

from __future__ import annotations

from datetime import timedelta

import pytest
from job_rig import Jobs

pytestmark = pytest.mark.pg16


async def test_a_job_is_done_once_and_leaves_one_run(jobs: Jobs) -> None:
    job_id = await jobs.enqueue(payload={"n": 1})
    (row,) = await jobs.claim()
    assert (row["job_id"], row["lease"], row["attempt"], row["payload"]) == (job_id, 1, 1, {"n": 1})
    began = jobs.now
    jobs.wait(seconds=3)
    assert await jobs.came_to(row, stats={"items": 7}) == "done"
    assert await jobs.claim() == []
    job = await jobs.job(job_id)
    assert (job["status"], job["attempt"], job["finished_at"], job["last_error"]) == ("done", 1, jobs.now, None)
    (run,) = await jobs.runs(job_id)
    assert (run["outcome"], run["attempt"], run["stats"], run["worker"]) == ("done", 1, {"items": 7}, "runner-1")
    assert (run["started_at"], run["finished_at"]) == (began, jobs.now)
    assert await jobs.errors() == []


async def test_higher_priorities_go_first_then_the_earlier_then_the_order_of_enqueue(jobs: Jobs) -> None:
    await jobs.enqueue_all(
        {"kind": "work", "payload": {"n": "third"}, "priority": 0},
        {"kind": "other", "payload": {"n": "fourth"}, "priority": 0},
        {"kind": "work", "payload": {"n": "second"}, "priority": 0, "run_at": jobs.now - timedelta(minutes=1)},
        {"kind": "work", "payload": {"n": "last"}, "priority": -5, "run_at": jobs.now - timedelta(hours=9)},
        {"kind": "other", "payload": {"n": "first"}, "priority": 100},
    )
    seen = []
    for _ in range(6):
        seen += [row["payload"]["n"] for row in await jobs.claim(1, ("work", "other"))]
    assert seen == ["first", "second", "third", "fourth", "last"]


async def test_a_claim_of_many_takes_the_most_important_ones(jobs: Jobs) -> None:
    await jobs.enqueue_all(*({"kind": "work", "priority": n % 10} for n in range(40)))
    claimed = [row["job_id"] for row in await jobs.claim(8)]
    priorities = [(await jobs.job(job_id))["priority"] for job_id in claimed]
    assert sorted(priorities) == [8] * 4 + [9] * 4


async def test_nothing_begins_before_its_time(jobs: Jobs) -> None:
    await jobs.enqueue(run_at=jobs.now + timedelta(hours=1))
    jobs.wait(minutes=59, seconds=59)
    assert await jobs.claim() == []
    jobs.wait(seconds=1)
    assert len(await jobs.claim()) == 1


async def test_a_failure_waits_longer_each_time_and_the_last_one_is_a_dead_letter(jobs: Jobs) -> None:
    await jobs.kind(max_attempts=4, backoff_base=3, backoff_factor=4, backoff_max=20)
    job_id = await jobs.enqueue(trace_id="trace-1")
    error = {"type": "ValueError", "message": "it is broken"}
    for attempt, pause in enumerate([3, 12, 20], start=1):
        (row,) = await jobs.claim()
        assert row["attempt"] == row["lease"] == attempt
        assert await jobs.came_to(row, "retry", error=error) == "retry"
        assert (await jobs.job(job_id))["run_at"] == jobs.now + timedelta(seconds=pause)
        jobs.wait(seconds=pause - 0.001)
        assert await jobs.claim() == []
        jobs.wait(seconds=0.001)
    (row,) = await jobs.claim()
    assert await jobs.came_to(row, "retry", error=error) == "dead"
    jobs.wait(days=1)
    assert await jobs.claim() == []
    assert await jobs.outcomes(job_id) == ["retry", "retry", "retry", "dead"]
    assert (await jobs.job(job_id))["last_error"] == error
    (told,) = await jobs.errors()
    assert (told["job_id"], told["workflow"], told["message"], told["trace_id"]) == (
        job_id, "work", "it is broken", "trace-1",
    )  # fmt: skip


async def test_jitter_only_lengthens_a_pause_and_only_so_much(jobs: Jobs) -> None:
    await jobs.kind(backoff_base=10, backoff_jitter=0.5)
    await jobs.enqueue_all(*({"kind": "work"} for _ in range(30)))
    pauses = set()
    for row in await jobs.claim():
        await jobs.came_to(row, "retry")
        pauses.add(((await jobs.job(row["job_id"]))["run_at"] - jobs.now).total_seconds())
    assert all(10 <= pause <= 15 for pause in pauses)
    assert len(pauses) > 5, "and it is not always the same"


async def test_a_handler_may_say_when_to_try_again(jobs: Jobs) -> None:
    row = await jobs.begun()
    assert await jobs.came_to(row, "retry", after=90) == "retry"
    assert (await jobs.job(row["job_id"]))["run_at"] == jobs.now + timedelta(seconds=90)


async def test_a_job_may_have_attempts_of_its_own(jobs: Jobs) -> None:
    row = await jobs.begun(max_attempts=1)
    assert await jobs.came_to(row, "retry") == "dead"


async def test_what_cannot_succeed_is_a_dead_letter_at_once(jobs: Jobs) -> None:
    row = await jobs.begun()
    error = {"type": "JobFailed", "code": "gone", "message": "there is no such thing"}
    assert await jobs.came_to(row, "failed", error=error) == "dead"
    assert [e["message"] for e in await jobs.errors()] == ["there is no such thing"]


async def test_a_snooze_is_no_attempt(jobs: Jobs) -> None:
    await jobs.kind(max_attempts=2)
    job_id = await jobs.enqueue()
    for lease in range(1, 6):
        (row,) = await jobs.claim()
        assert (row["attempt"], row["lease"]) == (1, lease)
        assert await jobs.came_to(row, "snoozed", after=30) == "snoozed"
        assert await jobs.claim() == []
        jobs.wait(seconds=30)
    assert (await jobs.job(job_id))["status"] == "waiting"
    assert await jobs.outcomes(job_id) == ["snoozed"] * 5


async def test_what_a_stopping_runner_releases_goes_at_once_and_counts_no_attempt(jobs: Jobs) -> None:
    row = await jobs.begun(max_attempts=1)
    assert await jobs.came_to(row, "released") == "released"
    (again,) = await jobs.claim(worker="runner-2")
    assert (again["attempt"], again["lease"]) == (1, 2)
    assert await jobs.came_to(again) == "done"
    assert await jobs.outcomes(row["job_id"]) == ["released", "done"]


async def test_kinds_that_nobody_asked_for_are_left_alone(jobs: Jobs) -> None:
    job_id = await jobs.enqueue("unheard.of")
    assert await jobs.claim(kinds=["work"]) == []
    assert (await jobs.job(job_id))["status"] == "waiting"
    assert len(await jobs.claim(kinds=["work", "unheard.of"])) == 1


async def test_a_kind_that_nobody_declared_runs_with_the_defaults(jobs: Jobs) -> None:
    row = await jobs.begun("undeclared")
    assert await jobs.came_to(row, "retry") == "retry"
    pause = (await jobs.job(row["job_id"]))["run_at"] - jobs.now
    assert timedelta(seconds=2) <= pause <= timedelta(seconds=2.4)


async def test_a_workspace_that_is_not_active_begins_nothing(jobs: Jobs) -> None:
    await jobs.enqueue()
    await jobs.sql("update core.workspaces set status = 'paused' where workspace_id = %s", jobs.workspace)
    assert await jobs.claim() == []
    asked = "select w from ops.workspaces_with_jobs('{work}', '', 100000, %s) w where w = %s"
    assert await jobs.sql(asked, jobs.now, jobs.workspace) == []
    await jobs.sql("update core.workspaces set status = 'active' where workspace_id = %s", jobs.workspace)
    assert len(await jobs.sql(asked, jobs.now, jobs.workspace)) == 1
    assert len(await jobs.claim()) == 1


async def test_the_service_has_jobs_of_its_own(own_jobs: Jobs) -> None:
    own_jobs.workspace = "*"
    job_id = await own_jobs.enqueue()
    assert await own_jobs.sql("select w from ops.workspaces_with_jobs('{work}', '', 10, %s) w", own_jobs.now) == [
        {"w": "*"}
    ]
    (row,) = await own_jobs.claim()
    assert await own_jobs.came_to(row) == "done"
    assert await own_jobs.outcomes(job_id) == ["done"]


async def test_workspaces_take_turns(own_jobs: Jobs) -> None:
    for name in ("a", "b", "c"):
        await own_jobs.sql("insert into core.workspaces (workspace_id, name) values (%s, '')", name)
        own_jobs.workspace = name
        await own_jobs.enqueue()

    async def after(served: str) -> list[str]:
        rows = await own_jobs.sql(
            "select w from ops.workspaces_with_jobs('{work}', %s, 10, %s) w", served, own_jobs.now
        )
        return [row["w"] for row in rows]

    assert await after("") == ["a", "b", "c"]
    assert await after("b") == ["c", "a", "b"]


async def test_a_limit_holds_for_a_kind_in_a_workspace(jobs: Jobs) -> None:
    await jobs.kind(concurrency=3)
    await jobs.enqueue_all(*({"kind": "work"} for _ in range(5)), *({"kind": "other"} for _ in range(5)))
    first = await jobs.claim(kinds=["work", "other"])
    assert sorted(row["kind"] for row in first) == ["other"] * 5 + ["work"] * 3
    assert await jobs.claim() == []
    await jobs.came_to(next(row for row in first if row["kind"] == "work"))
    assert len(await jobs.claim()) == 1


async def test_a_narrow_kind_does_not_stand_in_the_way_of_another(jobs: Jobs) -> None:
    """Its jobs are the more important ones, but only one of them may run."""
    await jobs.kind("narrow", concurrency=1)
    await jobs.enqueue_all(
        *({"kind": "narrow", "priority": 9} for _ in range(20)), *({"kind": "work"} for _ in range(20))
    )
    claimed = await jobs.claim(10, ["narrow", "work"])
    assert sorted(row["kind"] for row in claimed) == ["narrow"] + ["work"] * 9


async def test_what_is_declared_anew_counts_from_then_on(jobs: Jobs) -> None:
    await jobs.kind(concurrency=1)
    await jobs.enqueue_all(*({"kind": "work"} for _ in range(4)))
    assert len(await jobs.claim()) == 1
    await jobs.kind(concurrency=3)
    assert len(await jobs.claim()) == 2


async def test_one_key_has_one_unfinished_job(jobs: Jobs) -> None:
    (first,) = await jobs.enqueue_all({"kind": "work", "unique_key": "k"})
    again = await jobs.enqueue_all(
        {"kind": "work", "unique_key": "k"},
        {"kind": "other", "unique_key": "k"},
        {"kind": "work", "unique_key": "l"},
        {"kind": "work", "unique_key": "l"},
        {"kind": "work"},
    )
    assert first["is_new"]
    assert [row["is_new"] for row in again] == [False, True, True, False, True]
    assert again[0]["job_id"] == first["job_id"]
    assert again[2]["job_id"] == again[3]["job_id"]
    assert await jobs.statuses() == {"waiting": 4}


@pytest.mark.parametrize("end", ["done", "failed", "cancelled"])
async def test_a_key_is_free_when_its_job_has_ended(jobs: Jobs, end: str) -> None:
    row = await jobs.begun(unique_key="k")
    assert not (await jobs.enqueue_all({"kind": "work", "unique_key": "k"}))[0]["is_new"]
    await jobs.came_to(row, end)
    (again,) = await jobs.enqueue_all({"kind": "work", "unique_key": "k"})
    assert again["is_new"]
    assert again["job_id"] != row["job_id"]


async def test_a_key_stays_taken_between_two_tries(jobs: Jobs) -> None:
    row = await jobs.begun(unique_key="k")
    await jobs.came_to(row, "retry")
    assert await jobs.enqueue(unique_key="k") == row["job_id"]
