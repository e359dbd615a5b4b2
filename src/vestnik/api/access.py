"""Who asks, and what they may: an API key of a workspace, or an operator by session or by password."""

from __future__ import annotations

import base64
import binascii
from collections import OrderedDict
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Annotated, Any, NoReturn

from fastapi import Depends, Path, Request
from fastapi.security import HTTPBasic, HTTPBearer
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection

from vestnik.api.pace import Buckets
from vestnik.api.payload_schema import Problem
from vestnik.db.pool import Pool
from vestnik.errors import TryLater
from vestnik.ops.access import Caller, Right, hash_of, key_of
from vestnik.ops.operators import SERVICE, Operator, caller_of
from vestnik.ops.sign_in import SignIn, WrongPassword, operator_of_session

Answers = dict[int | str, dict[str, Any]]
REFUSED: Answers = {
    400: {"model": Problem, "description": "The body could not be read."},
    401: {"model": Problem, "description": "No API key, session or password, or none that is known."},
    404: {"model": Problem, "description": "The caller has no such workspace, or there is nothing of this name in it."},
    408: {"model": Problem, "description": "The body did not come within a minute."},
    413: {"model": Problem, "description": "The body is larger than this server takes."},
    422: {"model": Problem, "description": "A parameter is not what it should be; `errors` names each."},
    429: {"model": Problem, "description": "Faster than one caller may ask; see Retry-After."},
    503: {"model": Problem, "description": "The database is away; ask again, see Retry-After."},
}
READ_ONLY: Answers = {403: {"model": Problem, "description": "A caller that may only read."}}
OWNERS_ONLY: Answers = {403: {"model": Problem, "description": "A caller that is no owner."}}
SECURITY_ONLY: Answers = {403: {"model": Problem, "description": "A caller without the role security."}}

MOST_FAILURES, FORGIVEN = 20, 0.5  # unknown keys from one address in a row, and how many a second are forgotten
_KNOWN = 10_000
_CHALLENGE = {"WWW-Authenticate": "Bearer"}  # to name Basic as well would open every browser's own box


class _Described(HTTPBasic):
    """For the description alone: the framework's own reading knows no letters but those of ASCII."""

    async def __call__(self, request: HTTPConnection) -> None:
        return None


_bearer = HTTPBearer(
    auto_error=False, scheme_name="apiKey", description="An API key of the workspace, or the token of a session."
)
_basic = _Described(auto_error=False, scheme_name="operator", description="An operator's login and password.")


