"""What is old goes: every capability brings its rules, one run goes through the workspaces with all of them.

A rule removes page by page, and each page is one transaction that also notes where the next begins. So a run may end, or be
killed, wherever it is: the next one goes on from there. How long what is kept lies in ``ops.retention``.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, LiteralString, Protocol

import psycopg
from psycopg.types.json import Jsonb

from vestnik.db.pool import Pool, call
from vestnik.db.refusals import OF_THE_ROWS
from vestnik.errors import NotFound, VestnikError
from vestnik.log import get_log
from vestnik.ops.jobs.registry import JobContext, JobKind, Stats
from vestnik.ops.jobs.verbs import SERVICE

PAGE = 500
ROWS = 2_000_000
SECONDS = 200.0
LOOK_AT_MOST = 200_000  # rows of one rule
LOOK_SECONDS = 60.0  # at all of them
REST = 1.0  # times what a page took: the deliveries beside it go first
Row = dict[str, Any]
log = get_log()


@dataclass(slots=True)
class Budget:
    """How much one run may do. It ends at a good place when it is over."""

    rows: int = ROWS
    seconds: float = SECONDS
    told_to_stop: Callable[[], bool] = lambda: False
    began: float = field(default_factory=lambda: asyncio.get_running_loop().time())

    @property
    def over(self) -> bool:
        late = asyncio.get_running_loop().time() - self.began >= self.seconds
        return late or self.rows <= 0 or self.told_to_stop()


@dataclass(frozen=True, slots=True)
class Turn:
    """One workspace and one rule. ``now`` is None for the database's own time: to look only, never to remove."""

    pool: Pool
    workspace_id: str
    keep: timedelta | None
    options: dict[str, Any]
    budget: Budget
    now: datetime | None = None

    def parameters(self, **more: Any) -> Row:
        return {"workspace_id": self.workspace_id, "keep": self.keep, "now": self.now, "limit": PAGE} | more


@dataclass(frozen=True, slots=True)
class Found:
    """What would go, at least: ``complete`` when all was looked at."""

    going: int
    oldest: datetime | None = None
    complete: bool = True
    more: Row = field(default_factory=dict)


class Rule(Protocol):
    """``name`` is its row in ops.retention, if it has one; ``for_service``: there are such rows beside the workspaces', too."""

    @property
    def name(self) -> str: ...
    @property
    def about(self) -> str: ...
    @property
    def for_service(self) -> bool: ...

    async def remove(self, turn: Turn) -> int:
        """Until nothing is left or the budget is over; how many rows went."""
        ...

    async def look(self, turn: Turn) -> Found: ...


@dataclass(frozen=True, slots=True)
class Pages:
    """A rule of two statements. ``remove`` returns ``removed`` and ``more``; ``look`` returns ``going``, ``oldest`` and the
    ``place`` that the next call gets as ``after``."""

    name: str
    about: str
    remove_page: LiteralString
    look_at_page: LiteralString
    for_service: bool = False

    async def remove(self, turn: Turn, **given: Any) -> int:
        removed, more = 0, True
        while more and not turn.budget.over:
            began = asyncio.get_running_loop().time()
            row = (await call(turn.pool, self.remove_page, turn.parameters(**given)))[0]
            removed, more = removed + row["removed"], row["more"]
            turn.budget.rows -= row["removed"]
            await asyncio.sleep((asyncio.get_running_loop().time() - began) * REST)
        return removed

    async def look(self, turn: Turn) -> Found:
        going, after, oldest, more = 0, None, None, Counter[str]()
        while not turn.budget.over:
            page = turn.parameters(after=after, limit=PAGE * 20)
            row = (await call(turn.pool, self.look_at_page, page))[0]
            after = row.pop("place")
            going += row.pop("going")
            oldest = min((each for each in (oldest, row.pop("oldest")) if each is not None), default=None)
            more.update(row)
            if after is None:
                return Found(going, oldest, more=dict(more))
            turn.budget.rows -= PAGE * 20
        return Found(going, oldest, complete=False, more=dict(more))


