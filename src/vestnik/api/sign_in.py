"""``/v1/sign-in``, ``/v1/sign-out``, ``/v1/me``: from a login and a password to a session, and who one is."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from vestnik.api.access import REFUSED, Answers, Database, Principal, address_of, doorkeeper_of, token_of
from vestnik.ops import operators, sign_in
from vestnik.ops.operators import Operator, Role

NO_WORKSPACE: Answers = {status: answer for status, answer in REFUSED.items() if status != 404}
router = APIRouter(prefix="/v1", tags=["signing in"], responses=NO_WORKSPACE)


class Credentials(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"login": "anna", "password": "…"}]})
    login: Annotated[str, Field(min_length=1, max_length=256)]
    password: Annotated[str, Field(min_length=1, max_length=1024)]


class Session(BaseModel):
    token: str = Field(description="For Authorization: Bearer …; shown this once.")
    expires_at: datetime
    login: str
    name: str
    language: str


class Me(BaseModel):
    kind: Literal["operator", "apikey"]
    name: str = Field(description="As the record of changes names the caller.")
    language: str | None = Field(description="Of an operator.")
    roles: dict[str, list[Role]] = Field(
        description="Of an operator, by workspace; `*` is all of them and the service."
    )
    workspace_id: str | None = Field(description="Of a key.")
    rights: list[Literal["read", "change"]] = Field(description="Of a key.")


@router.post("/sign-in", summary="Begin a session as an operator")
async def begin(request: Request, body: Credentials) -> Session:
    """The same answer, after the same time, for a login that is not there as for a wrong password. After some wrong ones the
    door is shut for a while, each time for longer: then 429 and Retry-After."""
    session = await doorkeeper_of(request).sign_in.sign_in(body.login, body.password, address_of(request))
    who = session.operator
    return Session(
        token=session.token, expires_at=session.expires_at, login=who.login, name=who.name, language=who.language
    )


@router.post("/sign-out", summary="End the session that asks", status_code=204)
async def end(request: Request, pool: Database, _who: Principal) -> None:
    token = token_of(request)
    if token is None or not token.startswith("vsess_"):
        raise HTTPException(422, "Only a session can be ended: send its token.")
    await sign_in.sign_out(pool, token)


@router.get("/me", summary="Who asks, and what may they?")
async def me(pool: Database, who: Principal) -> Me:
    if isinstance(who, Operator):
        roles = (await operators.show_operator(pool, who.login))["roles"]
        name = f"operator {who.login}"
        return Me(kind="operator", name=name, language=who.language, roles=roles, workspace_id=None, rights=[])
    rights = [right for right in ("read", "change") if right in who.rights]
    return Me(kind="apikey", name=who.name, language=None, roles={}, workspace_id=who.workspace_id, rights=rights)
