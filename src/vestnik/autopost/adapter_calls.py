"""The adapter contract for callers from outside: one send, by the code that the dispatcher sends with, and its answer.

The same call again, told by its key, gets the first one's answer and is not sent again. What did not go out is not
remembered: the same call again tries again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg.types.json import Jsonb
from psycopg_pool import PoolTimeout

from vestnik.adapters.contract import Adapter, SendError, Sent
from vestnik.autopost.media.arrival import keep_origin
from vestnik.autopost.media.blobs import BlobStore
from vestnik.autopost.media.fetch import FetchFailed, fetch
from vestnik.autopost.pulse import LEASE_SHARE
from vestnik.autopost.sender import channel_of, crashed, hanging, media_of, meta_of, no_credential, send
from vestnik.db.pool import Pool, call
from vestnik.download import Downloader
from vestnik.errors import InvalidPayload, NotFound
from vestnik.log import get_log
from vestnik.redaction import redact_value

Answer = dict[str, Any]
PATIENCE = timedelta(minutes=15)  # with a caller that took a key and was not heard of again
log = get_log()
FILES_PATIENCE = 300.0  # seconds that a post with files may take


@dataclass(frozen=True, slots=True)
class Caller:
    """What a call from outside is made with. ``deadline``: seconds without a sign of life."""

    pool: Pool
    adapters: Mapping[str, Adapter]
    blobs: BlobStore
    downloader: Downloader | None
    media_max_bytes: int
    deadline: float


@dataclass(frozen=True, slots=True)
class Post:
    """One post for one place: a channel of the workspace, or a target and a credential."""

    text: str | None = None
    media: Sequence[Mapping[str, Any]] = ()
    channel_id: str | None = None
    target_id: str | None = None
    auth_ref: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    parse_mode: str = "None"
    disable_preview: bool = False
    buttons: Sequence[Sequence[Mapping[str, str]]] = ()
    trace_id: str | None = None


async def send_begun(caller: Caller, workspace_id: str, platform: str, delivery_id: UUID, lease: int) -> Answer:
    """A delivery that begin_sending gave out, as the dispatcher would send it: with its pace, its pulse and its progress."""
    rows = await call(caller.pool, _BEGUN, (*[workspace_id] * 3, delivery_id))
    if not rows:
        raise NotFound(f"no delivery {delivery_id} in workspace {workspace_id}")
    row = rows[0]
    if row["platform"] != platform:
        raise InvalidPayload([f"delivery_id: this delivery goes to {row['platform']}, not to {platform}"])
    if (row["status"], row["lease"]) != ("sending", lease):
        return _failure(_not_under_way(row["status"], row["lease"]).as_json())
    return await _once(caller, workspace_id, f"{delivery_id}:{lease}", lambda: _dispatched(caller, workspace_id, row))


async def send_post(
    caller: Caller, workspace_id: str, platform: str, post: Post, key: str | None, *, actor: str
) -> Answer:
    """Past the queue: no gate, no pace, no record of a delivery. Those are the caller's; that ``actor`` asked is on record."""
    if platform not in caller.adapters:
        raise NotFound(f"no adapter for {platform} is installed")
    row = await _row_of(caller, workspace_id, platform, post, key)

    async def work() -> Answer:
        await call(caller.pool, _NOTE, (workspace_id, actor, f"channel {row['channel_id']}"))
        return await _posted(caller, workspace_id, row, post)

    return await (work() if key is None else _once(caller, workspace_id, f"{platform} {key}", work))


async def _once(caller: Caller, workspace_id: str, key: str, work: Callable[[], Awaitable[Answer]]) -> Answer:
    query = "select * from autopost.take_call(%s, %s, %s, clock_timestamp())"
    taken = (await call(caller.pool, query, (workspace_id, key, PATIENCE)))[0]
    if taken["state"] == "answered":
        return {**taken["answer"], "repeated": True}
    if taken["state"] == "under_way":
        return _failure(_under_way().as_json())
    answer = await work()  # what breaks off in here keeps its key: whether it arrived is not known
    kept = Jsonb(answer) if answer["ok"] else None
    query = "select autopost.put_call(%s, %s, %s, %s)"
    await call(caller.pool, query, (workspace_id, key, taken["taken_until"], kept))
    return answer


async def _dispatched(caller: Caller, workspace_id: str, row: Mapping[str, Any]) -> Answer:
    deadline = min(caller.deadline, LEASE_SHARE * row["lease_seconds"])
    result = await send(caller.pool, workspace_id, row, caller.adapters, deadline)
    if result.error is not None:
        return _failure(result.error)
    assert result.provider_message_id is not None
    return _success(Sent(result.provider_message_id, result.raw or {}))


async def _posted(caller: Caller, workspace_id: str, row: Mapping[str, Any], post: Post) -> Answer:
    adapter, channel, meta = caller.adapters[row["platform"]], channel_of(workspace_id, row), meta_of(row)
    deadline = FILES_PATIENCE if post.media else caller.deadline
    try:
        async with asyncio.timeout(deadline):
            if not post.media:
                return _success(await adapter.send_text(channel, post.text or "", meta))
            media = media_of(await _kept(caller, workspace_id, post.media))
            return _success(await adapter.send_media(channel, media, post.text, (), meta))
    except SendError as e:
        return _failure(e.as_json())
    except FetchFailed as e:
        return _failure(_not_fetched(e).as_json())
    except NotFound as e:
        return _failure(no_credential(e).as_json())
    except TimeoutError:
        return _failure(hanging(deadline).as_json())
    except (psycopg.Error, PoolTimeout):
        raise
    except Exception as e:
        log.exception("adapter_call.crashed", workspace_id=workspace_id, platform=row["platform"])
        return _failure(crashed(e).as_json())


