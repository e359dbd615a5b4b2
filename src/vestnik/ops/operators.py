"""Operators: the people who may sign in, and what each of them may do where."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

import psycopg
from psycopg.types.json import Jsonb

from vestnik.db.pool import Connection, Pool, call, retrying
from vestnik.errors import Conflict, InvalidPayload, NotFound
from vestnik.ops.access import Caller, Right
from vestnik.ops.passwords import hash_password

SERVICE = "*"  # every workspace, and the service itself
ROLES = ("owner", "editor", "viewer", "security")
Role = Literal["owner", "editor", "viewer", "security"]
Language = Literal["en", "ru"]
LOGIN = r"[a-z0-9][a-z0-9_.@-]{0,63}"
SHORTEST_PASSWORD, LONGEST_PASSWORD = 10, 256
Row = dict[str, Any]

_RIGHTS: dict[str, frozenset[Right]] = {
    "owner": frozenset({"read", "change", "own"}),
    "editor": frozenset({"read", "change"}),
    "viewer": frozenset({"read"}),
    "security": frozenset({"security"}),
}


@dataclass(frozen=True, slots=True)
class Operator:
    """One who has proved to be this operator."""

    login: str
    name: str
    language: str


async def add_operator(
    pool: Pool,
    login: str,
    password: str,
    *,
    name: str = "",
    language: Language = "en",
    role: Role | None = None,
    workspace_id: str = SERVICE,
    actor: str,
) -> None:
    """Who may do nothing, or begins with a role. Raises InvalidPayload, Conflict; NotFound for the workspace of the role."""
    _check_login(login)
    _check_password(password)
    hashed = await hash_password(password)

    async def work(connection: Connection) -> None:
        await connection.execute(_ADD, (login, name, language, hashed, actor, Jsonb({"language": language})))
        if role is not None:
            await connection.execute("select core.grant_role(%s, %s, %s, %s)", (workspace_id, actor, login, role))

    try:
        await retrying(pool, work)
    except psycopg.errors.UniqueViolation as e:
        raise Conflict(f"there is an operator {login} already", hint="another login") from e


async def set_password(pool: Pool, login: str, password: str, *, actor: str) -> None:
    """All sessions of the operator end."""
    _check_password(password)
    await call(pool, "select core.set_password(%s, %s, %s)", (actor, login, await hash_password(password)))


async def set_enabled(pool: Pool, login: str, enabled: bool, *, actor: str) -> bool:
    """False: so it was. Who is shut out loses all sessions."""
    rows = await call(pool, "select core.set_operator_enabled(%s, %s, %s) as new", (actor, login, enabled))
    return bool(rows[0]["new"])


async def remove_operator(pool: Pool, login: str, *, actor: str) -> None:
    """With all roles and sessions; what the operator did stays in the record, by name."""
    if not await call(pool, _REMOVE, (login, actor)):
        raise NotFound(f"no operator {login}")


async def grant(pool: Pool, workspace_id: str, login: str, role: Role, *, actor: str) -> bool:
    """False: so it was. Of owner, editor and viewer the new one takes the old one's place; security stands beside."""
    query = "select core.grant_role(%s, %s, %s, %s) as new"
    return bool((await call(pool, query, (workspace_id, actor, login, role)))[0]["new"])


async def take(pool: Pool, workspace_id: str, login: str, role: Role, *, actor: str) -> bool:
    query = "select core.take_role(%s, %s, %s, %s) as gone"
    return bool((await call(pool, query, (workspace_id, actor, login, role)))[0]["gone"])


async def list_operators(pool: Pool, workspace_id: str | None = None) -> list[Row]:
    """All of them, or those who may do something in one workspace; ``roles`` are by workspace."""
    return await call(pool, _LIST, (workspace_id, workspace_id))


async def show_operator(pool: Pool, login: str) -> Row:
    for row in await list_operators(pool):
        if row["login"] == login:
            return row
    raise NotFound(f"no operator {login}")


async def caller_of(pool: Pool, operator: Operator, workspace_id: str) -> Caller:
    """With no rights at all where the operator has no role, or there is no such workspace."""
    rows = await call(pool, "select core.roles_of(%s, %s) as roles", (workspace_id, operator.login))
    rights: frozenset[Right] = frozenset().union(*(_RIGHTS[role] for role in rows[0]["roles"]))
    return Caller(workspace_id, f"operator {operator.login}", rights)


def _check_login(login: str) -> None:
    if not re.fullmatch(LOGIN, login):
        raise InvalidPayload(["login: at most 64 of a-z, 0-9, '_', '.', '@', '-', beginning with a letter or a digit"])


def _check_password(password: str) -> None:
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        raise InvalidPayload([f"password: from {SHORTEST_PASSWORD} to {LONGEST_PASSWORD} characters"])


_ADD = """
with made as (
    insert into core.operators (login, name, language, password_hash) values (%s, %s, %s, %s) returning login
)
select core.note_change('*', %s, 'operator_added', 'operator ' || login, %s) from made
"""
_REMOVE = """
with gone as (delete from core.operators where login = %s returning login)
select core.note_change('*', %s, 'operator_removed', 'operator ' || login) from gone
"""
_LIST = """
select o.login, o.name, o.language, o.created_at, o.disabled_at,
       coalesce(jsonb_object_agg(r.workspace_id, r.roles) filter (where r.workspace_id is not null), '{}') as roles
from core.operators o
left join (select x.login, x.workspace_id, array_agg(x.role order by x.role) as roles
           from core.operator_roles x group by 1, 2) r on r.login = o.login
where %s::text is null
   or exists (select from core.operator_roles a where a.login = o.login and a.workspace_id in (%s, '*'))
group by o.login order by o.login
"""
