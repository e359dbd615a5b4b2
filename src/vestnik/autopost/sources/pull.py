"""One run of a source: read, page by page; each page's items and the place behind them are committed together."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

from vestnik.autopost.sources import Item, Reading, Secrets, SourceFailed, SourceReader, reader, validate
from vestnik.autopost.sources.batches import batches
from vestnik.autopost.sources.schedule import KIND
from vestnik.db.pool import Pool, call
from vestnik.download import Downloader
from vestnik.errors import ConfigError, NotFound, VestnikError
from vestnik.log import get_log
from vestnik.ops.jobs.registry import JobContext, JobFailed, JobKind

PAGE: Final = 500
MOST_DELIVERIES: Final = 40_000  # of one transaction: some seconds of work
_CANNOT_STORE: Final = (
    psycopg.DataError,
    psycopg.errors.ProgramLimitExceeded,
    psycopg.errors.StatementTooComplex,
)
Row = dict[str, Any]
log = get_log()


class SourceDisabled(VestnikError):
    pass


@dataclass(frozen=True, slots=True)
class _Run:
    workspace_id: str
    source_id: str
    run_id: UUID
    kind: str
    config: Row
    backlog: int | None
    cursor: Row
    channels: int

    @property
    def is_first(self) -> bool:
        return not self.cursor and self.backlog is not None

    @property
    def page(self) -> int:
        """Items at a time: every one of them may go into every channel."""
        return max(1, min(PAGE, MOST_DELIVERIES // max(1, self.channels)))


@dataclass(slots=True)
class Puller:
    """``secrets``: a workspace's stored credentials, by its id."""

    pool: Pool
    downloader: Downloader
    secrets: Callable[[str], Secrets]

    def kind(self) -> JobKind:
        # A source has a next time of its own: a run that fails is not repeated before it.
        return JobKind(KIND, self.run_job, concurrency=8, soft_limit=240, hard_limit=600, max_attempts=1)

    async def run_job(self, context: JobContext) -> Row:
        source_id = str(context.payload["source_id"])
        try:
            return await self.pull(context.workspace_id, source_id, stop=lambda: context.should_stop)
        except SourceFailed as e:
            if not e.repeated:
                log.warning("source.failed", workspace_id=context.workspace_id, source_id=source_id, code=e.code)
            raise JobFailed(str(e), code=e.code, logged=True) from None
        except (SourceDisabled, NotFound) as e:
            # It was switched off or removed after its time had come.
            return {"outcome": "not_read", "reason": str(e)}

    async def pull(self, workspace_id: str, source_id: str, *, stop: Callable[[], bool] = lambda: False) -> Row:
        """Take what is new. Returns what the run's row says; raises SourceFailed, and the row says why too."""
        run = await self._begin(workspace_id, source_id)
        outcome, error = "failed", None
        try:
            outcome = await self._take(run, stop)
        except SourceFailed as e:
            error = {"code": e.code, "message": str(e), "permanent": e.permanent}
            e.repeated = await self._failed_before(run, e.code)
            raise
        except psycopg.errors.QueryCanceled:
            said = "the database took too long to keep a page of it; the pages before it are kept"
            slow = SourceFailed("took_too_long", said, permanent=False)
            error = {"code": slow.code, "message": str(slow), "permanent": slow.permanent}
            raise slow from None
        except asyncio.CancelledError:
            error = {"code": "cancelled", "message": "the run was cut off", "permanent": False}
            raise
        except Exception as e:
            error = {"code": "failed", "message": f"the run failed: {type(e).__name__}", "permanent": False}
            raise
        finally:
            stats = await self._end(run, outcome, error)
        return stats

    async def look(
        self, workspace_id: str, source_id: str, *, from_the_start: bool = False, most: int = 20
    ) -> tuple[list[Row], Row]:
        """What the next run would take and what it could not, at most so many; and how much there is of everything."""
        run = await self._as_if_begun(workspace_id, source_id)
        if from_the_start:
            run = replace(run, cursor={})
        found: list[Row] = []
        counts = Counter(read=0, take=0, seen=0, skip=0, invalid=0)
        about: Row = {"unchanged": False, "notes": [], "why_skipped": Counter(), "more": False}
        reader = self._reader(run)
        async for reading in batches(reader, _config(run), run.cursor, run.backlog, size=run.page):
            about["unchanged"], about["notes"] = reading.unchanged, about["notes"] + reading.notes
            unseen = None if from_the_start else await self._unseen(run, reading.items)
            for item in reading.items:
                outcome = _outcome(item, unseen)
                counts.update((outcome, "read"))
                about["why_skipped"].update([item.skip] if outcome == "skip" else [])
                if outcome in ("take", "invalid"):
                    found.append(_looked_at(item, outcome))
            if len(found) >= most and reading.more:
                about["more"] = True
                break
        return found[:most], {**counts, **about}

    async def _begin(self, workspace_id: str, source_id: str) -> _Run:
        found = await call(self.pool, "select * from autopost.begin_pull(%s, %s)", (workspace_id, source_id))
        if not found:
            raise SourceDisabled(
                f"the source {source_id} is disabled", hint="enabled: true in its declaration, then vestnik apply"
            )
        return _Run(workspace_id, source_id, **found[0])

    async def _as_if_begun(self, workspace_id: str, source_id: str) -> _Run:
        query = """
            select core.uuid7(now()) as run_id, s.kind, s.config_json as config, s.backlog,
                   autopost.pull_cursor(s.workspace_id, s.source_id) as cursor, 0 as channels
            from autopost.require_source(%s, %s) s"""
        return _Run(workspace_id, source_id, **(await call(self.pool, query, (workspace_id, source_id)))[0])

    async def _take(self, run: _Run, stop: Callable[[], bool]) -> str:
        """``unchanged`` when the source is what it was at the last run."""
        # A reader for this run alone: it keeps the rest of a long document between two pages.
        reader = self._reader(run)
        async for reading in batches(reader, _config(run), run.cursor, run.backlog, size=run.page):
            if reading.unchanged:
                return "unchanged"
            taken = await self._commit(run, reading.items, reading)
            if run.is_first and reading.items and not taken:
                # Somebody else was first: what counted as old may have come since.
                again = replace(run, cursor=(await self._as_if_begun(run.workspace_id, run.source_id)).cursor)
                return await self._take(again, stop) if again.cursor else "ok"
            if stop():
                break
        return "ok"

    async def _commit(self, run: _Run, items: Sequence[Item], reading: Reading | None) -> int:
        """How many of them were new. Without ``reading`` they are a part of a page: its end stays where it is."""
        page = [[_row(item) for item in items], reading.cursor if reading else None, reading.notes if reading else []]
        arguments = (run.workspace_id, run.source_id, run.run_id, *map(_json, page), run.is_first)
        try:
            return int((await call(self.pool, _COMMIT, (*arguments, *[run.workspace_id] * 2)))[0]["items"])
        except _CANNOT_STORE as e:
            if len(items) > 1:  # one of them cannot be stored; the others must not pay for it
                half = len(items) // 2
                return await self._commit(run, items[:half], None) + await self._commit(run, items[half:], reading)
            if not items or items[0].problem:
                raise
            problem = f"it cannot be stored: {str(e).splitlines()[0]}"
            return await self._commit(run, [replace(items[0], payload={}, problem=problem)], reading)

    async def _end(self, run: _Run, outcome: str, error: Row | None) -> Row:
        query = "select autopost.end_pull(%s, %s, %s, %s, %s) as stats"
        arguments = (run.workspace_id, run.source_id, run.run_id, outcome, Jsonb(error) if error else None)
        return (await call(self.pool, query, arguments))[0]["stats"] or {}

    async def _failed_before(self, run: _Run, code: str) -> bool:
        query = "select 1 from autopost.pull_sources where workspace_id = %s and source_id = %s and last_error ->> 'code' = %s"
        return bool(await call(self.pool, query, (run.workspace_id, run.source_id, code)))

    def _reader(self, run: _Run) -> SourceReader:
        return reader(run.kind, downloader=self.downloader, secrets=self.secrets(run.workspace_id))

    async def _unseen(self, run: _Run, items: Sequence[Item]) -> set[str]:
        keys = [item.key for item in items]
        query = "select u as key from autopost.unseen_items(%s, %s, %s) u"
        return {row["key"] for row in await call(self.pool, query, (run.workspace_id, run.source_id, keys))}


