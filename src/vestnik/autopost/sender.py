"""One send: from the row that ``begin_sending`` gave out to the result that ``settle`` takes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from vestnik.adapters.contract import Adapter, Channel, SendError, SendMeta
from vestnik.errors import NotFound
from vestnik.log import get_log

log = get_log()


@dataclass(frozen=True, slots=True)
class Result:
    """What a platform said about one delivery: ``sent_at`` and an id, or an error."""

    workspace_id: str
    delivery_id: UUID
    lease: int
    provider_message_id: str | None = None
    sent_at: datetime | None = None
    raw: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None


async def send(workspace_id: str, row: Mapping[str, Any], adapters: Mapping[str, Adapter], deadline: float) -> Result:
    """Never raises but for cancellation: whatever happens becomes a result."""
    try:
        return await _answer(workspace_id, row, adapters, deadline)
    except Exception as e:
        # A fault of ours must not stop the other channels; it shows in the log and in the delivery.
        log.exception("send.crashed", workspace_id=workspace_id, delivery_id=str(row["delivery_id"]))
        return _failed(workspace_id, row, _crashed(e))


async def _answer(
    workspace_id: str, row: Mapping[str, Any], adapters: Mapping[str, Adapter], deadline: float
) -> Result:
    try:
        adapter = adapters.get(row["platform"])
        if adapter is None:
            raise _no_adapter(row["platform"])
        async with asyncio.timeout(deadline):
            sent = await adapter.send_text(_channel(workspace_id, row), row["rendered_text"], _meta(row))
    except SendError as e:
        return _failed(workspace_id, row, e)
    except NotFound as e:
        return _failed(workspace_id, row, _no_credential(e))
    except TimeoutError:
        return _failed(workspace_id, row, _hanging(deadline))
    return Result(workspace_id, row["delivery_id"], row["lease"], sent.provider_message_id, datetime.now(UTC), sent.raw)


def released(workspace_id: str, row: Mapping[str, Any]) -> Result:
    """For a send that was cut off: it goes back to the queue, and says that its outcome is not known."""
    return _failed(
        workspace_id,
        row,
        SendError(
            category="TRANSIENT",
            scope="delivery",
            code="shutdown",
            message="the dispatcher stopped before the platform answered",
            raw={"outcome": "unknown"},
        ),
    )


def _channel(workspace_id: str, row: Mapping[str, Any]) -> Channel:
    return Channel(
        workspace_id=workspace_id,
        channel_id=row["channel_id"],
        platform=row["platform"],
        target_id=row["target_id"],
        auth_ref=row["auth_ref"],
        rate_group=row["rate_group"],
        settings=row["settings"],
    )


def _meta(row: Mapping[str, Any]) -> SendMeta:
    rendered = row["render_meta"]
    return SendMeta(
        parse_mode=rendered.get("parse_mode", "None"),
        disable_preview=rendered.get("disable_preview", False),
        buttons=rendered.get("buttons", ()),
        trace_id=str(row["trace_id"]),
        idempotency_key=str(row["delivery_id"]),
        converter=rendered.get("converter", 1),
    )


def _failed(workspace_id: str, row: Mapping[str, Any], error: SendError) -> Result:
    return Result(workspace_id, row["delivery_id"], row["lease"], error=error.as_json())


def _no_adapter(platform: str) -> SendError:
    return SendError(
        category="PERMANENT",
        scope="channel",
        code="platform_unknown",
        message=f"no adapter for {platform!r} is installed",
    )


def _no_credential(error: NotFound) -> SendError:
    return SendError(category="PERMANENT", scope="channel", code="credential_missing", message=str(error))


def _hanging(deadline: float) -> SendError:
    return SendError(
        category="TRANSIENT",
        scope="platform",
        code="timeout",
        message=f"no answer within {deadline:g} s",
        raw={"outcome": "unknown"},
    )


def _crashed(error: Exception) -> SendError:
    return SendError(
        category="TRANSIENT",
        scope="delivery",
        code="adapter_crashed",
        message=f"the adapter failed: {type(error).__name__}",
        raw={"outcome": "unknown"},
    )
