"""What a target acknowledged is not told again, although the database was away at that moment."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from telling_rig import run

from vestnik.db.embedded import EmbeddedServer
from vestnik.db.pool import call, make_pool
from vestnik.ops.alerts.contract import Message, Target
from vestnik.ops.alerts.notifier import Notifier


class Gate:
    """Keeps everybody out of one database, and throws out who is in it."""

    def __init__(self, server: EmbeddedServer, database: str) -> None:
        self._url, self._name = server.superuser_url, conninfo_to_dict(database)["dbname"]

    def shut(self) -> None:
        self._allow(False)
        with psycopg.connect(self._url, autocommit=True) as admin:
            admin.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", (self._name,))

    def open(self) -> None:
        self._allow(True)

    def _allow(self, yes: bool) -> None:
        query = sql.SQL("alter database {} allow_connections {}").format(
            sql.Identifier(str(self._name)), sql.Literal(yes)
        )
        with psycopg.connect(self._url, autocommit=True) as admin:
            admin.execute(query)


async def test_an_acknowledged_message_is_written_down_when_the_database_is_back(
    server: EmbeddedServer, database: str
) -> None:
    gate, told = Gate(server, database), []
    async with make_pool(database, max_size=2, checkout_timeout=0.2) as pool:
        workspace = f"w-{uuid4().hex}"
        await call(pool, "insert into core.workspaces (workspace_id, name) values (%s, 'a test')", (workspace,))
        await call(
            pool,
            "insert into ops.alert_targets (workspace_id, target_id, kind, address) values (%s, 'mail', 'email', 'a@e.org')",
            (workspace,),
        )
        await call(pool, "select ops.put_alert(%s, 'disk', '', 'warning', 'a summary', null)", (workspace,))

        async def take(target: Target, message: Message) -> None:
            await asyncio.to_thread(gate.shut)
            told.append(message.message_id)
            asyncio.get_running_loop().call_later(1.0, gate.open)

        kind = Notifier(pool, {"email": take}).kind()
        payload: dict[str, Any] = {"target_id": "mail"}
        assert await run(kind, pool, workspace, payload) == {"told": 1}
        assert await run(kind, pool, workspace, payload) == {"told": 0}
    assert len(told) == 1
