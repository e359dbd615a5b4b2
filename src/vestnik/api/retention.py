"""``/v1/workspaces/{ws}/retention``: how long what is kept, what would go now, and let it go."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from vestnik.api.workspace import READ_ONLY, REFUSED, Changing, Database, Workspace
from vestnik.autopost.retention import rules
from vestnik.ops import retention
from vestnik.ops.retention import Budget
from vestnik.storage import ObjectStore

RuleName = Annotated[str | None, Query(max_length=64, pattern=r"^[a-z][a-z0-9_]*$", description="Only this rule.")]
_LOOK = 5.0  # seconds


class Kept(BaseModel):
    rule: str
    about: str
    keep: timedelta | None = Field(description="Null where each row says itself when it is over.")
    own: bool = Field(description="Whether the workspace says so, and not the service.")
    options: dict[str, Any] | None
    going: int = Field(description="How many rows would go now.")
    complete: bool = Field(description="False: at least so many, not all was looked at.")
    oldest: datetime | None
    removed: int | None = Field(description="How many went in all.")
    passed_at: datetime | None
    last_error: str | None


class Done(BaseModel):
    removed: dict[str, int]
    more: bool = Field(description="The time was over first: call again.")
    failed: dict[str, str] = {}
    held: Literal["clock"] | None = Field(
        None, description="The clock jumped: nothing is removed until it is believed again."
    )


def retention_routes(store: ObjectStore) -> APIRouter:
    router = APIRouter(prefix="/v1/workspaces/{ws}/retention", tags=["retention"], responses=REFUSED)
    all_rules = rules(store)

    @router.get("", summary="How long what is kept, and what would go now")
    async def status(pool: Database, workspace_id: Workspace, rule: RuleName = None) -> list[Kept]:
        chosen = retention.chosen(all_rules, rule)
        budget = Budget(rows=retention.LOOK_AT_MOST, seconds=_LOOK)
        rows = await retention.status(pool, chosen, workspace_id=workspace_id, budget=budget)
        return [Kept(**row) for row in rows]

    @router.post("/run", summary="Remove now what is over, for a few seconds", responses=READ_ONLY)
    async def run(
        pool: Database,
        by: Changing,
        rule: RuleName = None,
        seconds: Annotated[float, Query(ge=0.1, le=20, allow_inf_nan=False)] = 10,
    ) -> Done:
        chosen = retention.chosen(all_rules, rule)
        budget = Budget(seconds=seconds)
        done = await retention.run(pool, chosen, workspace_id=by.workspace_id, budget=budget, actor=by.name)
        return Done(**done)

    return router