async def run(
    pool: Pool,
    rules: Iterable[Rule],
    *,
    workspace_id: str | None = None,
    budget: Budget | None = None,
    now: datetime | None = None,
    actor: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Stats:
    """Removes what is over. ``more``: the budget ended first; the next run begins with the workspace after that one.

    Without ``now`` it works by the database's clock as that is when it begins, and not at all (``held``) while that clock
    cannot be believed. Who asks for it by hand goes on record as ``actor``.
    """
    budget = budget or Budget()
    now = now or (await call(pool, "select ops.believed_now() as now"))[0]["now"]
    if now is None:
        return {"removed": {}, "more": False, "held": "clock"}
    removed: Counter[str] = Counter()
    failed: dict[str, str] = {}
    for workspace in await _in_turn(pool, workspace_id):
        if budget.over:
            break
        progress(workspace)
        if workspace_id is None and workspace != SERVICE:
            await call(pool, "select ops.note_retention(%s, 'turn', 0, %s)", (SERVICE, workspace))
        keeps, reached = await _keeps(pool, workspace), await _reached(pool, workspace)
        for rule in rules:
            if budget.over or (workspace == SERVICE and not rule.for_service):
                continue
            turn = _turn(pool, workspace, rule, keeps, budget, now)
            try:
                removed[rule.name] += await rule.remove(turn)
                if reached.get(rule.name, {}).get("last_error"):
                    await call(pool, _MENDED, (workspace, rule.name))
            except OF_THE_ROWS as e:
                # What one rule meets in one workspace is not the others' business.
                failed[f"{workspace}/{rule.name}"] = await _note_failure(pool, workspace, rule.name, e)
    done: Stats = {"removed": {k: v for k, v in removed.items() if v}, "more": budget.over}
    if failed:
        done["failed"] = failed
    if actor is not None:
        note = "select core.note_change(%s, %s, 'retention_run', 'retention', %s)"
        await call(pool, note, (workspace_id or SERVICE, actor, Jsonb(done)))
    return done


async def status(
    pool: Pool,
    rules: Sequence[Rule],
    *,
    workspace_id: str | None = None,
    budget: Budget | None = None,
    now: datetime | None = None,
) -> list[Row]:
    """Each workspace and rule: how long what is kept, what would go now, how far the removal has come. Removes nothing."""
    shown: list[Row] = []
    until = asyncio.get_running_loop().time() + LOOK_SECONDS
    for workspace in await _in_turn(pool, workspace_id):
        keeps, reached = await _keeps(pool, workspace), await _reached(pool, workspace)
        for rule in rules:
            if workspace == SERVICE and not rule.for_service:
                continue
            left = until - asyncio.get_running_loop().time()
            own = budget or Budget(rows=LOOK_AT_MOST, seconds=min(left, LOOK_SECONDS / 3))
            turn = _turn(pool, workspace, rule, keeps, own, now)
            found = await rule.look(turn)
            shown.append(
                {"workspace_id": workspace, "rule": rule.name, "about": rule.about, "keep": turn.keep}
                | {"own": keeps.get(rule.name, {}).get("own", False), "options": turn.options or None}
                | {"going": found.going, "complete": found.complete, "oldest": found.oldest, **found.more}
                | dict.fromkeys(("removed", "passed_at", "gone_before", "last_error"))
                | reached.get(rule.name, {})
            )
    return shown


def retention_kind(name: str, rules: Sequence[Rule], *, soft_limit: float = 240.0) -> JobKind:
    """The job that goes through the workspaces with some rules. What it does not finish, the next one goes on with."""

    async def work(job: JobContext) -> Stats:
        budget = Budget(seconds=soft_limit, told_to_stop=lambda: job.should_stop)
        return await run(job.pool, rules, budget=budget, progress=lambda workspace: job.progress(0, None, workspace))

    return JobKind(name, work, concurrency=1, soft_limit=soft_limit, hard_limit=soft_limit + 60)


def chosen(rules: Sequence[Rule], name: str | None) -> Sequence[Rule]:
    found = [rule for rule in rules if name in (None, rule.name)]
    if not found:
        raise NotFound(f"no rule is called {name!r}", hint=f"one of {', '.join(rule.name for rule in rules)}")
    return found


def _turn(pool: Pool, workspace: str, rule: Rule, keeps: dict[str, Row], budget: Budget, now: datetime | None) -> Turn:
    kept = keeps.get(rule.name, {})
    return Turn(pool, workspace, kept.get("keep"), kept.get("options") or {}, budget, now)


async def _in_turn(pool: Pool, workspace_id: str | None) -> list[str]:
    """All of them, beginning after the one that was served last: a large one does not use up every run."""
    if workspace_id is not None:
        await call(pool, "select ops.must_be_workspace(%s)", (workspace_id,))
        return [workspace_id]
    found = await call(pool, "select workspace_id from core.workspaces order by 1")
    last = await call(pool, "select ops.retention_place(%s, 'turn') as last", (SERVICE,))
    after = last[0]["last"] or ""
    names = [row["workspace_id"] for row in found]
    return [SERVICE, *(name for name in names if name > after), *(name for name in names if name <= after)]


async def _keeps(pool: Pool, workspace_id: str) -> dict[str, Row]:
    query = """
        select r.rule, ops.keep_of(%(ws)s, r.rule) as keep, ops.retention_options(%(ws)s, r.rule) as options,
               exists (select from ops.retention o where o.workspace_id = nullif(%(ws)s, '*') and o.rule = r.rule and o.keep is not null) as own
        from ops.retention r where r.workspace_id = '*'"""
    return {row["rule"]: row for row in await call(pool, query, {"ws": workspace_id})}


async def _reached(pool: Pool, workspace_id: str) -> dict[str, Row]:
    query = (
        "select rule, removed, passed_at, gone_before, last_error from ops.retention_progress where workspace_id = %s"
    )
    return {row.pop("rule"): row for row in await call(pool, query, (workspace_id,))}


async def _note_failure(pool: Pool, workspace_id: str, rule: str, error: Exception) -> str:
    words = str(error) if isinstance(error, VestnikError) else next(iter(str(error).splitlines()), "")
    log.error("retention.failed", workspace_id=workspace_id, rule=rule, error=words)
    try:
        facts = Jsonb({"rule": rule, "error": type(error).__name__})
        await call(pool, _FAILED, {"ws": workspace_id, "rule": rule, "words": words, "facts": facts})
    except psycopg.Error as e:
        log.warning("retention.failure_not_noted", workspace_id=workspace_id, error=str(e).strip())
    return words[:300]


_FAILED = """
select ops.note_retention_error(%(ws)s, %(rule)s, %(words)s),
       ops.put_alert(%(ws)s, 'retention_failed', %(rule)s, 'warning', 'what is old is not removed: ' || %(rule)s, %(facts)s)"""
_MENDED = "select ops.clear_alert(%s, 'retention_failed', %s)"
