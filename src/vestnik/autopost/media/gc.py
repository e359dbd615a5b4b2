"""Files that nobody needs any more go: their rows first, then their objects, then the objects that no row names."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from vestnik.autopost.media.blobs import folder_of
from vestnik.db.pool import call
from vestnik.ops.retention import Found, Pages, Rule, Turn
from vestnik.storage import ObjectStore

GRACE = timedelta(days=2)  # of an object without a row: nobody takes so long from the one to the other
FILES = 100  # of a page: their objects are deleted after its commit
OBJECTS = 1000
_SHARDS = 256
_AT = "coalesce(%(now)s::timestamptz, now())"


def media_rules(store: ObjectStore) -> list[Rule]:
    return [_REFS, Files(store), _HANDLES, Strays(store)]


@dataclass(frozen=True, slots=True)
class Files:
    store: ObjectStore
    name: str = "media"
    about: str = "files that no post names; large videos: that nothing waits for"
    for_service: bool = False

    async def remove(self, turn: Turn) -> int:
        removed, more = 0, True
        query = f"select * from autopost.forget_files(%(workspace_id)s, %(keep)s, %(limit)s, {_AT})"
        while more and not turn.budget.over:
            row = (await call(turn.pool, query, turn.parameters(limit=FILES)))[0]
            for path in row["paths"]:
                await self.store.delete(path)
            removed, more = removed + row["removed"], row["more"]
            turn.budget.rows -= row["removed"]
        return removed

    async def look(self, turn: Turn) -> Found:
        return await _FILES.look(turn)


@dataclass(frozen=True, slots=True)
class Strays:
    """What dead processes, and runs that were killed between a row and its object, have left in the store."""

    store: ObjectStore
    name: str = "objects"
    about: str = "objects in the store that no row names"
    for_service: bool = False

    async def remove(self, turn: Turn) -> int:
        """Shard by shard: the next run goes on where this one ends."""
        found = await call(turn.pool, "select ops.retention_place(%s, 'objects') as at", (turn.workspace_id,))
        removed, begin = 0, int(found[0]["at"] or "0", 16)
        if not await self._holds_any(turn.workspace_id):
            begin = _SHARDS - 1
        for shard in range(begin, _SHARDS):
            if turn.budget.over:
                break
            gone = 0
            async with aclosing(self._strays(turn, f"{shard:02x}")) as pages:
                async for paths in pages:
                    for path in paths:
                        await self.store.delete(path)
                    gone += len(paths)
            following = f"{shard + 1:02x}" if shard + 1 < _SHARDS else None
            note = "select ops.note_retention(%s, 'objects', %s, %s)"
            await call(turn.pool, note, (turn.workspace_id, gone, following))
            turn.budget.rows -= gone
            removed += gone
        return removed

    async def look(self, turn: Turn) -> Found:
        going = 0
        if await self._holds_any(turn.workspace_id):
            for shard in range(_SHARDS):
                if turn.budget.over:
                    return Found(going, complete=False)
                async with aclosing(self._strays(turn, f"{shard:02x}")) as pages:
                    async for paths in pages:
                        going += len(paths)
        return Found(going)

    async def _holds_any(self, workspace_id: str) -> bool:
        async with aclosing(self.store.list(folder_of(workspace_id))) as objects:
            async for _ in objects:
                return True
        return False

    async def _strays(self, turn: Turn, shard: str) -> AsyncGenerator[list[str]]:
        """Of one shard, a page at a time."""
        old = (turn.now or datetime.now(UTC)) - GRACE
        page: list[str] = []
        async with aclosing(self.store.list(folder_of(turn.workspace_id, shard))) as objects:
            async for each in objects:
                if each.modified < old:
                    page.append(each.path)
                if len(page) >= OBJECTS:
                    yield await _unnamed(turn, page)
                    page = []
        if page:
            yield await _unnamed(turn, page)


async def _unnamed(turn: Turn, paths: list[str]) -> list[str]:
    query = "select path from autopost.unknown_objects(%s, %s) path"
    return [row["path"] for row in await call(turn.pool, query, (turn.workspace_id, paths))]


_REFS = Pages(
    "media_refs",
    "the count of posts that name each file, put right",
    f"select * from autopost.reconcile_refs(%(workspace_id)s, %(limit)s, {_AT})",
    "select 0::bigint as going, null as place, null::timestamptz as oldest",
)
_FILES = Pages(
    "media",
    "",
    "",
    f"select * from autopost.look_at_files(%(workspace_id)s, %(keep)s, %(after)s, %(limit)s, {_AT})",
)
_HANDLES = Pages(
    "handles",
    "platforms' handles of files that have expired",
    f"select * from autopost.prune_handles(%(workspace_id)s, %(limit)s, {_AT})",
    f"select * from autopost.look_at_handles(%(workspace_id)s, %(keep)s, %(after)s, %(limit)s, {_AT})",
)
