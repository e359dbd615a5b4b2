"""Full payloads go when their time is over, those that no event names with them. An object's name says how old it is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from vestnik.autopost.payloads.vault import FOLDER, is_ref, made_at
from vestnik.db.pool import call
from vestnik.ops.jobs.recurring import Recurring
from vestnik.ops.retention import Found, Turn, retention_kind
from vestnik.storage import ObjectStore, Stat


@dataclass(frozen=True, slots=True)
class Payloads:
    store: ObjectStore
    name: str = "payloads"
    about: str = "full answers of platforms, rejected pushes"
    for_service: bool = False

    async def remove(self, turn: Turn) -> int:
        """Bounded and begun anew each time: what is gone is not met again."""
        before, removed = await self._before(turn), 0
        async for each in self._old(turn, before):
            if turn.budget.over:
                return removed
            await self.store.delete(each.path)
            removed += 1
            turn.budget.rows -= 1
        await self.store.sweep_unfinished(f"{FOLDER}/{turn.workspace_id}", before)
        note = "select ops.note_retention(%s, %s, %s, null, %s, coalesce(%s::timestamptz, now()))"
        await call(turn.pool, note, (turn.workspace_id, self.name, removed, before, turn.now))
        return removed

    async def look(self, turn: Turn) -> Found:
        going, size, oldest = 0, 0, None
        async for each in self._old(turn, await self._before(turn)):
            if turn.budget.over:
                return Found(going, oldest, complete=False, more={"bytes": size})
            going, size = going + 1, size + each.size
            made = _made(each)
            oldest = min(oldest or made, made)
            turn.budget.rows -= 1
        return Found(going, oldest, more={"bytes": size})

    async def _before(self, turn: Turn) -> datetime:
        query = "select coalesce(%s::timestamptz, now()) - autopost.payloads_keep(%s) as before"
        before: datetime = (await call(turn.pool, query, (turn.now, turn.workspace_id)))[0]["before"]
        return before.astimezone(UTC)

    async def _old(self, turn: Turn, before: datetime) -> AsyncIterator[Stat]:
        async for each in self.store.list(f"{FOLDER}/{turn.workspace_id}"):
            if _made(each) < before:
                yield each


def payloads_retention(store: ObjectStore) -> Recurring:
    return Recurring(retention_kind("payloads.retention", [Payloads(store)]), every=timedelta(hours=1))


def _made(each: Stat) -> datetime:
    name = each.path.rpartition("/")[2]
    return made_at(name) if is_ref(name) else each.modified
