"""``/v1/workspaces/{ws}/…``: look into a workspace with an API key of its own."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException

from vestnik.autopost import verbs
from vestnik.db.pool import Pool
from vestnik.errors import NotFound
from vestnik.ops.access import workspace_of_key

router = APIRouter(prefix="/v1/workspaces/{ws}", tags=["workspace"])
bearer = HTTPBearer(auto_error=False, scheme_name="apiKey", description="An API key of the workspace.")


def _pool(request: Request) -> Pool:
    pool: Pool = request.app.state.pool
    return pool


Database = Annotated[Pool, Depends(_pool)]


async def _workspace(
    pool: Database,
    ws: Annotated[str, Path(description="The workspace that the key belongs to.", max_length=64)],
    key: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)],
) -> str:
    owner = await workspace_of_key(pool, key.credentials) if key else None
    if owner is None:
        raise HTTPException(401, "Send an API key: Authorization: Bearer …", {"WWW-Authenticate": "Bearer"})
    if owner != ws:  # the same answer for somebody else's workspace as for none
        raise HTTPException(404, "There is no such workspace.")
    return owner


Workspace = Annotated[str, Depends(_workspace)]


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
    try:
        return await verbs.why(pool, workspace_id, delivery_id)
    except NotFound as e:
        raise HTTPException(404, f"{e}.") from e
