"""``/v1/workspaces/{ws}/…``: what needs a person, who is told of it, failure webhooks, and how the workspace does."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from vestnik.api.workspace import READ_ONLY, REFUSED, Answers, Changing, Database, Workspace
from vestnik.autopost.alerting import AlertDesk
from vestnik.autopost.monitor import health
from vestnik.ops.alerts import verbs
from vestnik.ops.alerts.contract import TellFailed
from vestnik.ops.alerts.declared import AlertPolicy, AlertTarget, Webhook

AlertName = Annotated[str, Path(pattern=r"^[a-z][a-z0-9_.]{0,63}$", description="As listed.")]
TargetId = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
WebhookId = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
Subject = Annotated[str | None, Field(max_length=200, pattern=r"^[^\x00]*$", description="Without it, each.")]
NOT_TAKEN: Answers = {502: {"model": REFUSED[404]["model"], "description": "The target did not take it."}}


class Alert(BaseModel):
    alert: str
    subject: str
    severity: str
    summary: str
    raised_at: datetime
    last_seen_at: datetime
    cleared_at: datetime | None
    raises: int
    acked_by: str | None
    acked_at: datetime | None
    silent_until: datetime | None
    details: dict[str, Any]


class OfAlert(BaseModel):
    subject: Subject = None


class Silence(OfAlert):
    seconds: int = Field(ge=0, le=365 * 86400, description="For how long; 0 ends it.")
    reason: str = Field(min_length=1, max_length=300, pattern=r"^[^\x00]*$")


class Counted(BaseModel):
    count: int


class Until(BaseModel):
    until: datetime


class Secret(BaseModel):
    secret: str | None = Field(description="That was made for it; shown this once.")


class NewSecret(BaseModel):
    secret: str = Field(description="Shown this once.")


class Overlap(BaseModel):
    seconds: int = Field(86400, ge=0, le=30 * 86400, description="For how long the old secret signs too.")


def alert_routes(desk: AlertDesk) -> APIRouter:
    router = APIRouter(prefix="/v1/workspaces/{ws}", tags=["alerts"], responses=REFUSED)
    for add in (_alerts, _targets, _webhooks):
        add(router, desk)
    return router


def _alerts(router: APIRouter, desk: AlertDesk) -> None:
    @router.get("/health", summary="What stands where, what goes wrong most, what is shut, which alerts are on")
    async def workspace_health(pool: Database, workspace_id: Workspace) -> dict[str, Any]:
        return await health(pool, workspace_id)

    @router.get("/alerts", summary="What is wrong now, the gravest first")
    async def alerts(
        pool: Database,
        workspace_id: Workspace,
        over_too: Annotated[bool, Query(description="Also what is over.")] = False,
        limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    ) -> list[Alert]:
        rows = await verbs.list_alerts(pool, workspace_id, over_too=over_too, limit=limit)
        return [Alert(**row) for row in rows]

    @router.post("/alerts/{alert}/ack", summary="Somebody has seen it: it is not repeated", responses=READ_ONLY)
    async def ack(pool: Database, by: Changing, alert: AlertName, body: OfAlert | None = None) -> Counted:
        """Until it grows, or comes back another time."""
        subject = body.subject if body else None
        return Counted(count=await verbs.ack(pool, by.workspace_id, alert, subject, actor=by.name))

    @router.post("/alerts/{alert}/silence", summary="Nobody is told of it for a while", responses=READ_ONLY)
    async def silence(pool: Database, by: Changing, alert: AlertName, body: Silence) -> Until:
        until = await verbs.silence(
            pool, by.workspace_id, alert, body.subject,
            duration=timedelta(seconds=body.seconds), reason=body.reason, actor=by.name,
        )  # fmt: skip
        return Until(until=until)

    @router.get("/alerts/silences", summary="What nobody is told of, and who said so")
    async def silences(pool: Database, workspace_id: Workspace) -> list[dict[str, Any]]:
        return await verbs.list_silences(pool, workspace_id)

    @router.get("/alerts/policy", summary="From where on something is an alert, and how often it is told")
    async def policy(pool: Database, workspace_id: Workspace) -> AlertPolicy:
        return AlertPolicy(**await verbs.policy_of(pool, workspace_id))

    @router.patch("/alerts/policy", summary="Change some of it", responses=READ_ONLY)
    async def put_policy(pool: Database, by: Changing, body: AlertPolicy) -> AlertPolicy:
        await desk.put_policy(by.workspace_id, body, actor=by.name)
        return AlertPolicy(**await verbs.policy_of(pool, by.workspace_id))


def _targets(router: APIRouter, desk: AlertDesk) -> None:
    @router.get("/alert-targets", summary="Who is told, and whether that works")
    async def targets(pool: Database, workspace_id: Workspace) -> list[dict[str, Any]]:
        return await verbs.list_targets(pool, workspace_id)

    @router.put("/alert-targets/{target_id}", summary="Tell somebody", responses=READ_ONLY)
    async def put_target(by: Changing, target_id: TargetId, body: AlertTarget) -> Secret:
        return Secret(secret=await desk.put_target(by.workspace_id, target_id, body, actor=by.name))

    @router.delete(
        "/alert-targets/{target_id}", summary="Tell somebody nothing more", status_code=204, responses=READ_ONLY
    )
    async def remove_target(by: Changing, target_id: TargetId) -> None:
        await desk.remove(by.workspace_id, f"target:{target_id}", actor=by.name)

    @router.post(
        "/alert-targets/{target_id}/test",
        summary="A message that only says that it arrives",
        status_code=204,
        responses=READ_ONLY | NOT_TAKEN,
    )
    async def test_target(by: Changing, target_id: TargetId) -> None:
        try:
            await desk.notifier.try_out(by.workspace_id, target_id)
        except TellFailed as e:
            failure = HTTPException(502, f"{target_id} did not take it: {e.code}.")
        else:
            return
        raise failure


def _webhooks(router: APIRouter, desk: AlertDesk) -> None:
    @router.get("/webhooks", summary="Programs that are told of failures, and whether they answer")
    async def webhooks(pool: Database, workspace_id: Workspace) -> list[dict[str, Any]]:
        return await verbs.list_webhooks(pool, workspace_id)

    @router.put("/webhooks/{webhook_id}", summary="Tell a program of failures", responses=READ_ONLY)
    async def put_webhook(by: Changing, webhook_id: WebhookId, body: Webhook) -> Secret:
        return Secret(secret=await desk.put_webhook(by.workspace_id, webhook_id, body, actor=by.name))

    @router.delete("/webhooks/{webhook_id}", summary="Tell it nothing more", status_code=204, responses=READ_ONLY)
    async def remove_webhook(by: Changing, webhook_id: WebhookId) -> None:
        await desk.remove(by.workspace_id, f"webhook:{webhook_id}", actor=by.name)

    @router.post("/webhooks/{webhook_id}/rotate", summary="A new secret to sign with", responses=READ_ONLY)
    async def rotate(by: Changing, webhook_id: WebhookId, body: Overlap | None = None) -> NewSecret:
        """The old one signs beside it for a while."""
        overlap = timedelta(seconds=(body or Overlap()).seconds)
        owner = f"webhook:{webhook_id}"
        return NewSecret(secret=await desk.rotate_secret(by.workspace_id, owner, overlap=overlap, actor=by.name))
