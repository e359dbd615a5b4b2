"""Failure webhooks: what was noted becomes jobs, and each job tells one webhook of one failure, for a day."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from psycopg.types.json import Jsonb

from vestnik.db.pool import Pool, call
from vestnik.db.refusals import OF_THE_ROWS
from vestnik.log import get_log
from vestnik.ops.alerts.contract import TellFailed
from vestnik.ops.jobs.recurring import Recurring
from vestnik.ops.jobs.registry import Backoff, JobContext, JobFailed, JobKind, JobRetry, JobSnooze, Stats
from vestnik.ops.webhooks.caller import Caller

KIND = "webhook.send"
LONGEST = timedelta(days=1)
BATCH = 500
log = get_log()


class WebhookSender:
    def __init__(self, pool: Pool, caller: Caller) -> None:
        self._pool, self._caller = pool, caller

    def kind(self) -> JobKind:
        """Its tries end with the day, not with a number."""
        backoff = Backoff(base=10, factor=2, longest=3600)
        return JobKind(KIND, self._send, concurrency=8, max_attempts=1000, backoff=backoff)

    def collector(self) -> Recurring:
        return Recurring(
            JobKind("webhooks", self._collect, concurrency=1, soft_limit=20, hard_limit=60), every=timedelta(seconds=30)
        )

    async def _collect(self, job: JobContext) -> Stats:
        told = {"failures": 0, "jobs": 0}
        for row in await call(self._pool, _WORKSPACES):
            try:
                await self._collect_from(row["workspace_id"], told, job)
            except OF_THE_ROWS as e:
                log.error("webhooks.not_collected", workspace_id=row["workspace_id"], error=str(e))
        return told

    async def _collect_from(self, workspace_id: str, told: Stats, job: JobContext) -> None:
        taken = BATCH
        while taken >= BATCH and not job.should_stop:
            found = (await call(self._pool, _COLLECT, (workspace_id, BATCH, workspace_id)))[0]
            taken = found["failures"]
            told["failures"] += taken
            told["jobs"] += found["jobs"]

    async def _send(self, job: JobContext) -> Stats:
        payload = job.payload
        webhook = await self._webhook(job)
        if webhook is None:
            return {"skipped": "the webhook is gone or switched off"}
        now = datetime.now(UTC)
        too_old = now - datetime.fromisoformat(payload["noted_at"]) > LONGEST
        # Of a webhook that does not answer, one message finds out for all of them.
        if webhook["is_paused"]:
            if too_old:
                raise JobFailed("it could not be told within a day", code="too_old", logged=True)
            raise JobSnooze(max(0.0, (webhook["next_try_at"] - now).total_seconds()) + random.uniform(0, 5))
        try:
            await self._caller.post(
                job.workspace_id,
                f"webhook:{webhook['webhook_id']}",
                webhook["url"],
                payload["message_id"],
                payload["body"],
            )
        except TellFailed as e:
            again = await self._note(job, e)
            if too_old or e.code == "gone":
                raise JobFailed(str(e), code=e.code) from e
            after = (again - datetime.now(UTC)).total_seconds() if again else None
            raise JobRetry(str(e), code=e.code, after=after) from e
        if webhook["failures"] or webhook["last_sent_at"] is None or now - webhook["last_sent_at"] > _NOTE_EVERY:
            await self._note(job, None)
        return {"told": webhook["webhook_id"]}

    async def _webhook(self, job: JobContext) -> dict[str, Any] | None:
        query = (
            "select *, ops.is_soon(next_try_at, now()) as is_paused from ops.webhooks"
            " where workspace_id = %s and webhook_id = %s and enabled"
        )
        found = await call(self._pool, query, (job.workspace_id, job.payload["webhook_id"]))
        return found[0] if found else None

    async def _note(self, job: JobContext, failure: TellFailed | None) -> datetime | None:
        error = Jsonb(failure.as_json()) if failure else None
        gone = failure is not None and failure.code == "gone"
        query = "select ops.note_webhook(%s, %s, %s, %s) as again"
        rows = await call(self._pool, query, (job.workspace_id, job.payload["webhook_id"], error, gone))
        again = rows[0]["again"]
        assert again is None or isinstance(again, datetime)
        return again


_NOTE_EVERY = timedelta(seconds=10)
_WORKSPACES = """
select w.workspace_id from core.workspaces w
where exists (select from ops.failures f where f.workspace_id = w.workspace_id) order by 1"""
_COLLECT = """
with done as materialized (
    select * from ops.collect_failures(%s, %s)
), woken as materialized (
    select pg_notify('vestnik_jobs', %s) from done where jobs > 0
)
select done.* from done left join woken on true"""
