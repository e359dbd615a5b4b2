"""``/v1/operators`` and ``/v1/workspaces``: the service's own, for its owners; and the roles in a workspace."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field

from vestnik.api.access import OWNERS_ONLY, REFUSED, Answers, Database, Owning, OwningService, Principal, Workspace
from vestnik.api.configuration_schema import WorkspaceRow
from vestnik.api.payload_schema import Problem
from vestnik.autopost import configuration
from vestnik.ops import operators
from vestnik.ops.operators import LONGEST_PASSWORD, SERVICE, SHORTEST_PASSWORD, Language, Operator, Role

TAKEN: Answers = {409: {"model": Problem, "description": "There is one already."}}
service_router = APIRouter(prefix="/v1", tags=["operators"], responses=REFUSED)
router = APIRouter(prefix="/v1/workspaces/{ws}/operators", tags=["operators"], responses=REFUSED)
Login = Annotated[str, Path(max_length=64, pattern=r"^[a-z0-9][a-z0-9_.@-]*$")]
Password = Annotated[str, Field(min_length=SHORTEST_PASSWORD, max_length=LONGEST_PASSWORD)]


class OneOperator(BaseModel):
    login: str
    name: str
    language: Language
    created_at: datetime
    disabled_at: datetime | None
    roles: dict[str, list[Role]] = Field(description="By workspace; `*` is all of them, and the service.")


class NewOperator(BaseModel):
    model_config = ConfigDict(extra="forbid")
    login: Annotated[str, Field(max_length=64, pattern=r"^[a-z0-9][a-z0-9_.@-]*$", examples=["anna"])]
    password: Password
    name: Annotated[str, Field(max_length=200, pattern=r"^[^\x00]*$")] = ""
    language: Language = "en"


class NewPassword(BaseModel):
    model_config = ConfigDict(extra="forbid")
    password: Password


class NewWorkspace(BaseModel):
    model_config = ConfigDict(extra="forbid")
    workspace_id: Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", examples=["shop"])]
    name: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00]*$")] | None = None


class Changed(BaseModel):
    changed: bool = Field(description="False: so it was already.")


@service_router.get("/workspaces", summary="The workspaces that the caller may look into")
async def workspaces(pool: Database, who: Principal) -> list[WorkspaceRow]:
    if isinstance(who, Operator):
        roles = (await operators.show_operator(pool, who.login))["roles"]
        only = None if set(roles.get(SERVICE, ())) - {"security"} else list(roles)
    else:
        only = [who.workspace_id]
    return [WorkspaceRow(**row) for row in await configuration.list_workspaces(pool, only)]


@service_router.post("/workspaces", summary="Make a workspace", status_code=201, responses=OWNERS_ONLY | TAKEN)
async def make_workspace(pool: Database, by: OwningService, body: NewWorkspace) -> WorkspaceRow:
    """With the default rules, and nothing in it."""
    name = body.name or body.workspace_id
    return WorkspaceRow(**await configuration.make_workspace(pool, body.workspace_id, name, actor=by.name))


@service_router.get("/operators", summary="All operators, and what each may do where", responses=OWNERS_ONLY)
async def list_operators(pool: Database, by: OwningService) -> list[OneOperator]:
    return [OneOperator(**row) for row in await operators.list_operators(pool)]


@service_router.post("/operators", summary="Make an operator", status_code=201, responses=OWNERS_ONLY | TAKEN)
async def add(pool: Database, by: OwningService, body: NewOperator) -> OneOperator:
    """Who may do nothing yet: give a role."""
    await operators.add_operator(pool, body.login, body.password, name=body.name, language=body.language, actor=by.name)
    return OneOperator(**await operators.show_operator(pool, body.login))


@service_router.delete("/operators/{login}", summary="Remove an operator", status_code=204, responses=OWNERS_ONLY)
async def remove(pool: Database, by: OwningService, login: Login) -> None:
    """With all roles and sessions. What the operator did stays in the record, by name."""
    await operators.remove_operator(pool, login, actor=by.name)


@service_router.post("/operators/{login}/disable", summary="Shut an operator out", responses=OWNERS_ONLY)
async def disable(pool: Database, by: OwningService, login: Login) -> Changed:
    """All sessions end."""
    return Changed(changed=await operators.set_enabled(pool, login, False, actor=by.name))


@service_router.post("/operators/{login}/enable", summary="Let an operator in again", responses=OWNERS_ONLY)
async def enable(pool: Database, by: OwningService, login: Login) -> Changed:
    return Changed(changed=await operators.set_enabled(pool, login, True, actor=by.name))


@service_router.put(
    "/operators/{login}/password", summary="Set another password", status_code=204, responses=OWNERS_ONLY
)
async def set_password(pool: Database, by: OwningService, login: Login, body: NewPassword) -> None:
    """All sessions of the operator end."""
    await operators.set_password(pool, login, body.password, actor=by.name)


@router.get("", summary="Who may do something in this workspace")
async def of_workspace(pool: Database, workspace_id: Workspace) -> list[OneOperator]:
    """Of the roles, those here and those on `*`."""
    found = [OneOperator(**row) for row in await operators.list_operators(pool, workspace_id)]
    for each in found:
        each.roles = {where: roles for where, roles in each.roles.items() if where in (workspace_id, SERVICE)}
    return found


@router.put("/{login}/roles/{role}", summary="Give an operator a role here", responses=OWNERS_ONLY)
async def grant(pool: Database, by: Owning, login: Login, role: Role) -> Changed:
    """Of owner, editor and viewer it takes the place of the one before. `security` stands beside: it opens raw payloads."""
    return Changed(changed=await operators.grant(pool, by.workspace_id, login, role, actor=by.name))


@router.delete("/{login}/roles/{role}", summary="Take a role away", responses=OWNERS_ONLY)
async def take(pool: Database, by: Owning, login: Login, role: Role) -> Changed:
    return Changed(changed=await operators.take(pool, by.workspace_id, login, role, actor=by.name))
