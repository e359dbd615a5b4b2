"""The monitor as the job that comes round: every workspace, the service itself, and who is told, also when one of them is away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from psycopg import AsyncConnection

from vestnik.autopost.media.probe import probe
from vestnik.autopost.monitor import Monitor
from vestnik.db.pool import Pool, call
from vestnik.ops.alerts.contract import Message, Target, TellFailed
from vestnik.ops.alerts.notifier import Notifier
from vestnik.ops.jobs.registry import JobContext, JobKind, Stats
from vestnik.storage import StorageError, open_store


class Office:
    """A monitor, and targets that take what they are told unless they are ``away``."""

    def __init__(self, pool: Pool, trial: Callable[[], Awaitable[None]], folders: dict[str, Path]) -> None:
        self.pool, self.away = pool, set[str]()
        self.heard: list[tuple[str, str]] = []
        self.notifier = Notifier(pool, {"telegram": self._take, "email": self._take})
        self.monitor = Monitor(pool, self.notifier, trial, folders)

    async def _take(self, target: Target, message: Message) -> None:
        if target.target_id in self.away:
            raise TellFailed("http_503", "away")
        self.heard += [(target.target_id, f"{n['alert']} {n['news']}") for n in message.notices]

    async def round(self) -> Stats:
        """The monitor once, then every notifier that it asked for."""
        stats = await self._run(self.monitor.recurring().kind, "*", {})
        asked = await call(
            self.pool,
            "update ops.jobs set status = 'done', finished_at = now() where kind = 'alert.notify' and status = 'waiting'"
            " returning workspace_id, payload",
        )
        for row in sorted(asked, key=str):
            await self._run(self.notifier.kind(), row["workspace_id"], row["payload"])
        return stats

    async def _run(self, kind: JobKind, workspace_id: str, payload: dict[str, Any]) -> Stats:
        deadline = asyncio.get_running_loop().time() + 60
        return (
            await kind.handler(JobContext(uuid4(), workspace_id, kind.name, payload, 1, None, self.pool, deadline))
            or {}
        )

    async def target(self, target_id: str, workspace_id: str = "w") -> None:
        await call(
            self.pool,
            "insert into ops.alert_targets (workspace_id, target_id, kind, address) values (%s, %s, 'email', 'a@e.org')",
            (workspace_id, target_id),
        )

    async def alerts(self, workspace_id: str = "*") -> list[str]:
        query = "select alert from ops.alerts where workspace_id = %s and cleared_at is null order by 1"
        return [row["alert"] for row in await call(self.pool, query, (workspace_id,))]


async def office_of(pool: Pool, trial: Callable[[], Awaitable[None]] | None = None, **folders: Path) -> Office:
    async def works() -> None: ...

    return Office(pool, trial or works, folders)


async def a_dead_job(pool: Pool, workspace_id: str = "w") -> None:
    await call(
        pool,
        "insert into ops.jobs (workspace_id, job_id, kind, status, finished_at)"
        " values (%s, gen_random_uuid(), 'media.fetch', 'dead', now())",
        (workspace_id,),
    )


async def test_every_workspace_is_watched_and_its_targets_are_told(pool: Pool, autopost: Any) -> None:
    office = await office_of(pool)
    await call(pool, "insert into core.workspaces (workspace_id, name) values ('v', 'v')")
    for workspace_id in ("v", "w", "*"):
        await office.target("mail", workspace_id)
        await a_dead_job(pool, workspace_id)
    stats = await office.round()
    assert (stats["workspaces"], stats["alerts"], stats["told"], stats["failed"]) == (2, 3, 3, 0)
    assert office.heard == [("mail", "jobs_dead raised")] * 3
    await office.round()
    assert len(office.heard) == 3


async def test_a_target_that_is_away_hears_what_is_so_when_it_is_back(pool: Pool, autopost: Any) -> None:
    """And the other one hears that it is away, and that it is not any more."""
    office = await office_of(pool)
    await office.target("chat")
    await office.target("mail")
    office.away = {"chat"}
    await a_dead_job(pool)
    for _ in range(4):
        await office.round()
        await call(pool, "update ops.alert_targets set next_try_at = null")
    assert office.heard == [("mail", "jobs_dead raised"), ("mail", "alert_target raised")]
    office.away, office.heard = set(), []
    await call(pool, "update ops.alert_policies set clear_after = '0'")
    for _ in range(3):
        await office.round()
    assert office.heard == [("chat", "jobs_dead raised"), ("mail", "alert_target cleared")]


async def test_a_target_that_is_away_is_not_asked_at_every_round(pool: Pool, autopost: Any) -> None:
    office = await office_of(pool)
    await office.target("chat")
    office.away = {"chat"}
    await a_dead_job(pool)
    assert [(await office.round())["told"] for _ in range(3)] == [1, 0, 0]


async def test_a_workspace_that_cannot_be_looked_at_does_not_keep_the_others_from_it(pool: Pool, autopost: Any) -> None:
    office = await office_of(pool)
    await call(pool, "insert into core.workspaces (workspace_id, name) values ('a', 'a')")
    await call(pool, "alter table ops.alerts add check (workspace_id <> 'a')")
    for workspace_id in ("a", "w"):
        await a_dead_job(pool, workspace_id)
    assert (await office.round())["failed"] == 1
    assert await office.alerts("w") == ["jobs_dead"]


async def test_what_may_go_wakes_the_dispatcher(pool: Pool, database: str, autopost: Any) -> None:
    office = await office_of(pool)
    await autopost.channel()
    async with await AsyncConnection.connect(database, autocommit=True) as listener:
        await listener.execute("listen vestnik_wake")
        await office.round()
        await call(
            pool, "select * from autopost.enqueue_messages_and_deliveries('w', null, 'push', '{\"text\": \"t\"}')"
        )
        await office.round()
        await listener.execute("select 1")
        woken = [notify.payload async for notify in listener.notifies(timeout=0)]
    assert woken == ["w"]


async def test_a_full_disk_is_an_alert_until_there_is_room(pool: Pool, autopost: Any, tmp_path: Path) -> None:
    office = await office_of(pool, data=tmp_path, objects=tmp_path / "not there yet")
    await call(pool, "select ops.alert_policy_of('*')")
    for percent, expected in ((100, ["disk"]), (0, [])):
        await call(pool, "update ops.alert_policies set disk_free_percent = %s", (percent,))
        await office.round()
        assert await office.alerts() == expected
    rows = await call(pool, "select details from ops.alerts where alert = 'disk'")
    assert (len(rows), rows[0]["details"]["path"]) == (1, str(tmp_path))


async def test_the_disk_of_a_machine_that_no_longer_tells_is_over_after_an_hour(pool: Pool, autopost: Any) -> None:
    office = await office_of(pool)
    for minutes, expected in ((59, ["disk"]), (61, [])):
        put = (
            "select ops.put_alert('*', 'disk', 'gone:/data', 'warning', 'full', '{}', now() - %s * interval '1 minute')"
        )
        await call(pool, put, (minutes,))
        await office.round()
        assert await office.alerts() == expected


async def test_an_object_store_that_does_not_take_anything_is_an_alert(
    pool: Pool, autopost: Any, tmp_path: Path
) -> None:
    store = open_store((tmp_path / "objects").as_uri())
    broken = True

    async def trial() -> None:
        if broken:
            raise StorageError("it is gone, with its key SECRET")
        await probe(store)

    office = await office_of(pool, trial)
    await office.round()
    assert await office.alerts() == ["object_store"]
    assert "SECRET" not in str(await call(pool, "select * from ops.alerts"))
    broken = False
    await office.round()
    assert await office.alerts() == []
    assert [path async for path in store.list("incoming")] == []


async def test_a_transaction_that_stays_open_is_an_alert(pool: Pool, database: str, autopost: Any) -> None:
    await call(pool, "insert into ops.alert_policies (workspace_id, oldest_xmin) values ('*', '1 second')")
    async with await AsyncConnection.connect(database, application_name="somebody") as other:
        await other.execute("insert into core.workspaces (workspace_id, name) values ('x', 'x')")
        found = await call(pool, "select * from ops.check_database('*', now() + interval '2 seconds')")
        assert [(row["alert"], row["details"]["application"]) for row in found] == [("oldest_xmin", "somebody")]
        assert await call(pool, "select * from ops.check_database('*', now())") == []


async def test_events_without_a_day_of_their_own_are_an_alert(pool: Pool, autopost: Any) -> None:
    office = await office_of(pool)
    await call(
        pool,
        "insert into autopost.events (workspace_id, id, ts, action) values ('w', gen_random_uuid(), '2041-01-01', 'enqueue')",
    )
    await office.round()
    assert await office.alerts() == ["default_partition"]
    await call(pool, "select autopost.drain_default_partition()")
    await office.round()
    assert await office.alerts() == []