def _config(run: _Run) -> Any:
    try:
        return validate(run.kind, run.config)
    except ConfigError as e:
        message = f"its configuration is wrong: {e}"
    raise SourceFailed("bad_config", message, permanent=True)


def _json(value: Any) -> Jsonb | None:
    return None if value is None else Jsonb(value)


def _row(item: Item) -> Row:
    if item.problem:
        return {"key": item.key, "problem": item.problem}
    return {"key": item.key, "skip": item.skip} if item.skip else {"key": item.key, "payload": item.payload}


def _outcome(item: Item, unseen: set[str] | None) -> str:
    if unseen is not None and item.key not in unseen:
        return "seen"
    return "invalid" if item.problem else "skip" if item.skip else "take"


def _looked_at(item: Item, outcome: str) -> Row:
    shown: Row = {"key": item.key, "outcome": outcome, "published_at": item.published_at}
    return shown | ({"reason": item.problem} if item.problem else {"payload": item.payload})


_COMMIT = """
with done as materialized (
    select * from autopost.commit_pull(%s, %s, %s, %s, %s, %s, p_first => %s)
), woken as materialized (
    select pg_notify('vestnik_wake', %s) from (select from done where enqueued > 0 limit 1) any_row
), asked as materialized (
    select pg_notify('vestnik_jobs', %s) from (select from done where media_pending > 0 limit 1) any_row
)
select count(*) as items from done left join woken on true left join asked on true
"""
