"""``/v1/workspaces/{ws}/apikeys`` and ``/changes``: what opens this API, and what was done through it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from vestnik.api.access import OWNERS_ONLY, REFUSED, Database, Owning, Reading, Workspace
from vestnik.autopost import changes
from vestnik.ops import access

router = APIRouter(prefix="/v1/workspaces/{ws}", tags=["keys and changes"], responses=REFUSED)


class Key(BaseModel):
    key_id: UUID
    name: str
    access: Literal["read", "full"]
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


class NewKey(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00]*$", examples=["n8n"])]
    access: Literal["read", "full"] = "read"


class MadeKey(BaseModel):
    key: str = Field(description="Shown this once.")


class Change(BaseModel):
    ts: datetime
    actor: str
    action: str
    subject: str
    details: dict[str, Any]


@router.get("/apikeys", summary="The API keys, revoked ones too; what they are is never answered")
async def keys(pool: Database, workspace_id: Workspace) -> list[Key]:
    return [Key(**row) for row in await access.list_keys(pool, workspace_id)]


@router.post("/apikeys", summary="Make an API key", status_code=201, responses=OWNERS_ONLY)
async def create(pool: Database, by: Owning, body: NewKey) -> MadeKey:
    return MadeKey(key=await access.create_key(pool, by.workspace_id, body.name, body.access, actor=by.name))


@router.delete("/apikeys/{key_id}", summary="Make a key useless", status_code=204, responses=OWNERS_ONLY)
async def revoke(pool: Database, by: Owning, key_id: UUID) -> None:
    await access.revoke_key(pool, key_id, workspace_id=by.workspace_id, actor=by.name)


@router.get("/changes", summary="Who changed what, the newest first")
async def list_changes(
    pool: Database,
    by: Reading,
    actor: Annotated[str | None, Query(max_length=200, pattern=r"^[^\x00]*$")] = None,
    before: Annotated[
        AwareDatetime | None, Query(description="Only older ones: the last `ts` of the page before.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> list[Change]:
    """Of the 30 days before. What was done at one moment comes together, even beyond `limit`."""
    rows = await changes.list_changes(pool, by.workspace_id, actor=actor, before=before, limit=limit)
    return [Change(**row) for row in rows]
