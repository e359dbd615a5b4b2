"""Writes back what runs came to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from psycopg.types.json import Jsonb

from vestnik.db.pool import Pool, call
from vestnik.db.settling import Settling
from vestnik.log import get_log
from vestnik.ops.jobs.run import Result
from vestnik.telemetry.instruments import job_runs, workspaces

log = get_log()


class Settler(Settling[Result]):
    def __init__(self, pool: Pool, settled: Callable[[int], None]) -> None:
        super().__init__("jobs", settled)
        self._pool = pool

    async def write(self, workspace_id: str, batch: list[Result]) -> None:
        results = Jsonb([_as_json(result) for result in batch])
        odd = {row["job_id"]: row["outcome"] for row in await call(self._pool, _SETTLE, (workspace_id, results))}
        for result in batch:
            job_runs.add(workspaces(workspace_id), result.kind, odd.get(result.job_id, result.outcome))
            if result.job_id in odd:
                self._tell(odd[result.job_id], result)

    def bare(self, result: Result) -> Result:
        error = result.error and {key: ascii(str(value))[1:-1] for key, value in result.error.items()}
        after = result.after if result.after is not None and 0 <= result.after < float("inf") else None
        return replace(result, stats=None, error=error, after=after)

    def names(self, result: Result) -> dict[str, str]:
        return {"job_id": str(result.job_id), "kind": result.kind}

    def _tell(self, outcome: str, result: Result) -> None:
        if outcome == "late" or not result.logged:
            error = result.error or {}
            code = error.get("code") or error.get("type")
            log.warning(f"job.{outcome}", workspace_id=result.workspace_id, code=code, **self.names(result))


_SETTLE = "select * from ops.settle_jobs(%s, %s) where outcome in ('late', 'dead')"


def _as_json(result: Result) -> dict[str, Any]:
    settled: dict[str, Any] = {"job_id": str(result.job_id), "lease": result.lease, "outcome": result.outcome}
    for name in ("stats", "error", "after"):
        if (value := getattr(result, name)) is not None:
            settled[name] = value
    return settled
