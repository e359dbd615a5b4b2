"""``/v1/workspaces/{ws}/…``: see what a post would become, what is planned, and change what has not gone out."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request
from pydantic_core import from_json
from starlette.exceptions import HTTPException

from vestnik.adapters.contract import Adapter
from vestnik.api.payload_schema import PAYLOAD, Problem
from vestnik.api.planning_schema import (
    Cancel,
    Cancelled,
    Conflict,
    Conflicts,
    Planned,
    Preview,
    Replaced,
    Reschedule,
    Rescheduled,
)
from vestnik.api.workspace import READ_ONLY, REFUSED, Answers, Changing, Database, Workspace
from vestnik.autopost import planning
from vestnik.autopost.payload import screen
from vestnik.autopost.preview import preview

LONGEST_BODY = 1 << 20
_PAYLOAD = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": PAYLOAD}},
    }
}
_INVALID: Answers = {
    413: {"model": Problem, "description": f"Larger than {LONGEST_BODY} bytes."},
    422: {"model": Problem, "description": "Not a payload: `errors` names every fault, in the words of a push."},
}
_GONE: Answers = READ_ONLY | {
    404: {"model": Problem, "description": "There is no such message, or nothing of it waits any more."},
}


def planning_routes(adapters: Mapping[str, Adapter]) -> APIRouter:
    router = APIRouter(prefix="/v1/workspaces/{ws}", tags=["planning"], responses=REFUSED)

    @router.post(
        "/preview", summary="What would each channel show of this post?", openapi_extra=_PAYLOAD, responses=_INVALID
    )
    async def show(request: Request, pool: Database, workspace_id: Workspace) -> Preview:
        """Rendered and planned by the code that sends. Nothing is sent or kept."""
        return Preview(**await preview(pool, adapters, workspace_id, await _payload(request)))

    @router.post("/messages/{message_id}/cancel", summary="Withdraw what waits of a message", responses=_GONE)
    async def cancel(pool: Database, by: Changing, message_id: UUID, body: Cancel | None = None) -> list[Cancelled]:
        body = body or Cancel()
        rows = await planning.cancel(
            pool, by.workspace_id, message_id, operator=by.name, reason=body.reason, channels=body.channels
        )
        return [Cancelled(**row) for row in rows]

    @router.post(
        "/messages/{message_id}/reschedule", summary="Another moment for what waits of a message", responses=_GONE
    )
    async def reschedule(pool: Database, by: Changing, message_id: UUID, body: Reschedule) -> list[Rescheduled]:
        rows = await planning.reschedule(
            pool, by.workspace_id, message_id, body.scheduled_for,
            operator=by.name, reason=body.reason, channels=body.channels,
        )  # fmt: skip
        return [Rescheduled(**row) for row in rows]

    @router.post(
        "/messages/{message_id}/replace",
        summary="Another post instead of one that waits",
        status_code=202,
        openapi_extra=_PAYLOAD,
        responses=_GONE | _INVALID,
    )
    async def replace(request: Request, pool: Database, by: Changing, message_id: UUID) -> Replaced:
        """In the same channels and at the same moment, with the same tags, unless the payload says otherwise. A channel that
        would not get the new post keeps the old one; when no channel would, nothing changes, and `errors` says why."""
        done = await planning.replace(pool, by.workspace_id, message_id, await _payload(request), operator=by.name)
        return Replaced(**done)

    @router.get("/planned", summary="What waits to be sent, in the order in which it goes")
    async def planned(
        pool: Database,
        workspace_id: Workspace,
        channel_id: Annotated[str | None, Query(max_length=200, pattern=r"^[^\x00]*$")] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    ) -> list[Planned]:
        return [
            Planned(**row) for row in await planning.planned(pool, workspace_id, channel_id=channel_id, limit=limit)
        ]

    @router.get("/conflicts", summary="Posts that come too close to each other in one channel")
    async def conflicts(
        pool: Database,
        workspace_id: Workspace,
        gap_minutes: Annotated[
            float | None, Query(gt=0, le=525600, description="What should lie between two, whatever the channels say.")
        ] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    ) -> Conflicts:
        gap = timedelta(minutes=gap_minutes) if gap_minutes is not None else None
        found, more = await planning.conflicts(pool, workspace_id, gap, limit=limit)
        return Conflicts(conflicts=[Conflict(**row) for row in found], more=more)

    return router


async def _payload(request: Request) -> dict[str, Any]:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > LONGEST_BODY:
            raise HTTPException(413, f"The body is larger than {LONGEST_BODY} bytes.")
    payload: dict[str, Any] = from_json(screen(bytes(body)))
    return payload
