"""One run of one job: its handler within its limits, and what it came to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal
from uuid import UUID

from vestnik.errors import VestnikError
from vestnik.log import about, get_log
from vestnik.ops.jobs.registry import JobContext, JobFailed, JobKind, JobRetry, JobSnooze, Stats

Outcome = Literal["done", "retry", "failed", "snoozed", "released", "cancelled"]
Reason = Literal["hard_limit", "cancelled", "lost", "released"]
LONGEST_MESSAGE = 300
log = get_log()


@dataclass(frozen=True, slots=True)
class Result:
    """As ``ops.settle_jobs`` takes it, and for the log its kind, and whether it knows of the failure."""

    workspace_id: str
    job_id: UUID
    lease: int
    outcome: Outcome
    stats: Stats | None = None
    error: dict[str, Any] | None = None
    after: float | None = None
    kind: str = ""
    logged: bool = False


class Run:
    """``told`` hears of the result, ``gone`` of the end of the task: a handler that will not be cancelled has a result
    before it has an end."""

    __slots__ = ("_gone", "_kind", "_reason", "_result", "_timer", "_told", "beat_at", "context", "lease", "task")

    def __init__(
        self,
        kind: JobKind,
        context: JobContext,
        lease: int,
        *,
        told: Callable[[Result], None],
        gone: Callable[[Run], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self._kind, self._told, self._gone = kind, told, gone
        self.context, self.lease, self.beat_at = context, lease, loop.time()
        self._reason: Reason | None = None
        self._result: Result | None = None
        self._timer = loop.call_later(kind.hard_limit, self.cancel, "hard_limit")
        self.task = loop.create_task(self._perform())
        self.task.add_done_callback(self._done)

    def cancel(self, reason: Reason) -> None:
        """Only the first reason counts; asking again repeats the cancellation."""
        self.context.told_to_stop = True
        self._reason = self._reason or reason
        self.task.cancel()

    def abandon(self) -> None:
        """It does not even listen to its cancellation: its result is given without it."""
        if self._result is None:
            log.error("job.will_not_end", **self.names())
            self._result = self._cut_short()
            self._told(self._result)

    @property
    def cancelled(self) -> bool:
        return self._reason is not None

    def names(self) -> dict[str, Any]:
        context = self.context
        return {"job_id": str(context.job_id), "kind": context.kind, "workspace_id": context.workspace_id}

    async def _perform(self) -> Result:
        about(**self.names())
        try:
            return self._result_of("done", stats=await self._kind.handler(self.context))
        except JobSnooze as e:
            return self._result_of("snoozed", after=e.seconds)
        except JobRetry as e:
            return self._result_of("retry", error=_described(e, e.code), after=e.after)
        except JobFailed as e:
            return replace(self._result_of("failed", error=_described(e, e.code)), logged=e.logged)
        except asyncio.CancelledError as e:
            return self._cut_short() if self._reason else self._result_of("retry", error=_described(e))
        except Exception as e:
            log.warning("job.broke", error_type=type(e).__name__, attempt=self.context.attempt, **self.names())
            return self._result_of("retry", error=_described(e))

    def _done(self, task: asyncio.Task[Result]) -> None:
        self._timer.cancel()
        if self._result is None:
            # Cancelled before its first step, a task has no result of its own.
            self._result = self._cut_short() if task.cancelled() else task.result()
            self._told(self._result)
        self._gone(self)

    def _cut_short(self) -> Result:
        match self._reason:
            case "hard_limit":
                error = {"type": "HardLimit", "message": f"it took longer than {self._kind.hard_limit:g} s"}
            case "lost":
                error = {"type": "LeaseLost", "message": "the lease was lost while it ran"}
            case "cancelled":
                return self._result_of("cancelled")
            case _:
                return self._result_of("released")
        return self._result_of("retry", error=error)

    def _result_of(
        self, outcome: Outcome, stats: Any = None, error: dict[str, Any] | None = None, after: float | None = None
    ) -> Result:
        kept = stats if isinstance(stats, dict) else None
        context = self.context
        return Result(context.workspace_id, context.job_id, self.lease, outcome, kept, error, after, context.kind)


def _described(error: BaseException, code: str | None = None) -> dict[str, Any]:
    """Only what was raised on purpose is meant for people whole; of anything else its first line, which says what and
    seldom quotes what it was given. The database redacts both."""
    text = str(error) if isinstance(error, VestnikError) else next(iter(str(error).splitlines()), "")
    described = {"type": type(error).__name__, "message": text[:LONGEST_MESSAGE]}
    return described | {"code": code} if code else described
