"""One send: from the row that ``begin_sending`` gave out to the result that ``settle`` takes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from vestnik.adapters.contract import Adapter, Channel, MediaItem, SendError, SendMeta, Sent
from vestnik.adapters.exchange import Exchange, recording
from vestnik.autopost import measured
from vestnik.autopost.payloads.keeper import Keeper, Kept
from vestnik.autopost.pulse import Pulse, pulse_of
from vestnik.db.pool import Pool
from vestnik.errors import NotFound
from vestnik.log import about, get_log

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
    platform: str = ""
    trace_id: str | None = None


@dataclass(slots=True)
class Progress:
    """How far earlier attempts have got; ``Series`` of the contract."""

    pulse: Pulse
    done: int
    message_ids: Sequence[str]
    pace: float  # seconds between two messages
    plan: Mapping[str, Any]  # what the calls are planned with
    _made: int = 0  # calls of this attempt
    _shown: int = 0  # messages of the last of them

    async def turn(self) -> None:
        await self.pulse.rest(self.pace * self._shown)

    async def acknowledge(self, message_ids: Sequence[str], items: Sequence[int]) -> None:
        self._made, self._shown = self._made + 1, len(message_ids)
        calls = self.done + self._made
        await self.pulse.acknowledged(calls, message_ids, items, self.plan if calls == 1 else None)


async def send(
    pool: Pool,
    workspace_id: str,
    row: Mapping[str, Any],
    adapters: Mapping[str, Adapter],
    deadline: float,
    keeper: Keeper | None = None,
) -> Result:
    """Never raises but for cancellation: whatever happens becomes a result. ``keeper`` keeps an error in full."""
    about(workspace_id=workspace_id, trace_id=row["trace_id"])
    began = time.time_ns()
    with recording() as tape:
        try:
            result = await _answer(pool, workspace_id, row, adapters, deadline)
        except Exception as e:
            # A fault of ours must not stop the other channels; it shows in the log and in the delivery.
            log.exception("send.crashed", workspace_id=workspace_id, delivery_id=str(row["delivery_id"]))
            result = _failed(workspace_id, row, crashed(e))
    measured.answered(result, began)
    if keeper is None or result.error is None or tape.last is None:
        return result
    return await _with_payload(keeper, result, result.error, tape.last)


async def _with_payload(keeper: Keeper, result: Result, error: Mapping[str, Any], last: Exchange) -> Result:
    try:
        kept = await keeper.keep(
            result.workspace_id,
            {"kind": "send_error", "at": datetime.now(UTC).isoformat(), "workspace_id": result.workspace_id}
            | {"delivery_id": str(result.delivery_id), "lease": result.lease, "trace_id": str(result.trace_id)}
            | {"error": error, **last.told()},
        )
    except asyncio.CancelledError:
        kept = Kept(not_kept="the dispatcher stopped")  # what the platform said is known, and must not be lost for this
    return replace(result, error={**error, **kept.told()})


async def _answer(
    pool: Pool, workspace_id: str, row: Mapping[str, Any], adapters: Mapping[str, Adapter], deadline: float
) -> Result:
    try:
        adapter = adapters.get(row["platform"])
        if adapter is None:
            raise _no_adapter(row["platform"])
        if plan := row["render_meta"].get("series_plan"):
            row = {**row, **plan}  # the tail goes where the head went, and in the same shape
        async with pulse_of(pool, workspace_id, row, deadline) as pulse:
            sent = await _sent(adapter, channel_of(workspace_id, row), row, pulse)
    except SendError as e:
        return _failed(workspace_id, row, e)
    except NotFound as e:
        return _failed(workspace_id, row, no_credential(e))
    except TimeoutError:
        return _failed(workspace_id, row, hanging(deadline))
    told = (sent.provider_message_id, datetime.now(UTC), sent.raw, None)
    return Result(workspace_id, row["delivery_id"], row["lease"], *told, row["platform"], row["trace_id"])


async def _sent(adapter: Adapter, channel: Channel, row: Mapping[str, Any], pulse: Pulse) -> Sent:
    meta = meta_of(row, pulse)
    if row["media"]:
        return await adapter.send_media(channel, media_of(row["media"]), row["rendered_text"], (), meta)
    return await adapter.send_text(channel, row["rendered_text"], meta)


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


def channel_of(workspace_id: str, row: Mapping[str, Any]) -> Channel:
    return Channel(
        workspace_id=workspace_id,
        channel_id=row["channel_id"],
        platform=row["platform"],
        target_id=row["target_id"],
        auth_ref=row["auth_ref"],
        rate_group=row["rate_group"],
        settings=row["settings"],
    )


def meta_of(row: Mapping[str, Any], pulse: Pulse | None = None) -> SendMeta:
    """As it was rendered; with a pulse, also how far the delivery has got."""
    rendered = row["render_meta"]
    return SendMeta(
        parse_mode=rendered.get("parse_mode", "None"),
        disable_preview=rendered.get("disable_preview", False),
        buttons=rendered.get("buttons", ()),
        trace_id=str(row["trace_id"]),
        idempotency_key=str(row["delivery_id"]),
        converter=rendered.get("converter", 1),
        long_text=rendered.get("long_text", "refuse"),
        more_link=rendered.get("more_link"),
        upload_policy=rendered.get("upload_policy", {}),
        largest=rendered.get("largest", {}),
        series=_progress(row, pulse) if pulse else None,
    )


def _progress(row: Mapping[str, Any], pulse: Pulse) -> Progress:
    progress = row["render_meta"].get("series_progress", {})
    return Progress(
        pulse,
        progress.get("calls", 0),
        progress.get("provider_message_ids", ()),
        row.get("pace") or 0.0,
        {key: row[key] for key in ("target_id", "settings", "media")},
    )


_MEDIA_FIELDS = {each.name for each in fields(MediaItem)}


def media_of(media: Sequence[Mapping[str, Any]]) -> list[MediaItem]:
    return [MediaItem(**{key: value for key, value in item.items() if key in _MEDIA_FIELDS}) for item in media]


def _failed(workspace_id: str, row: Mapping[str, Any], error: SendError) -> Result:
    named = (workspace_id, row["delivery_id"], row["lease"])
    return Result(*named, error=error.as_json(), platform=row["platform"], trace_id=row["trace_id"])


def _no_adapter(platform: str) -> SendError:
    return SendError(
        category="PERMANENT",
        scope="channel",
        code="platform_unknown",
        message=f"no adapter for {platform!r} is installed",
    )


def no_credential(error: NotFound) -> SendError:
    return SendError(category="PERMANENT", scope="channel", code="credential_missing", message=str(error))


def hanging(deadline: float) -> SendError:
    return SendError(
        category="TRANSIENT",
        scope="platform",
        code="timeout",
        message=f"no answer within {deadline:g} s",
        raw={"outcome": "unknown"},
    )


def crashed(error: Exception) -> SendError:
    return SendError(
        category="TRANSIENT",
        scope="delivery",
        code="adapter_crashed",
        message=f"the adapter failed: {type(error).__name__}",
        raw={"outcome": "unknown"},
    )
