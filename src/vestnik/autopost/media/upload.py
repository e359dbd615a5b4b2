"""Files that come along with the post: each becomes a blob while it arrives, and the payload names it by its blob_ref.

The payload comes first. So nothing is taken that no post wants, and what its item says it is, it must be.
"""

from __future__ import annotations

import asyncio
import json
import mimetypes
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from vestnik.adapters.contract import MediaType
from vestnik.autopost.intake import TooLarge
from vestnik.autopost.media.arrival import keep_origin
from vestnik.autopost.media.blobs import BlobStore, FileTooLarge
from vestnik.autopost.media.inspect import MediaRefused
from vestnik.autopost.payload import screen
from vestnik.db.pool import Pool, call
from vestnik.errors import InvalidPayload, VestnikError

PAYLOAD = "payload"
PIECE = 1024 * 1024
_ANY_BLOB = "sha256:" + "0" * 64  # stands for a file that is still to come


class UploadRefused(VestnikError):
    """What came is not a form, or not all of it."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a form; ``content_type`` is what the sender calls it."""

    name: str
    chunks: AsyncIterator[bytes]
    file_name: str | None = None
    content_type: str = ""


async def take(
    pool: Pool,
    blobs: BlobStore,
    workspace_id: str,
    parts: AsyncIterator[Part],
    *,
    max_payload_bytes: int,
    max_file_bytes: int,
) -> str:
    """The payload as JSON, its uploads kept and named by their blob_refs.

    InvalidPayload, TooLarge, FileTooLarge, UploadRefused; StorageError when the object store fails. None of
    them has made a post; a file that was whole may be kept, as a file of this workspace that no post names yet.
    """
    payload = await _payload(await anext(parts, None), max_payload_bytes)
    wanted = _wanted(payload)
    await _refuse_bad_shape(pool, payload)
    kept: dict[str, str] = {}
    async for part in parts:
        if part.name in kept:
            raise InvalidPayload([f"media: the form has two parts {_shown(part.name)}"])
        if part.name not in wanted:
            raise InvalidPayload([f"media: no item names the part {_shown(part.name)}"])
        kept[part.name] = await _keep(pool, blobs, workspace_id, part, wanted[part.name], max_file_bytes)
    if missing := [name for name in wanted if name not in kept]:
        raise InvalidPayload([f"media: the form has no part {_shown(name)}" for name in missing])
    return json.dumps(_with_blobs(payload, kept), ensure_ascii=False)


async def keep_file(pool: Pool, blobs: BlobStore, workspace_id: str, path: Path, wanted: MediaType, most: int) -> str:
    """A file of this machine; its blob_ref. InvalidPayload when it cannot be read, or is not what it should be."""
    await call(pool, "select autopost.require_workspace(%s)", (workspace_id,))
    try:
        kind = mimetypes.guess_type(path.name)[0] or ""
        blob = await blobs.keep(workspace_id, _read(path), wanted, declared=kind, name=path.name, max_bytes=most)
    except (MediaRefused, OSError) as e:
        raise InvalidPayload([f"{path}: {e.strerror if isinstance(e, OSError) else e}"]) from None
    return await keep_origin(pool, workspace_id, blob)


async def _read(path: Path) -> AsyncIterator[bytes]:
    with await asyncio.to_thread(path.open, "rb") as file:
        while chunk := await asyncio.to_thread(file.read, PIECE):
            yield chunk


async def _payload(part: Part | None, limit: int) -> dict[str, Any]:
    if part is None or part.name != PAYLOAD:
        raise InvalidPayload([f"payload: must be the first part of the form, named {PAYLOAD}"])
    body = bytearray()
    async for chunk in part.chunks:
        body += chunk
        if len(body) > limit:
            raise TooLarge(limit)
    payload: dict[str, Any] = json.loads(screen(bytes(body)))
    return payload


def _wanted(payload: Mapping[str, Any]) -> dict[str, MediaType]:
    """What each named upload is to be. A file may be named twice, as long as it is to be the same."""
    wanted: dict[str, MediaType] = {}
    for number, item in enumerate(_items(payload), 1):
        if _is_upload(item):
            name, kind = item["upload"], item.get("type")
            if wanted.setdefault(name, kind) != kind:
                raise InvalidPayload(
                    [f"media: item {number} names {_shown(name)} as another type than an item before it; send it twice"]
                )
    return wanted


async def _refuse_bad_shape(pool: Pool, payload: Mapping[str, Any]) -> None:
    """Before a byte of the files is taken. Whoever judges a payload without uploads judges this one, too."""
    query = "select autopost.payload_problems(%s) as problems"
    awaited = _with_blobs(payload, {item["upload"]: _ANY_BLOB for item in _items(payload) if _is_upload(item)})
    try:
        problems = (await call(pool, query, (Jsonb(awaited),)))[0]["problems"]
    except (psycopg.DataError, psycopg.errors.ProgramLimitExceeded, psycopg.errors.StatementTooComplex) as e:
        problems = [f"payload: cannot be stored: {str(e).splitlines()[0]}"]
    if problems:
        raise InvalidPayload(problems)


async def _keep(pool: Pool, blobs: BlobStore, workspace_id: str, part: Part, wanted: MediaType, max_bytes: int) -> str:
    try:
        blob = await blobs.keep(
            workspace_id, part.chunks, wanted, declared=part.content_type, name=part.file_name, max_bytes=max_bytes
        )
    except FileTooLarge:
        raise
    except MediaRefused as e:
        raise InvalidPayload([f"media: the part {_shown(part.name)}: {e}"]) from None
    return await keep_origin(pool, workspace_id, blob)


def _with_blobs(payload: Mapping[str, Any], kept: Mapping[str, str]) -> dict[str, Any]:
    if not _items(payload):
        return dict(payload)
    media = [_with_blob(item, kept) if _is_upload(item) else item for item in payload["media"]]
    return {**payload, "media": media}


def _with_blob(item: Mapping[str, Any], kept: Mapping[str, str]) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key != "upload"} | {"blob_ref": kept[item["upload"]]}


def _items(payload: Mapping[str, Any]) -> list[Any]:
    media = payload.get("media")
    return media if isinstance(media, list) else []


def _is_upload(item: Any) -> bool:
    """One that also names something else keeps its ``upload``, and is refused for it."""
    return (
        isinstance(item, dict)
        and isinstance(item.get("upload"), str)
        and 0 < len(item["upload"]) <= 2048
        and item.get("blob_ref") is None
    )


def _shown(name: str) -> str:
    return repr(name[:64])