class Doorkeeper:
    """One for a process: knows who asks, and how often."""

    def __init__(self, pool: Pool, rps: float) -> None:
        self._pool = pool
        self.sign_in = SignIn(pool)
        self._paces = Buckets(rps, max(2 * rps, 1.0))
        self._failures = Buckets(FORGIVEN, MOST_FAILURES)
        self._known: OrderedDict[str, None] = OrderedDict()  # tokens that were right before

    async def admit(self, request: Request) -> Caller | Operator:
        """Raises HTTPException for who is not known, TryLater for who asks too often."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        match scheme.lower(), given.strip():
            case "bearer", token if token:
                who = await self._of_token(token, address_of(request))
            case "basic", encoded if encoded:
                who = await self._of_password(encoded, address_of(request))
            case _:
                _refuse("Send an API key or the token of a session: Authorization: Bearer …")
        name = f"operator {who.login}" if isinstance(who, Operator) else f"{who.workspace_id} {who.name}"
        if wait := self._paces.take(name):
            raise TryLater("too many requests", after=wait)
        return who

    async def _of_token(self, token: str, address: str) -> Caller | Operator:
        """From an address that only ever guesses, unknown tokens are not even looked up."""
        digest = hash_of(token)
        if digest not in self._known and (wait := self._failures.wait(address)):
            raise TryLater("too many unknown keys from this address", after=wait)
        who: Caller | Operator | None = (
            await operator_of_session(self._pool, token)
            if token.startswith("vsess_")
            else await key_of(self._pool, token)
        )
        if who is None:
            self._known.pop(digest, None)
            self._failures.take(address)
            _refuse("No API key in use is this one.")
        self._known[digest] = None
        if len(self._known) > _KNOWN:
            self._known.popitem(last=False)
        return who

    async def _of_password(self, encoded: str, address: str) -> Operator:
        try:
            login, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            login = colon = password = ""
        if not colon:
            _refuse("Authorization: Basic takes login:password in UTF-8 as base64.")
        try:
            return await self.sign_in.check(login, password, address)
        except WrongPassword:
            return _refuse("No operator has this login and this password.")


def token_of(request: Request) -> str | None:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    return given.strip() or None if scheme.lower() == "bearer" else None


def address_of(request: Request) -> str:
    """Who has one address of IPv6 has all of its /64: they count as one."""
    given = request.client.host if request.client else ""
    try:
        address = ip_address(given.partition("%")[0])
    except ValueError:
        return given
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return str(ip_network((address, 64), strict=False))
    return str(address.ipv4_mapped or address) if isinstance(address, IPv6Address) else str(address)


def doorkeeper_of(request: Request) -> Doorkeeper:
    keeper: Doorkeeper = request.app.state.doorkeeper
    return keeper


def _pool(request: Request) -> Pool:
    pool: Pool = request.app.state.pool
    return pool


Database = Annotated[Pool, Depends(_pool)]
WorkspaceId = Annotated[
    str,
    Path(
        description="The workspace; for operators, `*` is the service itself.",
        pattern=r"^(\*|[A-Za-z0-9][A-Za-z0-9_.-]{0,63})$",
        max_length=64,
    ),
]


async def _principal(
    request: Request, _token: Annotated[Any, Depends(_bearer)], _password: Annotated[Any, Depends(_basic)]
) -> Caller | Operator:
    return await doorkeeper_of(request).admit(request)


Principal = Annotated[Caller | Operator, Depends(_principal)]


async def caller_in(pool: Pool, who: Caller | Operator, workspace_id: str) -> Caller:
    """The same answer for somebody else's workspace as for none."""
    caller = await caller_of(pool, who, workspace_id) if isinstance(who, Operator) else who
    if caller.workspace_id != workspace_id or not caller.rights:
        raise HTTPException(404, "There is no such workspace.")
    return caller


async def _caller(pool: Database, who: Principal, ws: WorkspaceId) -> Caller:
    return await caller_in(pool, who, ws)


async def _service_caller(pool: Database, who: Principal) -> Caller:
    return await caller_in(pool, who, SERVICE)


def demand(caller: Caller, right: Right) -> Caller:
    if right in caller.rights:
        return caller
    if right == "change" and caller.name.startswith("apikey "):
        make = f"vestnik apikey create {caller.workspace_id} NAME --access full"
        raise HTTPException(403, f"This key may only read; make one that may more: {make}")
    raise HTTPException(403, _MISSING[right])


_MISSING: dict[Right, str] = {
    "read": "This operator may not look into this workspace.",
    "change": "This operator may only look; an editor may change things.",
    "own": "Only an operator who is owner may do this.",
    "security": "Only an operator with the role security may do this.",
}


async def _workspace(caller: Annotated[Caller, Depends(_caller)]) -> str:
    return demand(caller, "read").workspace_id


async def _reading(caller: Annotated[Caller, Depends(_caller)]) -> Caller:
    return demand(caller, "read")


async def _changing(caller: Annotated[Caller, Depends(_caller)]) -> Caller:
    return demand(caller, "change")


async def _owning(caller: Annotated[Caller, Depends(_caller)]) -> Caller:
    return demand(caller, "own")


async def _security(caller: Annotated[Caller, Depends(_caller)]) -> Caller:
    return demand(caller, "security")


async def _owning_service(caller: Annotated[Caller, Depends(_service_caller)]) -> Caller:
    return demand(caller, "own")


async def _owns_service(pool: Database, who: Principal) -> bool:
    return isinstance(who, Operator) and "own" in (await caller_of(pool, who, SERVICE)).rights


Asking = Annotated[Caller, Depends(_caller)]  # of this workspace; what they may is for the route to demand
Workspace = Annotated[str, Depends(_workspace)]
Reading = Annotated[Caller, Depends(_reading)]
Changing = Annotated[Caller, Depends(_changing)]
Owning = Annotated[Caller, Depends(_owning)]
Security = Annotated[Caller, Depends(_security)]
OwningService = Annotated[Caller, Depends(_owning_service)]
OwnsService = Annotated[bool, Depends(_owns_service)]


def _refuse(detail: str) -> NoReturn:
    raise HTTPException(401, detail, _CHALLENGE)
