"""``/v1/workspaces/{ws}/…``: look into a workspace."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query

from vestnik.api.access import (
    OWNERS_ONLY,
    READ_ONLY,
    REFUSED,
    SECURITY_ONLY,
    Answers,
    Changing,
    Database,
    Owning,
    Reading,
    Security,
    Workspace,
)
from vestnik.autopost import verbs

__all__ = [
    "OWNERS_ONLY",
    "READ_ONLY",
    "REFUSED",
    "SECURITY_ONLY",
    "Answers",
    "Changing",
    "Database",
    "Owning",
    "Reading",
    "Security",
    "Workspace",
    "router",
]

router = APIRouter(prefix="/v1/workspaces/{ws}", tags=["workspace"], responses=REFUSED)


@router.get("/queue", summary="How many deliveries stand where")
async def queue(pool: Database, workspace_id: Workspace) -> list[dict[str, Any]]:
    return await verbs.queue_snapshot(pool, workspace_id)


@router.get("/events", summary="What happened lately, newest first")
async def events(
    pool: Database,
    workspace_id: Workspace,
    minutes: Annotated[int, Query(ge=1, le=43200)] = 30,
    errors_only: bool = False,
    delivery_id: UUID | None = None,
    channel_id: Annotated[str | None, Query(max_length=200, pattern=r"^[^\x00]*$")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> list[dict[str, Any]]:
    return await verbs.list_events(
        pool,
        workspace_id,
        minutes=minutes,
        errors_only=errors_only,
        delivery_id=delivery_id,
        channel_id=channel_id,
        limit=limit,
    )


@router.get("/deliveries/{delivery_id}/why", summary="Why has it not gone out yet, and when can it?")
async def why(pool: Database, workspace_id: Workspace, delivery_id: UUID) -> dict[str, Any]:
    return await verbs.why(pool, workspace_id, delivery_id)
