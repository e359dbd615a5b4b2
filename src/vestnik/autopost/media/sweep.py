"""Files that broke off on their way in do not stay for ever."""

from __future__ import annotations

from datetime import timedelta

from vestnik.autopost.media.blobs import BlobStore
from vestnik.ops.jobs.recurring import Recurring
from vestnik.ops.jobs.registry import JobContext, JobKind, Stats

LONGEST_ARRIVAL = timedelta(days=1)


def arrivals_sweep(blobs: BlobStore) -> Recurring:
    async def sweep(job: JobContext) -> Stats:
        return {"files": await blobs.sweep(LONGEST_ARRIVAL)}

    return Recurring(JobKind("media.arrivals", sweep, concurrency=1), every=timedelta(hours=1))
