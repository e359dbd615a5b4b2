"""A small driver of the SQL functions, for tests that tell a story: one workspace, its channels, and a clock in hand."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import DictRow
from psycopg.types.json import Jsonb

Connection = AsyncConnection[DictRow]
START = datetime(2027, 3, 1, 12, 0, tzinfo=UTC)


class Autopost:
    """Every call passes ``now``: nothing here waits, time moves by ``wait``."""

    def __init__(self, connection: Connection, workspace: str = "w") -> None:
        self.connection = connection
        self.workspace = workspace
        self.now = START

    def on(self, connection: Connection) -> Autopost:
        """The same workspace and moment through another connection."""
        other = Autopost(connection, self.workspace)
        other.now = self.now
        return other

    def wait(self, **duration: float) -> None:
        self.now += timedelta(**duration)

    async def sql(self, query: str, *arguments: Any) -> list[DictRow]:
        cursor = await self.connection.execute(query, arguments)
        return await cursor.fetchall() if cursor.description else []

    async def value(self, query: str, *arguments: Any) -> Any:
        row = (await self.sql(query, *arguments))[0]
        return next(iter(row.values()))

    async def workspace_row(self, status: str = "active") -> None:
        await self.sql(
            "insert into core.workspaces (workspace_id, name, status) values (%s, %s, %s)",
            self.workspace, self.workspace, status,
        )  # fmt: skip

    async def channel(self, channel_id: str = "c1", **columns: Any) -> str:
        """A Telegram channel without a rate, unless told otherwise."""
        row = {
            "workspace_id": self.workspace, "channel_id": channel_id, "platform": "telegram",
            "target_id": f"@{channel_id}", "auth_ref": "bot", "rate_group": "bot", "rate_rps": None,
        } | columns  # fmt: skip
        row = {
            k: Jsonb(v) if k in ("settings", "route_filter", "posting_window") and v is not None else v
            for k, v in row.items()
        }
        names, places = ", ".join(row), ", ".join(["%s"] * len(row))
        await self.sql(f"insert into autopost.channels ({names}) values ({places})", *row.values())
        return channel_id

    async def endpoint(self, endpoint_id: str = "door", **columns: Any) -> str:
        row = {
            "workspace_id": self.workspace, "endpoint_id": endpoint_id, "kind": "webhook_push", "secret_hash": endpoint_id,
        } | columns  # fmt: skip
        names, places = ", ".join(row), ", ".join(["%s"] * len(row))
        await self.sql(f"insert into autopost.workspace_endpoints ({names}) values ({places})", *row.values())
        return endpoint_id

    async def policy(self, **columns: Any) -> None:
        await self.sql("select autopost.policy_of(%s)", self.workspace)
        sets = ", ".join(f"{name} = %s" for name in columns)
        await self.sql(
            f"update autopost.policies set {sets} where workspace_id = %s", *columns.values(), self.workspace
        )

    async def push(self, payload: dict[str, Any] | str, endpoint: str | None = None) -> DictRow:
        """One post, past the ingress gates."""
        raw = {"text": payload} if isinstance(payload, str) else payload
        return (await self.sql(
            "select * from enqueue_messages_and_deliveries(%s, %s, 'webhook_push', %s, %s)",
            self.workspace, endpoint, Jsonb(raw), self.now,
        ))[0]  # fmt: skip

    async def push_batch(
        self, *payloads: dict[str, Any], endpoint: str | None = None, gated: bool = False
    ) -> list[DictRow]:
        return await self.sql(
            "select * from autopost.enqueue_batch(%s, %s, 'webhook_push', array(select jsonb_array_elements(%s::jsonb)), %s,"
            " p_gated => %s) order by item",
            self.workspace, endpoint, json.dumps(payloads), self.now, gated,
        )  # fmt: skip

    async def claim(self, limit: int = 100, run: str = "run-1") -> list[DictRow]:
        return await self.sql("select * from claim_deliveries(%s, %s, %s, %s)", self.workspace, run, limit, self.now)

    async def begin(self, limit: int = 100, run: str = "run-1") -> list[DictRow]:
        return await self.sql("select * from begin_sending(%s, %s, %s, %s)", self.workspace, run, limit, self.now)

    async def take(self, limit: int = 100, run: str = "run-1") -> list[DictRow]:
        """What the dispatcher calls: claim and begin at once."""
        return await self.sql("select * from claim_and_begin(%s, %s, %s, %s)", self.workspace, run, limit, self.now)

    async def sent(self, delivery_id: UUID, lease: int | None = None, provider_message_id: str = "m1") -> str:
        return await self.value(
            "select mark_sent(%s, %s, %s, %s, '{}', %s, %s)",
            self.workspace, delivery_id, provider_message_id, self.now, lease, self.now,
        )  # fmt: skip

    async def retry(
        self,
        delivery_id: UUID,
        error: dict[str, Any] | None = None,
        lease: int | None = None,
        at: datetime | None = None,
    ) -> str:
        return await self.value(
            "select schedule_retry(%s, %s, %s, %s, %s, %s)",
            self.workspace, delivery_id, at, Jsonb(error or {"code": "500", "scope": "platform"}), lease, self.now,
        )  # fmt: skip

    async def fail(self, delivery_id: UUID, error: dict[str, Any] | None = None, lease: int | None = None) -> str:
        return await self.value(
            "select fail_permanent(%s, %s, %s, %s, %s)",
            self.workspace, delivery_id, Jsonb(error or {"code": "400", "scope": "delivery"}), lease, self.now,
        )  # fmt: skip

    async def settle(self, *results: dict[str, Any]) -> dict[UUID, str]:
        rows = await self.sql(
            "select * from autopost.settle_deliveries(%s, %s, %s)",
            self.workspace,
            Jsonb(list(results)),
            self.now,
        )
        return {row["delivery_id"]: row["outcome"] for row in rows}

    async def sweep(self) -> tuple[int, int]:
        """How many sends and how many claims came back."""
        sending = await self.value("select autopost.sweep_sending(%s, 500, %s)", self.workspace, self.now)
        return sending, await self.value("select autopost.sweep_claimed(%s, 500, %s)", self.workspace, self.now)

    async def delivery(self, delivery_id: UUID) -> DictRow:
        return (await self.sql(
            "select * from autopost.deliveries where workspace_id = %s and delivery_id = %s", self.workspace, delivery_id
        ))[0]  # fmt: skip

    async def deliveries(self, status: str | None = None) -> list[DictRow]:
        return await self.sql(
            "select * from autopost.deliveries where workspace_id = %s and (%s::text is null or status = %s)"
            " order by created_at, channel_id",
            self.workspace, status, status,
        )  # fmt: skip

    async def statuses(self) -> dict[str, int]:
        rows = await self.sql(
            "select status, count(*) as n from autopost.deliveries where workspace_id = %s group by 1",
            self.workspace,
        )
        return {row["status"]: row["n"] for row in rows}

    async def channel_row(self, channel_id: str = "c1") -> DictRow:
        return (await self.sql(
            "select * from autopost.channels where workspace_id = %s and channel_id = %s", self.workspace, channel_id
        ))[0]  # fmt: skip

    async def events(self, *actions: str) -> list[DictRow]:
        return await self.sql(
            "select * from autopost.events where workspace_id = %s and (%s::text[] = '{}' or action = any (%s)) order by ts, id",
            self.workspace, list(actions), list(actions),
        )  # fmt: skip
