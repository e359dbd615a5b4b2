from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from psycopg import AsyncConnection
from psycopg.rows import DictRow, dict_row
from psycopg.types.json import Jsonb

from vestnik.db.pool import Pool, make_pool

START = datetime(2027, 3, 1, 12, 0, tzinfo=UTC)


class Troubles:
    """One workspace, and a clock in hand."""

    def __init__(self, connection: AsyncConnection[DictRow], workspace: str) -> None:
        self.connection, self.workspace, self.now = connection, workspace, START

    def wait(self, **duration: float) -> None:
        self.now += timedelta(**duration)

    async def sql(self, query: str, *arguments: Any) -> list[DictRow]:
        cursor = await self.connection.execute(query.encode(), arguments)
        return await cursor.fetchall() if cursor.description else []

    async def value(self, query: str, *arguments: Any) -> Any:
        return next(iter((await self.sql(query, *arguments))[0].values()))

    async def put(self, alert: str = "disk", subject: str = "", severity: str = "warning", **details: Any) -> bool:
        query = "select ops.put_alert(%s, %s, %s, %s, %s, %s, %s)"
        summary = f"{alert} is wrong"
        return bool(
            await self.value(query, self.workspace, alert, subject, severity, summary, Jsonb(details), self.now)
        )

    async def clear(self, alert: str = "disk", subject: str = "") -> bool:
        query = "select ops.clear_alert(%s, %s, %s, %s)"
        return bool(await self.value(query, self.workspace, alert, subject, self.now))

    async def row(self, alert: str = "disk", subject: str = "") -> DictRow:
        query = "select * from ops.alerts where workspace_id = %s and alert = %s and subject = %s"
        return (await self.sql(query, self.workspace, alert, subject))[0]

    async def target(self, target_id: str = "chat", **columns: Any) -> str:
        row = {
            "workspace_id": self.workspace, "target_id": target_id, "kind": "telegram", "address": "-100", "auth_ref": "bot",
        } | columns  # fmt: skip
        names, places = ", ".join(row), ", ".join(["%s"] * len(row))
        await self.sql(f"insert into ops.alert_targets ({names}) values ({places})", *row.values())
        return target_id


@pytest.fixture
async def troubles(worker_database: str) -> AsyncIterator[Troubles]:
    async with await AsyncConnection.connect(worker_database, autocommit=True, row_factory=dict_row) as connection:
        troubles = Troubles(connection, f"w-{uuid4().hex}")
        await troubles.sql("insert into core.workspaces (workspace_id, name) values (%s, 'a test')", troubles.workspace)
        yield troubles


@pytest.fixture
async def shared_pool(worker_database: str) -> AsyncIterator[Pool]:
    async with make_pool(worker_database, max_size=4) as pool:
        yield pool
