"""API keys: who may act on a workspace from outside. Only the hash of a key is kept."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from vestnik.db.pool import Pool, call
from vestnik.errors import NotFound

Right = Literal["read", "change", "own", "security"]
KEY_RIGHTS: dict[str, frozenset[Right]] = {"read": frozenset({"read"}), "full": frozenset({"read", "change"})}


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, of which workspace: ``name`` is what the record of changes will say."""

    workspace_id: str
    name: str
    rights: frozenset[Right]


async def create_key(pool: Pool, workspace_id: str, name: str, access: str = "read", *, actor: str = "vestnik") -> str:
    """The key is shown this once."""
    key = "vkey_" + secrets.token_urlsafe(32)
    await call(pool, _CREATE, (workspace_id, name, hash_of(key), access, actor))
    return key


async def list_keys(pool: Pool, workspace_id: str | None) -> list[dict[str, Any]]:
    return await call(
        pool,
        "select workspace_id, key_id, name, access, created_at, last_used_at, revoked_at from core.api_keys"
        " where %s::text is null or workspace_id = %s order by 1, created_at",
        (workspace_id, workspace_id),
    )


async def revoke_key(
    pool: Pool, key_id: str | UUID, *, workspace_id: str | None = None, actor: str = "vestnik"
) -> None:
    if not await call(pool, _REVOKE, (str(key_id), workspace_id, workspace_id, actor)):
        raise NotFound(f"no API key {key_id} that is in use")


async def key_of(pool: Pool, key: str) -> Caller | None:
    """The workspace that a key opens, and for what; notes its use, at most once a minute."""
    found = await call(
        pool,
        "select k.key_id, k.workspace_id, k.name, k.access,"
        " coalesce(k.last_used_at < now() - interval '1 minute', true) as stale"
        " from core.api_keys k join core.workspaces w on w.workspace_id = k.workspace_id"
        " where k.key_hash = %s and k.revoked_at is null and w.status <> 'disabled'",
        (hash_of(key),),
    )
    if not found:
        return None
    row = found[0]
    if row["stale"]:
        await call(pool, "update core.api_keys set last_used_at = now() where key_id = %s", (row["key_id"],))
    return Caller(row["workspace_id"], f"apikey {row['name']}", KEY_RIGHTS[row["access"]])


def hash_of(token: str) -> str:
    """Of something random and long: what people think up needs more than this."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


_CREATE = """
with made as (
    insert into core.api_keys (key_id, workspace_id, name, key_hash, access)
    values (core.uuid7(now()), %s, %s, %s, %s) returning key_id, workspace_id, name, access
)
select key_id, core.note_change(workspace_id, %s, 'apikey_created', 'apikey ' || name,
           jsonb_build_object('key_id', key_id, 'access', access)) from made
"""
_REVOKE = """
with gone as (
    update core.api_keys set revoked_at = now()
    where key_id = %s and revoked_at is null and (%s::text is null or workspace_id = %s)
    returning key_id, workspace_id, name
)
select core.note_change(workspace_id, %s, 'apikey_revoked', 'apikey ' || name, jsonb_build_object('key_id', key_id)) from gone
"""
