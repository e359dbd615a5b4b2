"""The monitor: again and again, in every workspace and for the service itself, what is stuck comes back, and what needs a
person becomes an alert that somebody is told."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from psycopg.types.json import Jsonb

from vestnik.autopost.housekeeping import SWEEP_BATCH
from vestnik.db.pool import Pool, call
from vestnik.db.refusals import OF_THE_ROWS
from vestnik.log import get_log
from vestnik.ops.alerts.notifier import Notifier
from vestnik.ops.jobs.recurring import Recurring
from vestnik.ops.jobs.registry import JobContext, JobKind, Stats
from vestnik.ops.jobs.verbs import SERVICE
from vestnik.storage import StorageError

EVERY = timedelta(seconds=30)
PROBE_EVERY = 300.0
PROBE_PATIENCE = 20.0
log = get_log()


class Monitor:
    """``probe`` writes to the object store and takes it back; ``folders``: what needs room, by what it is."""

    def __init__(
        self, pool: Pool, notifier: Notifier, probe: Callable[[], Awaitable[None]], folders: Mapping[str, Path]
    ) -> None:
        self._pool, self._notifier, self._probe, self._folders = pool, notifier, probe, folders
        self._probed_at = float("-inf")

    def recurring(self) -> Recurring:
        return Recurring(JobKind("monitor", self._run, concurrency=1, soft_limit=60, hard_limit=120), every=EVERY)

    async def _run(self, job: JobContext) -> Stats:
        stats = {"workspaces": 0, "came_back": 0, "alerts": 0, "told": 0, "failed": 0}
        rows = await call(self._pool, "select workspace_id from core.workspaces where status <> 'disabled' order by 1")
        for n, row in enumerate(rows):
            if job.should_stop:
                break
            job.progress(n, len(rows))
            await self._guarded(row["workspace_id"], self._watch, stats)
        await self._guarded(SERVICE, self._watch_service, stats)
        return stats

    async def _guarded(self, workspace_id: str, watch: Callable[[str, Stats], Awaitable[None]], stats: Stats) -> None:
        """One that cannot be looked at must not keep the others from it."""
        try:
            await watch(workspace_id, stats)
            stats["told"] += await self._notifier.ask(workspace_id)
        except OF_THE_ROWS as e:
            stats["failed"] += 1
            log.error("monitor.failed", workspace_id=workspace_id, error=str(e))

    async def _watch(self, workspace_id: str, stats: Stats) -> None:
        stats["workspaces"] += 1
        stats["came_back"] += await self._bring_back(workspace_id)
        found = await call(self._pool, "select * from autopost.monitor_workspace(%s)", (workspace_id,))
        self._log_new(workspace_id, found)
        stats["alerts"] += len(found)
        await call(self._pool, _KICK, (workspace_id, workspace_id))
        await call(self._pool, "select ops.prune_alerts(%s)", (workspace_id,))

    async def _bring_back(self, workspace_id: str) -> int:
        """Page by page: what a dead dispatcher has left behind, when no other sweeps it."""
        total = 0
        for guard in ("sweep_sending", "sweep_claimed"):
            count = SWEEP_BATCH
            while count >= SWEEP_BATCH:
                query = f"select autopost.{guard}(%s, %s) as n"
                count = (await call(self._pool, query, (workspace_id, SWEEP_BATCH)))[0]["n"]
                total += count
        return total

    async def _watch_service(self, workspace_id: str, stats: Stats) -> None:
        found = await call(self._pool, "select * from autopost.monitor_service()")
        self._log_new(workspace_id, found)
        stats["alerts"] += len(found)
        await self._watch_disks()
        await self._watch_store()
        await call(self._pool, "select ops.prune_alerts(%s)", (workspace_id,))

    async def _watch_disks(self) -> None:
        """Of this machine: the others that run jobs look after their own."""
        limit = (await call(self._pool, "select (ops.alert_policy_of('*')).disk_free_percent as n"))[0]["n"]
        for subject, details in disks(self._folders):
            if details["free_percent"] < limit:
                summary = f"{details['free_percent']:g} % of the disk is free"
                severity = "critical" if details["free_percent"] < limit / 2 else "warning"
                await put(self._pool, SERVICE, "disk", subject, severity, summary, details)
            else:
                await clear(self._pool, SERVICE, "disk", subject)

    async def _watch_store(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._probed_at < PROBE_EVERY:
            return
        self._probed_at = now
        try:
            async with asyncio.timeout(PROBE_PATIENCE):
                await self._probe()
        except (StorageError, TimeoutError) as e:
            self._probed_at = float("-inf")  # until it works again, every time
            error = type(e).__name__
            await put(
                self._pool, SERVICE, "object_store", "", "critical", f"a trial write failed: {error}", {"error": error}
            )
        else:
            await clear(self._pool, SERVICE, "object_store", "")

    def _log_new(self, workspace_id: str, found: Iterable[Mapping[str, Any]]) -> None:
        for row in found:
            if row["is_new"]:
                log.warning("alert.raised", workspace_id=workspace_id, alert=row["alert"], subject=row["subject"])


async def put(
    pool: Pool, workspace_id: str, alert: str, subject: str, severity: str, summary: str, details: Mapping[str, Any]
) -> bool:
    query = "select ops.put_alert(%s, %s, %s, %s, %s, %s) as new"
    rows = await call(pool, query, (workspace_id, alert, subject, severity, summary, Jsonb(dict(details))))
    if rows[0]["new"]:
        log.warning("alert.raised", workspace_id=workspace_id, alert=alert, subject=subject)
    return bool(rows[0]["new"])


async def clear(pool: Pool, workspace_id: str, alert: str, subject: str) -> bool:
    query = "select ops.clear_alert(%s, %s, %s) as over"
    return bool((await call(pool, query, (workspace_id, alert, subject)))[0]["over"])


def disks(folders: Mapping[str, Path]) -> list[tuple[str, dict[str, Any]]]:
    """Each disk once, however many folders lie on it."""
    host = socket.gethostname()
    found: dict[int, tuple[str, dict[str, Any]]] = {}
    for what, folder in folders.items():
        try:
            device, usage = folder.stat().st_dev, shutil.disk_usage(folder)
        except OSError:
            continue  # it is made when it is first needed
        percent = round(100 * usage.free / max(usage.total, 1), 1)
        details = {"what": what, "host": host, "path": str(folder), "free_percent": percent, "free_bytes": usage.free}
        found.setdefault(device, (f"{host}:{folder}", details))
    return list(found.values())


async def health(pool: Pool, workspace_id: str) -> dict[str, Any]:
    """A workspace at a glance."""
    rows = await call(pool, "select autopost.health_snapshot(%s) as health", (workspace_id,))
    found: dict[str, Any] = rows[0]["health"]
    return found


_KICK = "select pg_notify('vestnik_wake', %s) from autopost.needs_kick(%s) due where due"
