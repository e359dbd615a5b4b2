"""``/v1/workspaces/{ws}/jobs…``: work that is done aside, and its schedules; the service's own under the workspace ``*``."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from vestnik.api.payload_schema import Problem
from vestnik.api.workspace import READ_ONLY, REFUSED, Answers, Changing, Database, Workspace
from vestnik.ops.jobs import verbs

router = APIRouter(prefix="/v1/workspaces/{ws}", tags=["jobs"], responses=REFUSED)
Kind = Annotated[str, Path(max_length=64, pattern=r"^[a-z][a-z0-9_.]*$")]
Schedule = Annotated[str, Path(max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:/-]*$")]
NOT_NOW: Answers = READ_ONLY | {409: {"model": Problem, "description": "The job is not in a state for it."}}
Status = Literal["waiting", "running", "retry", "done", "dead", "cancelled"]


class Job(BaseModel):
    job_id: UUID
    kind: str
    status: Status
    priority: int
    attempt: int
    run_at: datetime
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    worker: str | None
    schedule_id: str | None
    progress: dict[str, Any] | None
    last_error: dict[str, Any] | None


class JobRun(BaseModel):
    lease: int
    attempt: int
    outcome: str
    worker: str | None
    started_at: datetime
    finished_at: datetime
    error: dict[str, Any] | None
    stats: dict[str, Any] | None


class WholeJob(Job):
    unique_key: str | None
    payload: dict[str, Any]
    tick: datetime | None
    trace_id: str | None
    max_attempts: int | None
    lease: int
    lease_until: datetime | None
    cancel_requested_at: datetime | None
    runs: list[JobRun]


class JobKind(BaseModel):
    kind: str
    concurrency: int | None
    waiting: int
    running: int
    dead: int
    paused_at: datetime | None


class OfSchedule(BaseModel):
    schedule_id: str
    kind: str
    payload: dict[str, Any]
    priority: int
    cron: str | None
    every: timedelta | None
    timezone: str
    missed: str
    overlap: bool
    enabled: bool
    next_at: datetime
    last_at: datetime | None


class JobError(BaseModel):
    error_id: UUID
    ts: datetime
    workflow: str | None
    job_id: UUID | None
    kind: str
    retryable: bool
    message: str
    details: str | None


class Done(BaseModel):
    changed: bool = Field(description="False: so it was already.")


class Stands(BaseModel):
    status: Status


class Fired(BaseModel):
    job_id: UUID
    is_new: bool = Field(description="False: an earlier one has not finished, and is this.")


@router.get("/jobs", summary="Jobs, the newest first")
async def jobs(
    pool: Database,
    workspace_id: Workspace,
    status: Status | None = None,
    kind: Annotated[str | None, Query(max_length=64, pattern=r"^[^\x00]*$")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> list[Job]:
    return [Job(**row) for row in await verbs.list_jobs(pool, workspace_id, status=status, kind=kind, limit=limit)]


@router.get("/jobs/{job_id}", summary="One job and all its runs")
async def job(pool: Database, workspace_id: Workspace, job_id: UUID) -> WholeJob:
    return WholeJob(**await verbs.show_job(pool, workspace_id, job_id))


@router.post("/jobs/{job_id}/run", summary="Let a waiting job go at once", status_code=202, responses=NOT_NOW)
async def run_now(pool: Database, by: Changing, job_id: UUID) -> Stands:
    await verbs.run_job_now(pool, by.workspace_id, job_id, actor=by.name)
    return await _stands(pool, by.workspace_id, job_id)


@router.post("/jobs/{job_id}/retry", summary="Let a dead or cancelled job go again", status_code=202, responses=NOT_NOW)
async def retry(pool: Database, by: Changing, job_id: UUID) -> Stands:
    """With one more try."""
    await verbs.retry_job(pool, by.workspace_id, job_id, actor=by.name)
    return await _stands(pool, by.workspace_id, job_id)


@router.post("/jobs/{job_id}/cancel", summary="Cancel a job", responses=NOT_NOW)
async def cancel(pool: Database, by: Changing, job_id: UUID) -> Stands:
    """One that runs is told to end: then its status is still `running`."""
    await verbs.cancel_job(pool, by.workspace_id, job_id, actor=by.name)
    return await _stands(pool, by.workspace_id, job_id)


@router.get("/job-errors", summary="Why jobs died, the newest first")
async def errors(
    pool: Database, workspace_id: Workspace, limit: Annotated[int, Query(ge=1, le=1000)] = 50
) -> list[JobError]:
    return [JobError(**row) for row in await verbs.list_errors(pool, workspace_id, limit=limit)]


@router.get("/job-kinds", summary="The kinds of jobs, with how many stand where")
async def kinds(pool: Database, workspace_id: Workspace) -> list[JobKind]:
    return [JobKind(**row) for row in await verbs.list_kinds(pool, workspace_id)]


@router.post("/job-kinds/{kind}/pause", summary="Begin nothing of a kind any more", responses=READ_ONLY)
async def pause(pool: Database, by: Changing, kind: Kind) -> Done:
    """What runs may finish."""
    return Done(changed=await verbs.pause_kind(pool, by.workspace_id, kind, actor=by.name))


@router.post("/job-kinds/{kind}/resume", summary="Let a paused kind go on", responses=READ_ONLY)
async def resume(pool: Database, by: Changing, kind: Kind) -> Done:
    return Done(changed=await verbs.resume_kind(pool, by.workspace_id, kind, actor=by.name))


@router.get("/schedules", summary="What comes round by the clock")
async def schedules(pool: Database, workspace_id: Workspace) -> list[OfSchedule]:
    return [OfSchedule(**row) for row in await verbs.list_schedules(pool, workspace_id)]


@router.post(
    "/schedules/{schedule_id:path}/fire",
    summary="Let what comes round by the clock come now",
    status_code=202,
    responses=READ_ONLY,
)
async def fire(pool: Database, by: Changing, schedule_id: Schedule) -> Fired:
    """Beside its ticks, which stay as they are."""
    fired = await verbs.fire_schedule_now(pool, by.workspace_id, schedule_id, actor=by.name)
    return Fired(job_id=fired.job_id, is_new=fired.is_new)


async def _stands(pool: Database, workspace_id: str, job_id: UUID) -> Stands:
    return Stands(status=(await verbs.show_job(pool, workspace_id, job_id))["status"])
