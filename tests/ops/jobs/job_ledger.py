"""What the state machine test knows of its jobs by itself, and holds against the tables after every step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

Row = Mapping[str, Any]
UNFINISHED = ("waiting", "retry", "running")
ATTEMPTS, BASE, FACTOR, LONGEST, JITTER = 3, 2.0, 3.0, 30.0, 0.2  # of every kind
LIMITS: dict[str, int | None] = {"narrow": 1, "two": 2, "free": None}


@dataclass
class Job:
    job_id: UUID
    kind: str
    key: str | None
    priority: int
    run_at: datetime
    max_attempts: int | None
    status: str = "waiting"
    attempt: int = 0
    lease: int = 0
    lease_until: datetime | None = None
    cancelling: bool = False
    runs: dict[int, str] = field(default_factory=dict)
    deaths: int = 0
    pauses: tuple[datetime, datetime] | None = None  # run_at lies between, when the database chose it

    @property
    def last_try(self) -> bool:
        return self.attempt >= (self.max_attempts or ATTEMPTS)

    @property
    def waits(self) -> bool:
        return self.status in ("waiting", "retry")

    def begin(self, now: datetime, lease: timedelta) -> None:
        self.status, self.lease_until = "running", now + lease
        self.attempt, self.lease = self.attempt + 1, self.lease + 1

    def end(self, fate: str, now: datetime, pause: tuple[float, float] = (0, 0)) -> None:
        self.runs[self.lease] = fate
        self.cancelling, self.lease_until = False, None
        self.attempt -= fate in ("snoozed", "released")
        if fate in ("done", "dead", "cancelled"):
            self.status, self.deaths = fate, self.deaths + (fate == "dead")
        else:
            self.status = "retry" if self.attempt else "waiting"
            self.pauses = (now + timedelta(seconds=pause[0]), now + timedelta(seconds=pause[1]))


def verdict(job: Job, lease: int, outcome: str) -> str:
    """What a result is worth: only the newest lease counts, and only once; a success also after the sweep."""
    known = job.runs.get(lease)
    if lease == job.lease and job.status == "running":
        return "settles"
    if lease == job.lease and known == "lost" and outcome == "done" and job.waits:
        return "settles"
    if known is not None and (known == outcome or (known == "dead" and outcome in ("failed", "retry"))):
        return "repeat"
    return "late"


def fate(job: Job, outcome: str) -> str:
    if outcome in ("done", "cancelled"):
        return outcome
    if outcome == "failed":
        return "dead"
    if job.cancelling:
        return "cancelled"
    return "dead" if outcome == "retry" and job.last_try else outcome


def pause_of(job: Job, outcome: str, after: float | None) -> tuple[float, float]:
    if outcome == "retry" and after is None:
        least = min(LONGEST, BASE * FACTOR ** (job.attempt - 1))
        return least, least * (1 + JITTER)
    return (after or 0, after or 0)


class Ledger:
    def __init__(self) -> None:
        self.jobs: dict[UUID, Job] = {}
        self.paused: set[str] = set()

    def holder(self, kind: str, key: str | None) -> Job | None:
        found = [j for j in self.jobs.values() if key and (j.kind, j.key) == (kind, key) and j.status in UNFINISHED]
        assert len(found) <= 1, "two unfinished jobs have one key"
        return found[0] if found else None

    def running(self, kind: str) -> int:
        return sum(job.kind == kind and job.status == "running" for job in self.jobs.values())

    def due(self, kind: str, now: datetime) -> list[Job]:
        """In the order in which they may go."""
        found = [j for j in self.jobs.values() if j.kind == kind and j.waits and j.run_at <= now]
        return sorted(found, key=lambda job: (-job.priority, job.run_at))

    def room(self, kind: str) -> float:
        limit = LIMITS[kind]
        return 0 if kind in self.paused else float("inf") if limit is None else limit - self.running(kind)

    def look(self, rows: Iterable[Row], runs: Iterable[Row], errors: Iterable[Row]) -> None:
        """What the tables say now; raises on the first lie."""
        seen = {row["job_id"]: row for row in rows}
        assert seen.keys() == self.jobs.keys(), "a job is lost, or one has come from nowhere"
        for job_id, job in self.jobs.items():
            self._compare(job, seen[job_id])
        told: dict[UUID, dict[int, str]] = {job_id: {} for job_id in self.jobs}
        for run in runs:
            told[run["job_id"]][run["lease"]] = run["outcome"]
        for job_id, job in self.jobs.items():
            assert told[job_id] == job.runs
            assert set(job.runs) == set(range(1, job.lease + (job.status != "running"))), "each ended lease has its run"
        deaths = Counter(error["job_id"] for error in errors)
        assert deaths == Counter({job_id: job.deaths for job_id, job in self.jobs.items() if job.deaths})
        for kind, limit in LIMITS.items():
            assert limit is None or self.running(kind) <= limit, f"too many of {kind} run"
        for job in self.jobs.values():
            self.holder(job.kind, job.key)

    @staticmethod
    def _compare(job: Job, row: Row) -> None:
        assert (row["status"], row["attempt"], row["lease"]) == (job.status, job.attempt, job.lease)
        assert (row["lease_until"], row["max_attempts"]) == (job.lease_until, job.max_attempts)
        assert (row["cancel_requested_at"] is not None) == job.cancelling
        assert (row["finished_at"] is not None) == (job.status not in UNFINISHED)
        if job.pauses:
            first, last = job.pauses
            assert first <= row["run_at"] <= last + timedelta(microseconds=1)
            job.run_at, job.pauses = row["run_at"], None
        assert row["run_at"] == job.run_at
