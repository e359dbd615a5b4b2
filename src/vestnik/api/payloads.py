"""``/v1/workspaces/{ws}/payloads``: full payloads, for those with the role security alone. Every look is on record."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from vestnik.api.access import REFUSED, SECURITY_ONLY, Answers, Asking, Database, Security, demand
from vestnik.api.payload_schema import Problem
from vestnik.autopost.payloads import verbs
from vestnik.autopost.payloads.links import LinkForged
from vestnik.autopost.payloads.sealing import PayloadUnreadable
from vestnik.autopost.payloads.vault import is_ref
from vestnik.autopost.payloads.verbs import LinkExpired, PayloadDesk
from vestnik.errors import NotFound
from vestnik.log import get_log
from vestnik.ops.access import Caller
from vestnik.storage import StorageError

_NEVER_KEPT = {
    "Cache-Control": "no-store",
    "Content-Disposition": 'attachment; filename="payload.json"',
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_TROUBLE: Answers = {
    409: {"model": Problem, "description": "It was sealed with a key that is not at hand."},
    503: {"model": Problem, "description": "The object store or the database is away; ask again."},
}
_FOLLOWED: Answers = _TROUBLE | {
    200: {"content": {"application/octet-stream": {}}, "description": "The payload."},
    404: {"model": Problem, "description": "No such link, or the payload is not kept any more."},
    410: {"model": Problem, "description": "The link has expired."},
}
Name = Annotated[str, Path(max_length=64, pattern=r"^[0-9a-f-]{36}$", description="The `payload_ref` of an event.")]
Token = Annotated[str, Path(max_length=2000, pattern=r"^[A-Za-z0-9_-]+$")]
Hours = Annotated[int, Query(ge=1, le=24 * 366, description="How far back.")]
Most = Annotated[int, Query(ge=1, le=1000)]
log = get_log()


class Why(BaseModel):
    reason: str = Field(
        min_length=3, max_length=500, pattern=r"^[^\x00]*$", description="Why you must see it; kept with your name."
    )
    seconds: int = Field(300, ge=10, le=3600, description="How long the link is good for.")


class Given(BaseModel):
    url: str = Field(description="Whoever has it can read the payload until it expires: hand it to nobody.")
    expires_at: datetime


class Named(BaseModel):
    ts: datetime
    payload_ref: str
    action: str
    delivery_id: UUID | None
    message_id: UUID | None
    channel_id: str | None
    code: str | None


class Look(BaseModel):
    ts: datetime
    actor: str
    via: Literal["api", "link", "machine"]
    action: Literal["link", "read"]
    payload_ref: str
    reason: str
    outcome: Literal["granted", "refused", "expired", "not_found", "unreadable", "store_away"]
    link_id: UUID | None


def _desk(request: Request) -> PayloadDesk:
    desk: PayloadDesk = request.app.state.payload_desk
    return desk


Desk = Annotated[PayloadDesk, Depends(_desk)]


async def _security_or_on_record(by: Asking, desk: Desk, request: Request) -> Caller:
    """Before the body is judged: who is refused is on record whatever they sent."""
    if "security" not in by.rights:
        await desk.refuse(by.workspace_id, _name(request), actor=by.name, reason=_reason(await request.body()))
    return demand(by, "security")


SecurityOrOnRecord = Annotated[Caller, Depends(_security_or_on_record)]
_of_workspace = APIRouter(prefix="/v1/workspaces/{ws}/payloads", responses=REFUSED | SECURITY_ONLY)
router = APIRouter(tags=["payloads"])


@_of_workspace.get("", summary="What events name a full payload")
async def named(pool: Database, by: Security, hours: Hours = 14 * 24, limit: Most = 100) -> list[Named]:
    rows = await verbs.list_payloads(pool, by.workspace_id, since=timedelta(hours=hours), limit=limit)
    return [Named(**row) for row in rows]


@_of_workspace.get("/reads", summary="Who asked for which payload, when and why")
async def reads(pool: Database, by: Security, hours: Hours = 30 * 24, limit: Most = 200) -> list[Look]:
    rows = await verbs.list_reads(pool, by.workspace_id, since=timedelta(hours=hours), limit=limit)
    return [Look(**row) for row in rows]


@_of_workspace.post("/{payload_ref}/link", summary="A link to one payload that expires", responses=_TROUBLE)
async def link(by: SecurityOrOnRecord, desk: Desk, payload_ref: Name, why: Why, request: Request) -> Given:
    lifetime = timedelta(seconds=why.seconds)
    try:
        issued = await desk.issue(by.workspace_id, payload_ref, actor=by.name, reason=why.reason, lifetime=lifetime)
    except (PayloadUnreadable, StorageError) as e:
        raise _trouble(e) from None
    return Given(url=f"{request.base_url}v1/payloads/{issued.token}", expires_at=issued.expires_at)


@router.get("/v1/payloads/{token}", summary="The payload behind a link", responses=_FOLLOWED, response_class=Response)
async def follow(desk: Desk, token: Token) -> Response:
    try:
        _, content = await desk.follow(token)
    except LinkForged:
        log.warning("payload.link_forged")
        raise NotFound("there is no such link") from None
    except LinkExpired as e:
        raise HTTPException(410, f"{e}: {e.hint}.", {"Cache-Control": "no-store"}) from None
    except (PayloadUnreadable, StorageError) as e:
        raise _trouble(e) from None
    return Response(content, media_type="application/octet-stream", headers=_NEVER_KEPT)


router.include_router(_of_workspace)


def _trouble(error: PayloadUnreadable | StorageError) -> HTTPException:
    if isinstance(error, PayloadUnreadable):
        return HTTPException(409, f"{error}.")
    log.warning("payload.store_failed", error=str(error))
    return HTTPException(503, "The object store cannot be used now; ask again.", {"Retry-After": "5"})


def _name(request: Request) -> str:
    given = request.path_params["payload_ref"]
    return given if is_ref(given) else "not the name of a payload"


def _reason(body: bytes) -> str:
    """As far as it is one: who is refused may have sent anything."""
    try:
        given = json.loads(body)["reason"]
    except (ValueError, TypeError, KeyError):
        given = None
    return given.replace("\0", "")[:500] if isinstance(given, str) else ""
