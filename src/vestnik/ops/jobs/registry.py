"""Kinds of jobs: what a capability declares in code, and what a handler may say and ask while it runs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from vestnik.db.pool import Pool
from vestnik.errors import ConfigError, VestnikError

Stats = dict[str, Any]
_NAME = re.compile(r"[a-z][a-z0-9_.]{0,63}")


class JobSignal(VestnikError):
    """Its text is kept with the run: no secret, nothing of the payload."""


class JobRetry(JobSignal):
    """Once more, ``after`` seconds or the kind's own backoff; the attempt counts."""

    def __init__(self, message: str, *, after: float | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.after, self.code = after, code


class JobFailed(JobSignal):
    """It cannot succeed: a dead letter at once. ``logged``: the handler tells the log itself, when there is news."""

    def __init__(self, message: str, *, code: str | None = None, logged: bool = False) -> None:
        super().__init__(message)
        self.code, self.logged = code, logged


class JobSnooze(JobSignal):
    """Not yet: again in so many seconds, without counting an attempt."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"again in {seconds:g} s")
        self.seconds = seconds


@dataclass(slots=True)
class JobContext:
    """What a handler knows of its job. ``tick`` is the moment that a schedule fired it for."""

    job_id: UUID
    workspace_id: str
    kind: str
    payload: Mapping[str, Any]
    attempt: int
    tick: datetime | None
    pool: Pool
    soft_deadline: float
    told_to_stop: bool = False
    reached: Stats | None = field(default=None, repr=False)

    def progress(self, done: int, total: int | None = None, note: str = "") -> None:
        """How far it has got. Written with the next heartbeat: call it as often as you like."""
        self.reached = {"done": done, "total": total, "note": note[:200]}

    @property
    def should_stop(self) -> bool:
        """The soft limit is over, somebody cancelled the job, or the runner ends: come to a good place and return."""
        return self.told_to_stop or asyncio.get_running_loop().time() >= self.soft_deadline


Handler = Callable[[JobContext], Awaitable[Stats | None]]


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds before the next try: ``base`` × ``factor`` for each one before it, at most ``longest``, plus jitter."""

    base: float = 2.0
    factor: float = 2.0
    longest: float = 600.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        if not (self.base >= 0 and 1 <= self.factor <= 100 and self.longest >= 0 and 0 <= self.jitter <= 1):
            raise ConfigError(f"this is no backoff: {self}", hint="a factor from 1 to 100, a jitter from 0 to 1")


@dataclass(frozen=True, slots=True)
class JobKind:
    """``concurrency`` is per workspace, over all runners; None: no limit but the runner's own.

    After ``soft_limit`` seconds the handler is asked to stop, after ``hard_limit`` it is cancelled and tried again.
    """

    name: str
    handler: Handler
    concurrency: int | None = None
    soft_limit: float = 240.0
    hard_limit: float = 300.0
    max_attempts: int = 5
    backoff: Backoff = Backoff()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                f"{self.name!r} is no name for a kind of jobs", hint="small letters, digits, dots, underscores"
            )
        if not 0 < self.soft_limit <= self.hard_limit:
            raise ConfigError(f"the soft limit of {self.name} lies between 0 and its hard limit")
        if self.max_attempts < 1 or (self.concurrency is not None and self.concurrency < 1):
            raise ConfigError(f"{self.name} has at least one attempt and one place")

    def declaration(self) -> dict[str, Any]:
        """As ``ops.declare_kinds`` takes it."""
        return {
            "kind": self.name,
            "concurrency": self.concurrency,
            "max_attempts": self.max_attempts,
            "backoff_base": self.backoff.base,
            "backoff_factor": self.backoff.factor,
            "backoff_max": self.backoff.longest,
            "backoff_jitter": self.backoff.jitter,
        }


def kinds(declared: Iterable[JobKind]) -> dict[str, JobKind]:
    """By their names, each of which is declared once."""
    found: dict[str, JobKind] = {}
    for kind in declared:
        if kind.name in found:
            raise ConfigError(f"two kinds of jobs are called {kind.name}")
        found[kind.name] = kind
    return found
