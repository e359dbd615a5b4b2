"""Writes back what platforms said."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import psycopg
from psycopg.types.json import Jsonb
from psycopg_pool import PoolTimeout

from vestnik.autopost import measured
from vestnik.autopost.sender import Result
from vestnik.db.pool import Pool, call
from vestnik.db.settling import Settling
from vestnik.log import get_log

log = get_log()


class Settler(Settling[Result]):
    def __init__(self, pool: Pool, settled: Callable[[int], None]) -> None:
        super().__init__("settle", settled)
        self._pool = pool

    async def write(self, workspace_id: str, batch: list[Result]) -> None:
        began, results = time.time_ns(), Jsonb([_as_json(result) for result in batch])
        rows = await call(self._pool, _SETTLE, (workspace_id, results))
        for row in rows:
            if row["outcome"] in ("late", "illegal"):
                log.warning("settle.late", delivery_id=str(row["delivery_id"]), outcome=row["outcome"])
        measured.written(workspace_id, batch, {row["delivery_id"]: row["outcome"] for row in rows}, began)
        if refused := [str(result.delivery_id) for result in batch if _blames_its_channel(result)]:
            await self._tell_of_channels(workspace_id, refused)

    async def _tell_of_channels(self, workspace_id: str, refused: list[str]) -> None:
        # The results are written: they must not be written again for the sake of a log line.
        with suppress(psycopg.Error, PoolTimeout):
            for row in await call(self._pool, _STOPPED, (workspace_id, refused)):
                what = row.pop("action").removeprefix("channel_")
                log.warning(f"channel.{what}", workspace_id=workspace_id, **row)

    def bare(self, result: Result) -> Result:
        if result.error is None:
            return replace(result, raw=None, provider_message_id=_printable(result.provider_message_id))
        known = ("category", "scope", "code", "scope_named", "payload_ref")
        return replace(result, error={key: _printable(result.error[key]) for key in known if key in result.error})

    def names(self, result: Result) -> dict[str, str]:
        return {"delivery_id": str(result.delivery_id)}


_SETTLE = "select * from autopost.settle_deliveries(%s, %s) where outcome <> 'sent'"

_STOPPED = """
select e.action, e.channel_id, e.error ->> 'code' as code, (e.meta ->> 'error_streak')::integer as refusals
from autopost.events e
where e.workspace_id = %s and e.action in ('channel_paused', 'channel_disabled') and e.ts > now() - interval '1 minute'
  and e.meta ->> 'delivery_id' = any (%s)
order by e.ts, e.channel_id, e.action desc
"""


def _blames_its_channel(result: Result) -> bool:
    error = result.error or {}
    return error.get("category") == "PERMANENT" and error.get("scope") == "channel"


def _as_json(result: Result) -> dict[str, Any]:
    settled: dict[str, Any] = {"delivery_id": str(result.delivery_id), "lease": result.lease}
    if result.error is not None:
        return settled | {"error": result.error}
    return settled | {
        "provider_message_id": result.provider_message_id,
        "sent_at": result.sent_at.isoformat() if result.sent_at else None,
        "meta": result.raw,
    }


def _printable(value: Any) -> Any:
    return value if value is None or isinstance(value, bool) else ascii(str(value))[1:-1]
