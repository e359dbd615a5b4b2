"""Does it still hold together? Two jobs that look, change nothing, and raise an alert for what they find.

``autopost.proof`` replays what happened lately, ``autopost.integrity`` goes through everything once a day. Both go page by
page, and a run that is stopped or has done its share goes on there the next time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from vestnik.db.pool import Pool, call
from vestnik.db.refusals import OF_THE_ROWS
from vestnik.log import get_log
from vestnik.ops.jobs.recurring import Recurring
from vestnik.ops.jobs.registry import JobContext, JobKind, Stats

PAGE = 5000
PROOF_SHARE = 1_000_000  # events of a run, over all workspaces
INTEGRITY_SHARE = 2_000_000  # rows of a run
SAMPLES = 5  # of each kind, in what a run reports
Row = dict[str, Any]
log = get_log()


def proof() -> Recurring:
    return Recurring(JobKind("autopost.proof", _prove, concurrency=1), every=timedelta(minutes=10))


def integrity() -> Recurring:
    return Recurring(JobKind("autopost.integrity", _check, concurrency=1), cron="20 3 * * *")


async def findings(pool: Pool, workspace_id: str, *, limit: int = 200) -> list[Row]:
    """What the two have found and nobody has mended, the newest first. Raises NotFound for no workspace."""
    await call(pool, "select autopost.require_workspace(%s)", (workspace_id,))
    return await call(pool, "select * from autopost.list_findings(%s, %s)", (workspace_id, limit))


async def _prove(job: JobContext) -> Stats:
    run = _Run(job, "proof", PROOF_SHARE)
    behind = timedelta(0)

    async def page(workspace_id: str) -> bool:
        nonlocal behind
        found = (await call(job.pool, "select * from autopost.prove_page(%s, %s)", (workspace_id, PAGE)))[0]
        behind = max(behind, found["skipped"])
        run.seen(found["events"], found["troubles"])
        return bool(found["is_last"])

    return await run.through(page) | {"skipped_seconds": round(behind.total_seconds())}


async def _check(job: JobContext) -> Stats:
    run = _Run(job, "integrity", INTEGRITY_SHARE)

    async def page(workspace_id: str) -> bool:
        found = (await call(job.pool, "select * from autopost.check_page(%s, %s)", (workspace_id, PAGE)))[0]
        run.seen(found["rows_seen"], found["troubles"])
        return bool(found["pass_ended"])

    return await run.through(page)


class _Run:
    """One run of a job through the workspaces: those that have waited longest come first, none has more than its share."""

    def __init__(self, job: JobContext, source: str, share: int) -> None:
        self._job, self._source, self._share = job, source, share
        self._left = self._rows = 0
        self._found: Counter[str] = Counter()
        self._samples: dict[str, list[str]] = {}

    async def through(self, page: Callable[[str], Awaitable[bool]]) -> Stats:
        """``page`` looks at the next page of a workspace, and says whether it was the last one."""
        waiting = [row["workspace_id"] for row in await call(self._job.pool, _IN_TURN, (self._source,))]
        unfinished = 0
        for number, workspace_id in enumerate(waiting, 1):
            self._left = max(self._share // len(waiting), 1)
            ended = False
            try:
                while not ended and self._left > 0 and not self._job.should_stop:
                    ended = await page(workspace_id)
                await call(self._job.pool, "select autopost.tell_findings(%s, %s)", (workspace_id, self._source))
            except OF_THE_ROWS as e:  # a trouble with the rows of one workspace is not the others'
                log.error(f"{self._source}.failed", workspace_id=workspace_id, error=str(e))
            unfinished += not ended
            self._job.progress(number, len(waiting), f"{self._rows} rows")
        counts = {"workspaces": len(waiting), "unfinished": unfinished, "rows": self._rows}
        return counts | {"found": dict(self._found), "samples": self._samples}

    def seen(self, rows: int, found: list[Row]) -> None:
        self._rows += rows
        self._left -= max(rows, 1)
        for trouble in found:
            self._found[trouble["kind"]] += 1
            samples = self._samples.setdefault(trouble["kind"], [])
            if len(samples) < SAMPLES and trouble["subject"] not in samples:
                samples.append(trouble["subject"])


_IN_TURN = """
select w.workspace_id from core.workspaces w
left join autopost.checks c on c.workspace_id = w.workspace_id and c.source = %s
order by c.updated_at nulls first, w.workspace_id
"""
