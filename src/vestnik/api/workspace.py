"""``/v1/workspaces/{ws}/…``: look into a workspace with an API key of its own."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException

from vestnik.api.payload_schema import Problem
from vestnik.autopost import verbs
from vestnik.db.pool import Pool
from vestnik.ops.access import Key, key_of

Answers = dict[int | str, dict[str, Any]]
REFUSED: Answers = {
    401: {"model": Problem, "description": "No API key, or none that is known."},
    404: {"model": Problem, "description": "The key is not of this workspace, or there is nothing of this name in it."},
    422: {"model": Problem, "description": "A parameter is not what it should be; `errors` names each."},
}
READ_ONLY: Answers = {403: {"model": Problem, "description": "A key that may only read."}}

router = APIRouter(prefix="/v1/workspaces/{ws}", tags=["workspace"], responses=REFUSED)
bearer = HTTPBearer(auto_error=False, scheme_name="apiKey", description="An API key of the workspace.")


def _pool(request: Request) -> Pool:
    pool: Pool = request.app.state.pool
    return pool


Database = Annotated[Pool, Depends(_pool)]


async def _key(
    pool: Database,
    ws: Annotated[str, Path(description="The workspace that the key belongs to.", max_length=64)],
    key: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)],
) -> Key:
    if key is None:
        raise HTTPException(401, "Send an API key: Authorization: Bearer …", {"WWW-Authenticate": "Bearer"})
    known = await key_of(pool, key.credentials)
    if known is None:
        raise HTTPException(401, "No API key in use is this one.", {"WWW-Authenticate": "Bearer"})
    if known.workspace_id != ws:  # the same answer for somebody else's workspace as for none
        raise HTTPException(404, "There is no such workspace.")
    return known


async def _workspace(key: Annotated[Key, Depends(_key)]) -> str:
    return key.workspace_id


async def _changing(key: Annotated[Key, Depends(_key)]) -> Key:
    if key.access != "full":
        make = f"vestnik apikey create {key.workspace_id} NAME --access full"
        raise HTTPException(403, f"This key may only read; make one that may more: {make}")
    return key


Workspace = Annotated[str, Depends(_workspace)]
Changing = Annotated[Key, Depends(_changing)]


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
