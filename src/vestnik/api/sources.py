"""``/v1/workspaces/{ws}/sources…``: what is read, how it went, what the next run would take."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from vestnik.adapters.contract import Adapter
from vestnik.api.payload_schema import Problem
from vestnik.api.workspace import READ_ONLY, REFUSED, Changing, Database, Workspace
from vestnik.autopost.sources import SourceFailed, verbs
from vestnik.autopost.sources.pull import Puller

SourceId = Annotated[str, Path(max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]


class Source(BaseModel):
    source_id: str
    kind: str
    enabled: bool
    every: timedelta | None
    cron: str | None
    timezone: str
    next_at: datetime | None
    last_run_at: datetime | None
    failures: int
    last_error: dict[str, Any] | None


class Run(BaseModel):
    run_id: UUID
    source_id: str
    started_at: datetime
    finished_at: datetime | None
    outcome: str
    stats: dict[str, Any]


class Asked(BaseModel):
    job_id: UUID


def source_routes(adapters: Mapping[str, Adapter], puller: Puller) -> APIRouter:
    router = APIRouter(prefix="/v1/workspaces/{ws}/sources", tags=["sources"], responses=REFUSED)

    @router.get("", summary="What is read, and how the last run of each ended")
    async def sources(pool: Database, workspace_id: Workspace) -> list[Source]:
        return [Source(**row) for row in await verbs.list_sources(pool, workspace_id)]

    @router.get("/{source_id}/runs", summary="The runs of a source, the newest first")
    async def runs(
        pool: Database,
        workspace_id: Workspace,
        source_id: SourceId,
        limit: Annotated[int, Query(ge=1, le=1000)] = 20,
    ) -> list[Run]:
        return [Run(**row) for row in await verbs.list_runs(pool, workspace_id, source_id, limit=limit)]

    @router.post(
        "/{source_id}/try",
        summary="What would the next run take, and where would it go?",
        responses=READ_ONLY | {424: {"model": Problem, "description": "The source could not be read, and why."}},
    )
    async def try_source(
        by: Changing,
        source_id: SourceId,
        from_the_start: bool = False,
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
    ) -> Any:
        try:
            return await verbs.try_source(
                puller, adapters, by.workspace_id, source_id, from_the_start=from_the_start, most=limit
            )
        except SourceFailed as e:
            failure = HTTPException(424, f"The source could not be read: {e}.")
        raise failure

    @router.post(
        "/{source_id}/run", summary="Read it as soon as a runner is free", status_code=202, responses=READ_ONLY
    )
    async def run(pool: Database, by: Changing, source_id: SourceId) -> Asked:
        return Asked(job_id=await verbs.run_soon(pool, by.workspace_id, source_id, actor=by.name))

    return router
