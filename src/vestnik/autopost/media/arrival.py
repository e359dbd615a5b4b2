"""The job behind a post with addresses in it: its files are fetched once, then its deliveries may go."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from psycopg.types.json import Jsonb

from vestnik.autopost.media.blobs import Blob, BlobStore
from vestnik.autopost.media.fetch import FetchFailed, fetch
from vestnik.db.pool import Pool, call
from vestnik.download import Downloader
from vestnik.ops.jobs.registry import Backoff, JobContext, JobFailed, JobKind, JobRetry
from vestnik.storage import StorageError

ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class MediaFetch:
    """Everything that the job needs, beside the message's id in its payload."""

    downloader: Downloader
    blobs: BlobStore
    max_bytes: int

    def kind(self) -> JobKind:
        return JobKind(
            "media.fetch",
            self.run,
            concurrency=16,
            soft_limit=900,
            hard_limit=1200,
            max_attempts=ATTEMPTS,
            backoff=Backoff(base=5, longest=300),
        )

    async def run(self, context: JobContext) -> dict[str, Any]:
        """Each item is kept as soon as it has come: another attempt asks only for the rest."""
        pool, workspace_id, message_id = context.pool, context.workspace_id, str(context.payload["message_id"])
        wanted = await call(pool, "select * from autopost.media_to_fetch(%s, %s)", (workspace_id, message_id))
        size = released = 0
        for done, item in enumerate(wanted):
            # The host alone: the rest of an address may hold what must stay secret.
            context.progress(done, len(wanted), urlsplit(item["url"]).hostname or "")
            blob = await self._fetched(context, message_id, item)
            released += await arrived(pool, workspace_id, message_id, [(item["place"], blob)])
            size += blob.size_bytes
        if not wanted:
            released = await arrived(pool, workspace_id, message_id, [])
        return {"items": len(wanted), "bytes": size, "released": released}

    async def _fetched(self, context: JobContext, message_id: str, item: dict[str, Any]) -> Blob:
        try:
            return await fetch(
                self.downloader, self.blobs, context.workspace_id, item["url"], item["type"], self.max_bytes
            )
        except FetchFailed as e:
            reason = f"item {item['place'] + 1} could not be fetched: {e}"
            if not e.permanent and context.attempt < ATTEMPTS:
                raise JobRetry(reason, code=e.code) from None
            await call(
                context.pool, "select autopost.media_failed(%s, %s, %s)", (context.workspace_id, message_id, reason)
            )
            raise JobFailed(reason, code=e.code) from None


async def arrived(pool: Pool, workspace_id: str, message_id: str, blobs: Sequence[tuple[int, Blob]]) -> int:
    """How many deliveries may go now that these items of the message are there."""
    query = """
        with done as materialized (
            select autopost.media_arrived(%s, %s, %s) as released
        ), woken as materialized (
            select pg_notify('vestnik_wake', %s) from (select from done where released > 0) any_row
        )
        select done.released from done left join woken on true"""
    described = Jsonb([as_origin(blob) | {"place": place} for place, blob in blobs])
    released = int((await call(pool, query, (workspace_id, message_id, described, workspace_id)))[0]["released"])
    for _, blob in blobs:
        await _keep_one_copy(pool, workspace_id, blob)
    return released


async def keep_origin(pool: Pool, workspace_id: str, blob: Blob) -> str:
    """A file of this workspace from now on; returns the blob_ref by which posts may name it."""
    query = "select autopost.store_origin(%s, %s) as blob_ref"
    blob_ref = str((await call(pool, query, (workspace_id, Jsonb(as_origin(blob)))))[0]["blob_ref"])
    await _keep_one_copy(pool, workspace_id, blob)
    return blob_ref


async def _keep_one_copy(pool: Pool, workspace_id: str, blob: Blob) -> None:
    """Of a file that was there already, the copy that came now is one too many, unless the other is lost.

    What a failing store leaves here, the garbage collection finds as an object that no row names.
    """
    find = "select origin_url from autopost.media_origin where workspace_id = %s and blob_ref = %s"
    with suppress(StorageError):
        while found := await call(pool, find, (workspace_id, blob.blob_ref)):
            kept = found[0]["origin_url"]
            if kept == blob.path or blob.store is None:
                return
            if await blob.store.exists(kept):
                await blob.store.delete(blob.path)
                return
            lost = (workspace_id, blob.blob_ref, kept, blob.path)
            await call(pool, "select autopost.replace_origin(%s, %s, %s, %s)", lost)


def as_origin(blob: Blob) -> dict[str, Any]:
    return {
        "blob_ref": blob.blob_ref,
        "origin_url": blob.path,
        "sha256": blob.sha256,
        "content_type": blob.content_type,
        "size_bytes": blob.size_bytes,
        "file_name": blob.file_name,
        "width": blob.width,
        "height": blob.height,
    }