def _success(sent: Sent) -> Answer:
    raw = dict(sent.raw)
    return {
        "ok": True,
        "provider_message_id": sent.provider_message_id,
        "provider_message_ids": [str(each) for each in raw.get("message_ids") or [sent.provider_message_id]],
        "sent_at": datetime.now(UTC).isoformat(),
        "meta": redact_value(raw),
        "repeated": False,
    }


def _failure(error: Mapping[str, Any]) -> Answer:
    return {"ok": False, "error": redact_value(dict(error)), "repeated": False}


async def _row_of(caller: Caller, workspace_id: str, platform: str, post: Post, key: str | None) -> dict[str, Any]:
    """The post as begin_sending would give it out, under an id of its own."""
    known: dict[str, Any] = {}
    if post.channel_id is not None:
        rows = await call(caller.pool, _CHANNEL, (workspace_id, post.channel_id, platform))
        if not rows:
            raise NotFound(f"no {platform} channel {post.channel_id} in workspace {workspace_id}")
        known = rows[0]
    own = {name: value for name in ("target_id", "auth_ref") if (value := getattr(post, name)) is not None}
    row = known | own
    if missing := [f"{name}: is missing" for name in ("target_id", "auth_ref") if name not in row]:
        raise InvalidPayload([*missing, "channel_id: or the name of a channel"])
    return {
        **row,
        "delivery_id": uuid4(),
        "trace_id": post.trace_id or key or "",
        "channel_id": post.channel_id or f"{platform}:{row['target_id']}",
        "platform": platform,
        "rate_group": row.get("rate_group") or row["auth_ref"],
        "settings": {**row.get("settings", {}), **post.settings},
        "rendered_text": post.text,
        "render_meta": {
            "parse_mode": post.parse_mode,
            "disable_preview": post.disable_preview,
            "buttons": post.buttons,
        },
    }


async def _kept(caller: Caller, workspace_id: str, media: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Addresses are fetched here, behind the guards, and kept: the platform is given the file."""
    items = []
    for item in media:
        if "url" in item:
            if caller.downloader is None:
                raise FetchFailed("not_configured", "this process fetches nothing", permanent=True)
            blob = await fetch(
                caller.downloader, caller.blobs, workspace_id, item["url"], item["type"], caller.media_max_bytes
            )
            item = {**item, "blob_ref": await keep_origin(caller.pool, workspace_id, blob)}
        items.append(item)
    rows = await call(caller.pool, "select autopost.media_of(%s, %s) as media", (workspace_id, Jsonb(items)))
    found: list[Any] = rows[0]["media"]
    return found


def _not_under_way(status: str, lease: int) -> SendError:
    return SendError(
        category="TRANSIENT",
        scope="delivery",
        code="lease_lost",
        message=f"nothing was sent: the delivery is {status} under lease {lease}",
        raw={"outcome": "not_sent"},
    )


def _under_way() -> SendError:
    return SendError(
        category="TRANSIENT",
        scope="delivery",
        code="under_way",
        message="nothing was sent: the same call is under way, or broke off in the middle",
        retry_after_ms=5000,
        raw={"outcome": "unknown"},
    )


def _not_fetched(error: FetchFailed) -> SendError:
    return SendError(
        category="PERMANENT" if error.permanent else "TRANSIENT",
        scope="delivery",
        code="media_missing_origin" if error.permanent else error.code,
        message=f"an item of the media could not be fetched: {error}",
        raw={"outcome": "not_sent"},
    )


_NOTE = "select core.note_change(%s, %s, 'send_asked', %s)"
_CHANNEL = """
select c.target_id, coalesce(a.auth_ref, c.auth_ref) as auth_ref, c.rate_group, c.settings
from autopost.channels c
left join autopost.channel_auth a on a.workspace_id = c.workspace_id and a.channel_id = c.channel_id
where c.workspace_id = %s and c.channel_id = %s and c.platform = %s
"""
_BEGUN = """
select d.delivery_id, d.status, d.lease, d.trace_id::text, d.channel_id, c.platform, c.target_id,
       coalesce(a.auth_ref, c.auth_ref) as auth_ref, c.rate_group, c.settings, d.rendered_text, d.render_meta,
       case when m.payload ? 'media' then autopost.media_of(%s, m.payload -> 'media') end as media,
       autopost.series_pace(%s, d.channel_id) as pace,
       (select extract(epoch from p.sending_lease)::float8 from autopost.policy_of(d.workspace_id) p) as lease_seconds
from autopost.deliveries d
join autopost.channels c on c.workspace_id = d.workspace_id and c.channel_id = d.channel_id
join autopost.messages m on m.workspace_id = d.workspace_id and m.message_id = d.message_id
left join autopost.channel_auth a on a.workspace_id = d.workspace_id and a.channel_id = d.channel_id
where d.workspace_id = %s and d.delivery_id = %s
"""
