"""Random sequences of everything that may be done to jobs, with a ledger kept beside them (``job_ledger.py``).

``VESTNIK_HYPOTHESIS=deep`` makes the sequences longer and many more, for a run by hand.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from job_ledger import ATTEMPTS, BASE, FACTOR, JITTER, LIMITS, LONGEST, UNFINISHED, Job, Ledger, fate, pause_of, verdict
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

pytestmark = pytest.mark.pg16

DEEP = os.environ.get("VESTNIK_HYPOTHESIS") == "deep"
PROFILE = settings(
    max_examples=2000 if DEEP else 100,
    stateful_step_count=80 if DEEP else 40,
    deadline=None,
    print_blob=True,
    report_multiple_bugs=False,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
START = datetime(2027, 3, 1, 12, tzinfo=UTC)
kinds = st.sampled_from(sorted(LIMITS))
new_jobs = st.fixed_dictionaries({
    "kind": kinds,
    "key": st.sampled_from([None, None, "k", "l"]),
    "priority": st.sampled_from([0, 0, 5, -5]),
    "delay": st.sampled_from([0, 0, 0, 10, -10, 3600]),
    "max_attempts": st.sampled_from([None, None, 1, 2]),
})  # fmt: skip
outcomes = st.sampled_from(["done", "done", "retry", "retry", "failed", "snoozed", "released", "cancelled"])
leases = st.sampled_from(["right", "right", "right", "stale", "future"])
waits = st.sampled_from([0.001, 1, 2, 5, 9, 31, 61, 3601])


class Desk(RuleBasedStateMachine):
    """Each example is a workspace of its own in one database."""

    connection: ClassVar[psycopg.Connection[dict[str, Any]]]
    numbers: ClassVar[Iterator[int]]

    @initialize()
    def make_workspace(self) -> None:
        self.workspace, self.now, self.active = f"w{next(self.numbers)}", START, True
        self.ledger = Ledger()
        self._sql("insert into core.workspaces (workspace_id, name) values (%(w)s, 'a test')")
        declared = [
            {"kind": kind, "concurrency": limit, "max_attempts": ATTEMPTS, "backoff_base": BASE, "backoff_factor": FACTOR,
             "backoff_max": LONGEST, "backoff_jitter": JITTER}
            for kind, limit in LIMITS.items()
        ]  # fmt: skip
        self._sql("select ops.declare_kinds(%(w)s, %(declared)s, %(now)s)", declared=Jsonb(declared))

    def teardown(self) -> None:
        """Everything is put right and every run succeeds: nothing may be left lying."""
        if not hasattr(self, "ledger"):
            return
        self._set_active(True)
        for kind in sorted(self.ledger.paused):
            self.pause_or_resume(kind)
        for _ in range(60):
            self.now += timedelta(hours=2)
            self.sweep()
            self.claim(100, sorted(LIMITS), 60)
            self.report_many([(n, "done") for n in range(100)])
            if not any(job.status in UNFINISHED for job in self.ledger.jobs.values()):
                return
        raise AssertionError("some jobs never end")

    # Deeds

    @rule(jobs=st.lists(new_jobs, min_size=1, max_size=4))
    def enqueue(self, jobs: list[dict[str, Any]]) -> None:
        self.now += timedelta(milliseconds=1)
        given = [
            {"kind": j["kind"], "unique_key": j["key"], "priority": j["priority"], "max_attempts": j["max_attempts"],
             "run_at": (self.now + timedelta(seconds=j["delay"])).isoformat()}
            for j in jobs
        ]  # fmt: skip
        rows = self._sql("select * from ops.enqueue_jobs(%(w)s, %(jobs)s, %(now)s) order by item", jobs=Jsonb(given))
        for job, row in zip(jobs, rows, strict=True):
            holder = self.ledger.holder(job["kind"], job["key"])
            assert row["is_new"] == (holder is None)
            if holder is not None:
                assert row["job_id"] == holder.job_id
                continue
            at = self.now + timedelta(seconds=job["delay"])
            self.ledger.jobs[row["job_id"]] = Job(
                row["job_id"], job["kind"], job["key"], job["priority"], at, job["max_attempts"]
            )
        self._look()

    @rule(
        limit=st.sampled_from([1, 2, 100]),
        asked=st.lists(kinds, min_size=1, unique=True),
        lease=st.sampled_from([5, 60]),
    )
    def claim(self, limit: int, asked: list[str], lease: float) -> None:
        span = timedelta(seconds=lease)
        rows = self._sql(
            "select * from ops.claim_jobs(%(w)s, 'runner', %(asked)s, %(limit)s, %(span)s, %(now)s)",
            asked=asked, limit=limit, span=span,
        )  # fmt: skip
        assert self.active or not rows
        may = {kind: self.ledger.due(kind, self.now) for kind in asked}
        room = {kind: self.ledger.room(kind) for kind in asked}
        taken = {row["job_id"] for row in rows}
        assert len(taken) == len(rows) <= limit
        for kind in asked:
            mine = [job for job in may[kind] if job.job_id in taken]
            expected = may[kind][: len(mine)]
            assert [(j.priority, j.run_at) for j in mine] == [(j.priority, j.run_at) for j in expected], "out of turn"
            assert len(mine) <= room[kind]
        if self.active:
            able = sum(int(min(room[kind], len(may[kind]))) for kind in asked)
            assert len(rows) == min(limit, able), "something that may go was left lying"
        for row in rows:
            job = self.ledger.jobs[row["job_id"]]
            assert job.kind in asked and job.waits and job.run_at <= self.now
            job.begin(self.now, span)
            assert (row["lease"], row["attempt"]) == (job.lease, job.attempt)
        self._look()

    @precondition(lambda self: self.ledger.jobs)
    @rule(pick=st.integers(0, 99), which=leases, outcome=outcomes, after=st.sampled_from([None, None, 0, 7]))
    def report(self, pick: int, which: str, outcome: str, after: float | None) -> None:
        job = self._pick(pick, "running")
        lease = {"right": job.lease, "stale": max(job.lease - 1, 0), "future": job.lease + 1}[which]
        self._report(job, lease, outcome, after)

    def _report(self, job: Job, lease: int, outcome: str, after: float | None) -> None:
        worth = verdict(job, lease, outcome)
        expected = fate(job, outcome) if worth == "settles" else worth
        made = self._settle([{"job_id": str(job.job_id), "lease": lease, "outcome": outcome, "after": after}])
        assert made == {job.job_id: expected}
        if worth == "settles":
            job.end(expected, self.now, pause_of(job, expected, after))
        self._look()

    @rule(said=st.lists(st.tuples(st.integers(0, 99), outcomes), min_size=1, max_size=8))
    def report_many(self, said: list[tuple[int, str]]) -> None:
        """One batch for what runs now."""
        running = [job for job in self.ledger.jobs.values() if job.status == "running"]
        chosen = {running[n % len(running)].job_id: outcome for n, outcome in said} if running else {}
        results = [
            {"job_id": str(job_id), "lease": self.ledger.jobs[job_id].lease, "outcome": outcome}
            for job_id, outcome in chosen.items()
        ]
        made = self._settle(results)
        assert made == {job_id: fate(self.ledger.jobs[job_id], outcome) for job_id, outcome in chosen.items()}
        for job_id in chosen:
            job = self.ledger.jobs[job_id]
            job.end(made[job_id], self.now, pause_of(job, made[job_id], None))
        self._look()

    @precondition(lambda self: self.ledger.jobs)
    @rule(pick=st.integers(0, 99), outcome=outcomes, again=st.booleans())
    def fall_silent(self, pick: int, outcome: str, again: bool) -> None:
        """The lease ends, the sweep comes, perhaps somebody else begins, and then the old runner speaks after all."""
        job = self._pick(pick, "running")
        lease = job.lease
        self.now = max(self.now, job.lease_until or self.now) + timedelta(seconds=1)
        self.sweep()
        if again:
            self.claim(100, [job.kind], 60)
        self._report(job, lease, outcome, None)

    @precondition(lambda self: self.ledger.jobs)
    @rule(pick=st.integers(0, 99))
    def wear_out(self, pick: int) -> None:
        """One job fails until it has no try left."""
        job = self._pick(pick, "running")
        for _ in range(ATTEMPTS):
            if job.status == "running":
                self._report(job, job.lease, "retry", 1)
                self.now += timedelta(seconds=1)
                self.claim(100, [job.kind], 60)

    @precondition(lambda self: self.ledger.jobs)
    @rule(pick=st.integers(0, 99), which=leases)
    def beat(self, pick: int, which: str) -> None:
        job = self._pick(pick, "running")
        lease = {"right": job.lease, "stale": max(job.lease - 1, 0), "future": job.lease + 1}[which]
        told = self._sql(
            "select * from ops.heartbeat_jobs(%(w)s, %(beats)s, '60 seconds', %(now)s)",
            beats=Jsonb([{"job_id": str(job.job_id), "lease": lease}]),
        )
        held = job.status == "running" and lease == job.lease
        if held:
            assert job.lease_until is not None
            job.lease_until = max(job.lease_until, self.now + timedelta(seconds=60))
        state = "lost" if not held else "cancelled" if job.cancelling else None
        assert [row["state"] for row in told] == ([state] if state else [])
        self._look()

    @rule()
    def sweep(self) -> None:
        lost = [job for job in self.ledger.jobs.values() if job.lease_until and job.lease_until < self.now]
        assert self._sql("select ops.sweep_jobs(%(w)s, 500, %(now)s) as n")[0]["n"] == len(lost)
        for job in lost:
            job.end("cancelled" if job.cancelling else "dead" if job.last_try else "lost", self.now)
            job.runs[job.lease] = "lost"
        self._look()

    @precondition(lambda self: self.ledger.jobs)
    @rule(pick=st.integers(0, 99), status=st.sampled_from(["running", "waiting", "dead"]))
    def cancel(self, pick: int, status: str) -> None:
        job = self._pick(pick, status)
        if job.status in ("done", "dead"):
            return self._refused("select ops.cancel_job(%(w)s, %(id)s, %(now)s)", job)
        self._sql("select ops.cancel_job(%(w)s, %(id)s, %(now)s)", id=job.job_id)
        if job.status == "running":
            job.cancelling = True
        else:
            job.status = "cancelled"
        return self._look()

    @precondition(lambda self: self.ledger.jobs)
    @rule(pick=st.integers(0, 99), status=st.sampled_from(["dead", "cancelled", "dead", "done"]))
    def retry(self, pick: int, status: str) -> None:
        job, query = self._pick(pick, status), "select ops.retry_job(%(w)s, %(id)s, %(now)s)"
        if job.status not in ("dead", "cancelled") or self.ledger.holder(job.kind, job.key):
            return self._refused(query, job)
        self._sql(query, id=job.job_id)
        job.max_attempts = job.attempt + 1 if job.last_try else job.max_attempts
        job.status, job.run_at = "retry" if job.attempt else "waiting", self.now
        return self._look()

    @precondition(lambda self: self.ledger.jobs)
    @rule(pick=st.integers(0, 99))
    def run_now(self, pick: int) -> None:
        job, query = self._pick(pick, "retry"), "select ops.run_job_now(%(w)s, %(id)s, %(now)s)"
        if not job.waits:
            return self._refused(query, job)
        self._sql(query, id=job.job_id)
        job.run_at = min(job.run_at, self.now)
        return self._look()

    @rule(kind=kinds)
    def pause_or_resume(self, kind: str) -> None:
        order = "resume" if kind in self.ledger.paused else "pause"
        assert self._sql(f"select ops.{order}_kind(%(w)s, %(kind)s, %(now)s) as new", kind=kind)[0]["new"]
        self.ledger.paused ^= {kind}

    @rule(active=st.booleans())
    def set_workspace(self, active: bool) -> None:
        self._set_active(active)

    @rule(seconds=waits)
    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    # The database

    def _set_active(self, active: bool) -> None:
        self.active, status = active, "active" if active else "paused"
        self._sql("update core.workspaces set status = %(status)s where workspace_id = %(w)s", status=status)

    def _pick(self, n: int, prefer: str) -> Job:
        every = list(self.ledger.jobs.values())
        preferred = [job for job in every if job.status == prefer]
        found = preferred if preferred and n % 4 else every
        return found[n % len(found)]

    def _refused(self, query: str, job: Job) -> None:
        with pytest.raises(psycopg.Error) as refused:
            self._sql(query, id=job.job_id)
        assert refused.value.sqlstate == "VM001"
        self._look()

    def _settle(self, results: list[dict[str, Any]]) -> dict[UUID, str]:
        query = "select * from ops.settle_jobs(%(w)s, %(results)s, %(now)s)"
        return {row["job_id"]: row["outcome"] for row in self._sql(query, results=Jsonb(results))}

    def _look(self) -> None:
        tables = (f"select * from ops.{name} where workspace_id = %(w)s" for name in ("jobs", "job_runs", "errors"))
        self.ledger.look(*(self._sql(query) for query in tables))

    def _sql(self, query: str, **arguments: Any) -> list[dict[str, Any]]:
        cursor = self.connection.execute(query.encode(), {"w": self.workspace, "now": self.now} | arguments)
        return cursor.fetchall() if cursor.description else []


def test_jobs_keep_their_promises(database: str) -> None:
    with psycopg.connect(database, autocommit=True, row_factory=dict_row) as connection:
        Desk.connection, Desk.numbers = connection, itertools.count()
        run_state_machine_as_test(Desk, settings=PROFILE)
