"""``/v1/workspaces/{ws}/…``: forecasts; outcomes that nobody knows; and what the integrity and proof jobs have found."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request

from vestnik.api.bodies import document
from vestnik.api.payload_schema import PAYLOAD, Problem
from vestnik.api.unknown_schema import (
    ConfirmOne,
    Finding,
    Forecast,
    Held,
    HeldList,
    OfChannel,
    ResendOne,
    Settled,
    SettledMany,
)
from vestnik.api.workspace import READ_ONLY, REFUSED, Answers, Changing, Database, Workspace
from vestnik.autopost import proof, unknown
from vestnik.autopost.forecast import forecast

router = APIRouter(prefix="/v1/workspaces/{ws}", tags=["workspace"], responses=REFUSED)
_PAYLOAD = {"requestBody": {"required": True, "content": {"application/json": {"schema": PAYLOAD}}}}
_MOST = 1000
_NOT_HELD: Answers = READ_ONLY | {
    409: {"model": Problem, "description": "It is not held (any more); `detail` says how it stands."},
}


@router.post("/forecast", summary="When would this post leave, channel by channel?", openapi_extra=_PAYLOAD)
async def foresee(request: Request, pool: Database, workspace_id: Workspace) -> Forecast:
    """At today's rates and behind what waits now. Nothing is sent or kept."""
    return Forecast(**await forecast(pool, workspace_id, await document(request)))


@router.get("/unknown", summary="What is held because nobody knows whether it arrived, the oldest first")
async def held(
    pool: Database,
    workspace_id: Workspace,
    channel_id: Annotated[str | None, Query(max_length=200, pattern=r"^[^\x00]*$")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> HeldList:
    rows = await unknown.held(pool, workspace_id, channel_id=channel_id, limit=limit)
    return HeldList(held=[Held(**row) for row in rows], total=rows[0]["total"] if rows else 0)


@router.post("/deliveries/{delivery_id}/confirm", summary="Somebody saw it: it is sent", responses=_NOT_HELD)
async def confirm(pool: Database, by: Changing, delivery_id: UUID, body: ConfirmOne) -> Settled:
    outcome = await unknown.confirm(
        pool, by.workspace_id, delivery_id,
        operator=by.name, reason=body.reason, provider_message_id=body.provider_message_id,
    )  # fmt: skip
    return Settled(delivery_id=delivery_id, outcome=outcome)


@router.post("/deliveries/{delivery_id}/resend", summary="It did not arrive: let it go again", responses=_NOT_HELD)
async def resend(pool: Database, by: Changing, delivery_id: UUID, body: ResendOne) -> Settled:
    outcome = await unknown.resend(pool, by.workspace_id, delivery_id, operator=by.name, reason=body.reason)
    return Settled(delivery_id=delivery_id, outcome=outcome)


@router.post("/unknown/confirm", summary="All that a channel holds did arrive", responses=READ_ONLY)
async def confirm_all(pool: Database, by: Changing, body: OfChannel) -> SettledMany:
    rows = await unknown.confirm_channel(
        pool, by.workspace_id, body.channel_id, operator=by.name, reason=body.reason, until=body.until
    )
    return _many(rows)


@router.post("/unknown/resend", summary="Let all that a channel holds go again", responses=READ_ONLY)
async def resend_all(pool: Database, by: Changing, body: OfChannel) -> SettledMany:
    rows = await unknown.resend_channel(
        pool, by.workspace_id, body.channel_id, operator=by.name, reason=body.reason, until=body.until
    )
    return _many(rows)


@router.get("/findings", summary="What does not hold together, as the integrity and proof jobs have found")
async def findings(
    pool: Database, workspace_id: Workspace, limit: Annotated[int, Query(ge=1, le=1000)] = 200
) -> list[Finding]:
    return [Finding(**row) for row in await proof.findings(pool, workspace_id, limit=limit)]


def _many(rows: list[unknown.Row]) -> SettledMany:
    return SettledMany(count=len(rows), deliveries=[row["delivery_id"] for row in rows[:_MOST]])
