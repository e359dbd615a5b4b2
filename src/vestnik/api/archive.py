"""``/v1/workspaces/{ws}/messages`` and ``deliveries``: what was posted, and what became of it in each channel."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from vestnik.api.bodies import document
from vestnik.api.payload_schema import PAYLOAD
from vestnik.api.workspace import READ_ONLY, REFUSED, Changing, Database, Workspace
from vestnik.autopost import archive, verbs

router = APIRouter(prefix="/v1/workspaces/{ws}", tags=["messages and deliveries"], responses=REFUSED)
Text = Annotated[str | None, Query(max_length=256, pattern=r"^[^\x00]*$")]
Before = Annotated[UUID | None, Query(description="Only older ones: the last id of the page before.")]
Most = Annotated[int, Query(ge=1, le=1000)]


class Message(BaseModel):
    message_id: UUID
    created_at: datetime
    last_seen_at: datetime
    seen_count: int
    tags: list[str]
    source_ref: str | None
    shows: str | None = Field(description="How its text begins.")


class Delivery(BaseModel):
    delivery_id: UUID
    message_id: UUID
    channel_id: str
    status: archive.Status
    attempt: int
    created_at: datetime
    scheduled_for: datetime | None
    not_before: datetime | None = Field(description="Null while its media are fetched.")
    next_retry_at: datetime | None = Field(description="Null also where it is held.")
    held_at: datetime | None
    sending_started_at: datetime | None
    sent_at: datetime | None
    updated_at: datetime
    provider_message_id: str | None
    last_error: dict[str, Any] | None


class WholeMessage(BaseModel):
    message_id: UUID
    created_at: datetime
    last_seen_at: datetime
    seen_count: int
    tags: list[str]
    source_ref: str | None
    source: dict[str, Any] | None
    payload: dict[str, Any]
    deliveries: list[Delivery]


class WholeDelivery(Delivery):
    lease: int
    claimed_at: datetime | None
    claim_token: str | None
    trace_id: UUID | None
    template_version: str | None
    rendered_text: str | None
    render_meta: dict[str, Any]


class Published(BaseModel):
    message_id: UUID
    trace_id: UUID
    run_id: UUID
    enqueued: int
    suppressed: int
    failed: int
    routed_by_tags: list[str] | None
    warnings: list[str]
    media_pending: int


@router.post(
    "/messages",
    summary="Publish a post, past the gates of the endpoints",
    status_code=202,
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": PAYLOAD}}}},
    responses=READ_ONLY,
)
async def publish(request: Request, pool: Database, by: Changing) -> Published:
    """As `vestnik push`. Clients push through an endpoint of their own instead: `POST /v1/push`."""
    return Published(**await verbs.publish(pool, by.workspace_id, await document(request), actor=by.name))


@router.get("/messages", summary="What was posted, the newest first")
async def messages(
    pool: Database, workspace_id: Workspace, source_ref: Text = None, before: Before = None, limit: Most = 50
) -> list[Message]:
    rows = await archive.list_messages(pool, workspace_id, source_ref=source_ref, before=before, limit=limit)
    return [Message(**row) for row in rows]


@router.get("/messages/{message_id}", summary="A message, with its delivery in each channel")
async def message(pool: Database, workspace_id: Workspace, message_id: UUID) -> WholeMessage:
    return WholeMessage(**await archive.show_message(pool, workspace_id, message_id))


@router.get("/deliveries", summary="The deliveries, the newest first")
async def deliveries(
    pool: Database,
    workspace_id: Workspace,
    status: archive.Status | None = None,
    channel_id: Text = None,
    before: Before = None,
    limit: Most = 50,
) -> list[Delivery]:
    rows = await archive.list_deliveries(
        pool, workspace_id, status=status, channel_id=channel_id, before=before, limit=limit
    )
    return [Delivery(**row) for row in rows]


@router.get("/deliveries/{delivery_id}", summary="A delivery, with what is sent")
async def delivery(pool: Database, workspace_id: Workspace, delivery_id: UUID) -> WholeDelivery:
    return WholeDelivery(**await archive.show_delivery(pool, workspace_id, delivery_id))
