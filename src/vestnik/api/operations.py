"""``/v1/workspaces/{ws}/…``: the specification's runbook. Who asks is the operator of the events."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.exceptions import HTTPException

from vestnik.api.operations_schema import (
    Because,
    Counted,
    CountedChannel,
    Deed,
    Move,
    Moved,
    OfGroup,
    Pause,
    Paused,
    Release,
    Released,
    Requeue,
    Requeued,
    RotateAuth,
    Rotated,
    Select,
)
from vestnik.api.workspace import READ_ONLY, REFUSED, Changing, Database, Workspace
from vestnik.autopost import bulk, operations, rotation
from vestnik.errors import NotFound

router = APIRouter(prefix="/v1/workspaces/{ws}", tags=["operations"], responses=REFUSED)
ChannelId = Annotated[str, Path(min_length=1, max_length=200, pattern=r"^[^\x00]*$")]
Group = Annotated[str, Path(min_length=1, max_length=200, pattern=r"^[^\x00]*$", description="The rate group.")]


@router.post("/deliveries/requeue", summary="One more try for these deliveries", responses=READ_ONLY)
async def requeue(pool: Database, by: Changing, body: Requeue) -> list[Requeued]:
    """What is dead, and what failed for good because of the post itself. Others are refused, and it says why."""
    rows = await operations.requeue(pool, by.workspace_id, body.deliveries, operator=by.name, reason=body.reason)
    return [Requeued(**row) for row in rows]


@router.post("/bulk/{deed}/count", summary="How many deliveries would be moved, of which channels?")
async def count(pool: Database, workspace_id: Workspace, deed: Deed, select: Select) -> Counted:
    _refuse_other_status(deed, select)
    rows, counted = await bulk.count(pool, workspace_id, deed, select.selection())
    return Counted(
        channels=[CountedChannel(**row) for row in rows],
        count=sum(row["count"] for row in rows),
        refused=sum(row["refused"] for row in rows),
        until=counted.until,
    )


@router.post("/bulk/{deed}", summary="Move the deliveries selected, a page at a time", responses=READ_ONLY)
async def move(pool: Database, by: Changing, deed: Deed, body: Move) -> Moved:
    """One transaction a call. Call again while it says `more`; what was moved is not selected again."""
    _refuse_other_status(deed, body.select)
    moved, more = await bulk.move_page(
        pool, by.workspace_id, deed, body.select.selection(), operator=by.name, reason=body.reason, limit=body.limit
    )
    return Moved(moved=moved, more=more)


@router.post(
    "/channels/{channel_id:path}/pause", summary="Let nothing of a channel begin for a while", responses=READ_ONLY
)
async def pause(pool: Database, by: Changing, channel_id: ChannelId, body: Pause) -> Paused:
    until = await operations.pause(
        pool, by.workspace_id, channel_id, body.duration, operator=by.name, reason=body.reason
    )
    return Paused(channel_id=channel_id, paused_until=until)


@router.post(
    "/channels/{channel_id:path}/resume", summary="Let a channel go on, whoever stopped it", responses=READ_ONLY
)
async def resume(pool: Database, by: Changing, channel_id: ChannelId, body: Because) -> list[str]:
    """Enabled, not paused, its refusals forgotten."""
    return await operations.resume(pool, by.workspace_id, channel_id, operator=by.name, reason=body.reason)


@router.post(
    "/channels/{channel_id:path}/disable", summary="Switch a channel off until it is resumed", responses=READ_ONLY
)
async def disable(pool: Database, by: Changing, channel_id: ChannelId, body: Because) -> list[str]:
    return await operations.disable(pool, by.workspace_id, channel_id, operator=by.name, reason=body.reason)


@router.post(
    "/groups/{rate_group:path}/disable", summary="Switch all channels of a rate group off", responses=READ_ONLY
)
async def disable_group(pool: Database, by: Changing, rate_group: Group, body: OfGroup) -> list[str]:
    return await operations.disable_group(
        pool, by.workspace_id, rate_group, operator=by.name, reason=body.reason, platform=body.platform
    )


@router.post("/groups/{rate_group:path}/enable", summary="Let all channels of a rate group go on", responses=READ_ONLY)
async def enable_group(pool: Database, by: Changing, rate_group: Group, body: OfGroup) -> list[str]:
    return await operations.enable_group(
        pool, by.workspace_id, rate_group, operator=by.name, reason=body.reason, platform=body.platform
    )


@router.post("/rotate-auth", summary="Let channels send with another credential", responses=READ_ONLY)
async def rotate_auth(pool: Database, by: Changing, body: RotateAuth) -> list[Rotated]:
    """A channel that is sending is paused until its sends have ended, with the old credential."""
    if (body.channels is None) == (body.old is None):
        raise HTTPException(422, "Name the channels, or the credential they send with (from): one of the two.")
    chosen = body.channels or await rotation.channels_with_auth(
        pool, by.workspace_id, body.old or "", platform=body.platform
    )
    if not chosen:
        raise NotFound(f"no channel of workspace {by.workspace_id} sends with {body.old}")
    rows = await rotation.rotate_auth(
        pool, by.workspace_id, chosen, body.auth_ref,
        operator=by.name, reason=body.reason, rate_group=body.rate_group, wait=body.wait,
    )  # fmt: skip
    return [Rotated(**row) for row in rows]


@router.post(
    "/release-stuck", summary="Let go again what has been claimed or sending for too long", responses=READ_ONLY
)
async def release_stuck(pool: Database, by: Changing, body: Release | None = None) -> list[Released]:
    """Whether such a send arrived is not known: it is sent again, or held where its channel wants no post twice."""
    age = (body or Release()).age
    rows = await operations.release_stuck(pool, by.workspace_id, operator=by.name, older_than=age)
    return [Released(**row) for row in rows]


def _refuse_other_status(deed: Deed, select: Select) -> None:
    if select.status not in (known := bulk.STATUSES[deed]):
        raise HTTPException(422, f"What is {select.status} is nothing to {deed}; {' and '.join(known)} are.")
