"""What autopost keeps for how long: its rules, each with the function that removes a page and the one that only looks."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import LiteralString

import psycopg

from vestnik.autopost.media.gc import media_rules
from vestnik.autopost.payloads.retention import Payloads
from vestnik.db.pool import Connection, call, retrying
from vestnik.ops.jobs.housekeeping import FINISHED_JOBS
from vestnik.ops.jobs.recurring import Recurring
from vestnik.ops.jobs.verbs import SERVICE
from vestnik.ops.retention import Found, Pages, Rule, Turn, retention_kind
from vestnik.storage import ObjectStore

ARCHIVE = "archive"
LINES = 5000
LOCK_TRIES = 20  # to drop a day, at 200 ms each
_AT = "coalesce(%(now)s::timestamptz, now())"


def rules(store: ObjectStore) -> list[Rule]:
    """All of them, in the order in which they go: messages after the deliveries that refer to them, files after messages."""
    return [*_TABLES, EventDays(store), *media_rules(store), Payloads(store)]


def recurring_retention(store: ObjectStore) -> list[Recurring]:
    return [
        Recurring(retention_kind("retention", [*_TABLES, EventDays(store)]), every=timedelta(hours=1)),
        Recurring(retention_kind("media.gc", media_rules(store), soft_limit=1800), cron="17 3 * * *"),
    ]


def _pages(name: str, about: str, function: LiteralString, look: LiteralString) -> Pages:
    given = f"(%(workspace_id)s, %(keep)s, %(limit)s, {_AT})"
    looked = f"(%(workspace_id)s, %(keep)s, %(after)s, %(limit)s, {_AT})"
    return Pages(name, about, f"select * from autopost.{function}{given}", f"select * from autopost.{look}{looked}")


_TABLES: list[Rule] = [
    _pages("deliveries", "what was sent or given up", "prune_deliveries", "look_at_deliveries"),
    _pages("messages", "posts without a delivery", "prune_messages", "look_at_messages"),
    _pages("ingest_runs", "what came in when", "prune_runs", "look_at_runs"),
    Pages(
        "receipts",
        "references of requests, each until it expires",
        f"""with gone as materialized (select autopost.sweep_receipts(%(workspace_id)s, %(limit)s, {_AT}) as n)
            select n as removed, n >= %(limit)s as more, ops.note_retention(%(workspace_id)s, 'receipts', n, p_now => {_AT})
            from gone""",
        f"""select count(*) as going, null as place, min(expires_at) as oldest from autopost.ingress_receipts
            where workspace_id = %(workspace_id)s and expires_at < {_AT}""",
    ),
    FINISHED_JOBS,
]


@dataclass(frozen=True, slots=True)
class EventDays:
    """The log lies in days of all workspaces together. A day that nobody keeps is dropped whole (as the service's own turn); a
    workspace that keeps less than others has its rows removed. What is to be archived is, before either."""

    store: ObjectStore
    name: str = "events"
    about: str = "what happened, by whole days"
    for_service: bool = True

    async def remove(self, turn: Turn) -> int:
        if turn.workspace_id == SERVICE:
            return await self._drop_days(turn)
        if turn.options.get("archive") is not True:
            return await _EVENT_ROWS.remove(turn, before=None)
        removed = 0
        while not turn.budget.over and (day := await _oldest_day(turn)):
            if not await call(turn.pool, _IS_ARCHIVED, (turn.workspace_id, day)):
                await self._archive(turn, turn.workspace_id, day)
            removed += await _EVENT_ROWS.remove(turn, before=day + timedelta(days=1))
        return removed

    async def look(self, turn: Turn) -> Found:
        if turn.workspace_id == SERVICE:
            row = (await call(turn.pool, _LOOK_AT_DAYS, turn.parameters()))[0]
            return Found(row["days"], row["oldest"], more={"bytes": int(row["bytes"])})
        return await _EVENT_ROWS.look(turn)

    async def _drop_days(self, turn: Turn) -> int:
        dropped = 0
        for row in await call(turn.pool, f"select day from autopost.old_event_days({_AT}) day", turn.parameters()):
            if turn.budget.over:
                break
            for wants in await call(turn.pool, "select w from autopost.days_to_archive(%s) w", (row["day"],)):
                await self._archive(turn, wants["w"], row["day"])
            await _drop(turn, row["day"])
            dropped += 1
        return dropped

    async def _archive(self, turn: Turn, workspace_id: str, day: date) -> None:
        """The object is there as a whole before its row is, and the row before anything is removed."""
        path = f"{ARCHIVE}/{workspace_id}/events/{day.isoformat()}.jsonl.gz"
        packed = _Packed(turn, workspace_id, day)
        await self.store.put(path, packed.chunks())
        note = "select autopost.note_archive(%s, %s, %s, %s, coalesce(%s::timestamptz, now()))"
        await call(turn.pool, note, (workspace_id, day, path, packed.events, turn.now))


class _Packed:
    """A day of one workspace as compressed lines of JSON, in their order."""

    def __init__(self, turn: Turn, workspace_id: str, day: date) -> None:
        self._turn, self._workspace_id, self._day = turn, workspace_id, day
        self.events = 0

    async def chunks(self) -> AsyncIterator[bytes]:
        packer, place = zlib.compressobj(wbits=31), None  # 31: as gzip does it
        query = "select * from autopost.event_lines(%s, %s, %s, %s)"
        while lines := await call(self._turn.pool, query, (self._workspace_id, self._day, place, LINES)):
            self.events += len(lines)
            place = lines[-1]["place"]
            text = "".join(row["line"] + "\n" for row in lines).encode()
            if packed := await asyncio.to_thread(packer.compress, text):
                yield packed
        yield packer.flush()


async def _oldest_day(turn: Turn) -> date | None:
    query = f"select autopost.oldest_event_day(%(workspace_id)s, %(keep)s, {_AT}) as day"
    day: date | None = (await call(turn.pool, query, turn.parameters()))[0]["day"]
    return day


async def _drop(turn: Turn, day: date) -> None:
    """Short patience, often: whoever writes an event must not queue behind the lock that waits for a long reader."""

    async def work(connection: Connection) -> None:
        await connection.execute("set local lock_timeout = '200ms'")
        await connection.execute(
            "select autopost.drop_event_day(%s, coalesce(%s::timestamptz, now()))", (day, turn.now)
        )

    for _ in range(LOCK_TRIES - 1):
        try:
            return await retrying(turn.pool, work)
        except psycopg.errors.LockNotAvailable:
            if turn.budget.over:
                break
            await asyncio.sleep(0.5)
    return await retrying(turn.pool, work)


_EVENT_ROWS = Pages(
    "events",
    "",
    f"select * from autopost.prune_events(%(workspace_id)s, %(keep)s, %(limit)s, {_AT}, %(before)s::timestamptz)",
    f"select * from autopost.look_at_events(%(workspace_id)s, %(keep)s, %(after)s, %(limit)s, {_AT})",
)
_IS_ARCHIVED = "select 1 from autopost.event_archives where workspace_id = %s and day = %s"
_LOOK_AT_DAYS = f"""
    select count(*) as days, min(day)::timestamp at time zone 'UTC' as oldest,
           coalesce(sum(pg_total_relation_size(to_regclass('autopost.events_' || to_char(day, 'YYYYMMDD')))), 0) as bytes
    from autopost.old_event_days({_AT}) day"""
