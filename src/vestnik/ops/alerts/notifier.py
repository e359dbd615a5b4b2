"""Tell one target what it has not heard: a job at a time, all of it in one message."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg.types.json import Jsonb
from psycopg_pool import PoolTimeout

from vestnik.db.pool import Pool, call
from vestnik.errors import NotFound, VestnikError
from vestnik.log import get_log
from vestnik.ops.alerts.contract import Message, Notice, Target, TellFailed, Way
from vestnik.ops.alerts.texts import text_of, title_of, trial_text
from vestnik.ops.jobs.registry import JobContext, JobKind, Stats
from vestnik.ops.jobs.verbs import Enqueued, NewJob, enqueue_many

KIND = "alert.notify"
PATIENCE = 60.0  # seconds for one target
log = get_log()


class Notifier:
    """``ways`` by the kind of target; a kind without one cannot be told on this installation."""

    def __init__(self, pool: Pool, ways: Mapping[str, Way]) -> None:
        self._pool, self._ways = pool, ways

    def kind(self) -> JobKind:
        return JobKind(KIND, self._tell_target, concurrency=4)

    async def ask(self, workspace_id: str) -> int:
        """A job for each target that something is to be told; how many are new."""
        due = await call(self._pool, "select ops.targets_to_tell(%s) as target_id", (workspace_id,))
        jobs = [NewJob(KIND, {"target_id": row["target_id"]}, unique_key=row["target_id"]) for row in due]
        made: list[Enqueued] = await enqueue_many(self._pool, workspace_id, jobs) if jobs else []
        return sum(each.is_new for each in made)

    async def try_out(self, workspace_id: str, target_id: str) -> None:
        """A message that says only that it arrives. Raises NotFound, TellFailed."""
        target = Target.of(await target_row(self._pool, workspace_id, target_id))
        text = trial_text(workspace_id, target_id, target.language)
        await self._send(target, Message(f"test-{target_id}", text.partition(":")[0], text, []))

    async def _tell_target(self, job: JobContext) -> Stats:
        workspace_id, target_id = job.workspace_id, str(job.payload.get("target_id"))
        found = await call(
            self._pool,
            "select to_jsonb(t.target) as target, t.notices from ops.take_notices(%s, %s) t",
            (workspace_id, target_id),
        )
        if not found:
            return {"told": 0}
        row, notices = found[0]["target"], found[0]["notices"]
        error: dict[str, Any] | None = None
        try:
            await self._send(Target.of(row), _message(row, notices))
        except TellFailed as e:
            error = e.as_json()
        failures = await self._settle(row, notices, error)
        if error:
            log.warning("alerts.not_told", workspace_id=workspace_id, target=target_id, code=error["code"])
            return {"told": 0, "failed": error["code"], "failures": failures}
        return {"told": len(notices)}

    async def _send(self, target: Target, message: Message) -> None:
        way = self._ways.get(target.kind)
        if way is None:
            raise TellFailed("no_way", f"this installation cannot tell a target of kind {target.kind}")
        try:
            async with asyncio.timeout(PATIENCE):
                await way(target, message)
        except TellFailed:
            raise
        except TimeoutError:
            raise TellFailed("timeout", f"no answer within {PATIENCE:g} s") from None
        except VestnikError as e:
            raise TellFailed("not_usable", str(e)) from e
        except Exception as e:
            log.warning("alerts.way_broke", target=target.target_id, error_type=type(e).__name__)
            raise TellFailed("broke", f"it broke with {type(e).__name__}") from e

    async def _settle(self, row: Mapping[str, Any], notices: Sequence[Notice], error: dict[str, Any] | None) -> int:
        """What a target acknowledged is written down, however long the database is away: else it would be told twice."""
        arguments = (
            row["workspace_id"], row["target_id"], row["lease"], Jsonb(notices), Jsonb(error) if error else None,
        )  # fmt: skip
        while True:
            try:
                rows = await call(self._pool, "select ops.settle_notices(%s, %s, %s, %s, %s) as failures", arguments)
                return int(rows[0]["failures"])
            except (psycopg.OperationalError, PoolTimeout):
                if error:
                    raise
                await asyncio.sleep(1)


async def target_row(pool: Pool, workspace_id: str, target_id: str) -> dict[str, Any]:
    query = "select * from ops.alert_targets where workspace_id = %s and target_id = %s"
    found = await call(pool, query, (workspace_id, target_id))
    if not found:
        raise NotFound(f"no alert target {target_id} in workspace {workspace_id}", hint="vestnik alerts targets")
    return found[0]


def _message(row: Mapping[str, Any], notices: Sequence[Notice]) -> Message:
    """Its id changes when the target has acknowledged something, and with what is told."""
    workspace_id, language = row["workspace_id"], row["language"]
    named = [[n["alert"], n["subject"], n["episode"], n["news"], n["severity"]] for n in notices]
    seed = json.dumps([workspace_id, row["target_id"], row["last_sent_at"], named])
    return Message(
        f"alert_{hashlib.sha256(seed.encode()).hexdigest()[:32]}",
        title_of(notices, workspace_id, language),
        text_of(notices, workspace_id, language),
        notices,
    )
