"""What each channel would show of a post, before anybody sends it: rendered by the SQL that renders, planned by the
code that sends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from psycopg.types.json import Jsonb

from vestnik.adapters.contract import Adapter, Call, Channel, MediaItem, SendError
from vestnik.autopost.sender import media_of, meta_of
from vestnik.db.pool import Pool, call

Row = dict[str, Any]
MOST_CHANNELS = 500


async def preview(pool: Pool, adapters: Mapping[str, Adapter], workspace_id: str, payload: Row) -> Row:
    """Raises InvalidPayload for what a push would refuse. Channels that would get it come first; of very many, some."""
    query = f"select * from autopost.preview_post(%s, %s) limit {MOST_CHANNELS}"
    rows = await call(pool, query, (workspace_id, Jsonb(payload)))
    said = await call(pool, "select autopost.preview_post_warnings(%s, %s) as warnings", (workspace_id, Jsonb(payload)))
    return {
        # Many long texts take a while to convert, and others are waiting for this loop.
        "channels": await asyncio.to_thread(lambda: [_shown(adapters, workspace_id, row) for row in rows]),
        "matching": rows[0]["matching"] if rows else 0,
        "total": rows[0]["total"] if rows else 0,
        "warnings": said[0]["warnings"],
    }


def _shown(adapters: Mapping[str, Adapter], workspace_id: str, row: Row) -> Row:
    shown: Row = {key: row[key] for key in ("channel_id", "title", "platform", "target_id")}
    outcome, reason, calls = _outcome(adapters, workspace_id, row)
    goes = outcome == "enqueued"
    return shown | {
        "outcome": outcome,
        "reason": reason,
        "goes_at": row["goes_at"] if goes else None,
        "media_pending": goes and row["media_pending"],
        "template_version": row["template_version"],
        "warnings": row["warnings"] or [] if goes else [],
        "calls": calls,
    }


def _outcome(adapters: Mapping[str, Adapter], workspace_id: str, row: Row) -> tuple[str, str | None, list[Row]]:
    if not row["matches"]:
        return "not_routed", row["reason"], []
    if row["error"]:
        return "refused", row["error"]["message"], []
    try:
        calls = _planned(adapters, workspace_id, row)
    except SendError as e:
        return "refused", e.message, []
    if row["duplicate"]:
        return "suppressed", _SUPPRESSED[row["duplicate"]], calls
    return "enqueued", None, calls


_SUPPRESSED = {
    "in_flight": "the same post is on its way into this channel",
    "sent_within_ttl": "the same post went into this channel within its dedup window",
}


def _planned(adapters: Mapping[str, Adapter], workspace_id: str, row: Row) -> list[Row]:
    adapter = adapters.get(row["platform"])
    if adapter is None:
        raise SendError(
            category="PERMANENT",
            scope="channel",
            code="platform_unknown",
            message=f"no adapter for {row['platform']!r} is installed",
        )
    channel = Channel(workspace_id, row["channel_id"], row["platform"], row["target_id"], "", "", row["settings"])
    media = media_of(row["media"] or ())
    meta = meta_of(row | {"trace_id": None, "delivery_id": None})
    return [_call(each, media) for each in adapter.plan(channel, media, row["rendered_text"], meta)]


def _call(planned: Call, media: list[MediaItem]) -> Row:
    return {
        "method": planned.method,
        "text": planned.text,
        "media": [_item(media[place]) for place in planned.items],
        "body": dict(planned.body),
        "params": dict(planned.params),
    }


def _item(item: MediaItem) -> Row:
    shown = ("type", "url", "blob_ref", "file_id", "attachment_token", "file_name", "size_bytes", "caption")
    return {key: getattr(item, key) for key in shown if getattr(item, key) is not None}
