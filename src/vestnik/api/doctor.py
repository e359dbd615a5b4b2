"""``/v1/workspaces/{ws}/doctor``: is everything of a workspace as it should be."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel

from vestnik.adapters.contract import Adapter
from vestnik.api.workspace import REFUSED, Database, Workspace
from vestnik.db.pool import Pool
from vestnik.doctor.examination import examine
from vestnik.doctor.findings import Finding, Patient, Status
from vestnik.doctor.rounds import OF_A_WORKSPACE


class Found(BaseModel):
    """``fix`` says what to do where something is wrong."""

    check: str
    status: Status
    workspace_id: str | None
    subject: str | None
    said: str
    fix: str | None


def doctor_routes(adapters: Mapping[str, Adapter]) -> APIRouter:
    router = APIRouter(prefix="/v1/workspaces/{ws}", tags=["workspace"], responses=REFUSED)
    under_way: dict[tuple[str, bool, int], asyncio.Task[list[Finding]]] = {}

    @router.get("/doctor", summary="Are its credentials, rights, webhooks and deliveries in order?")
    async def doctor(
        pool: Database,
        workspace_id: Workspace,
        offline: Annotated[bool, Query(description="Ask no platform.")] = False,
        channels: Annotated[
            int, Query(ge=1, le=200, description="Of each credential, the rights in at most so many channels.")
        ] = 20,
    ) -> list[Found]:
        # Who asks twice waits for the one answer: the rate of the bots is for posts.
        asked = (workspace_id, offline, channels)
        if asked not in under_way:
            task = under_way[asked] = asyncio.create_task(_examine(pool, adapters, *asked))
            task.add_done_callback(lambda _: under_way.pop(asked, None))
        return [Found(**each.as_row()) for each in await asyncio.shield(under_way[asked])]

    return router


async def _examine(
    pool: Pool, adapters: Mapping[str, Adapter], workspace_id: str, offline: bool, channels: int
) -> list[Finding]:
    patient = Patient(pool, adapters, workspace_id, offline=offline, most_channels=channels)
    return await examine(patient, OF_A_WORKSPACE)
