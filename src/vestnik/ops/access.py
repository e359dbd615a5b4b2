"""API keys: who may act on a workspace from outside. Only the hash of a key is kept."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Any

from vestnik.db.pool import Pool, call
from vestnik.errors import NotFound


@dataclass(frozen=True, slots=True)
class Key:
    """Who asks: ``name`` is what the log of operations will say."""

    workspace_id: str
    name: str
    access: str


async def create_key(pool: Pool, workspace_id: str, name: str, access: str = "read") -> str:
    """The key is shown this once."""
    key = "vkey_" + secrets.token_urlsafe(32)
    await call(
        pool,
        "insert into core.api_keys (key_id, workspace_id, name, key_hash, access)"
        " values (core.uuid7(now()), %s, %s, %s, %s)",
        (workspace_id, name, _hash(key), access),
    )
    return key


async def list_keys(pool: Pool, workspace_id: str | None) -> list[dict[str, Any]]:
    return await call(
        pool,
        "select workspace_id, key_id, name, access, created_at, last_used_at, revoked_at from core.api_keys"
        " where %s::text is null or workspace_id = %s order by 1, created_at",
        (workspace_id, workspace_id),
    )


async def revoke_key(pool: Pool, key_id: str) -> None:
    query = "update core.api_keys set revoked_at = now() where key_id = %s and revoked_at is null returning 1"
    if not await call(pool, query, (key_id,)):
        raise NotFound(f"no API key {key_id} that is in use")


async def key_of(pool: Pool, key: str) -> Key | None:
    """The workspace that a key opens, and for what; notes its use, at most once a minute."""
    found = await call(
        pool,
        "select k.key_id, k.workspace_id, k.name, k.access,"
        " coalesce(k.last_used_at < now() - interval '1 minute', true) as stale"
        " from core.api_keys k join core.workspaces w on w.workspace_id = k.workspace_id"
        " where k.key_hash = %s and k.revoked_at is null and w.status <> 'disabled'",
        (_hash(key),),
    )
    if not found:
        return None
    row = found[0]
    if row["stale"]:
        await call(pool, "update core.api_keys set last_used_at = now() where key_id = %s", (row["key_id"],))
    return Key(row["workspace_id"], f"apikey {row['name']}", row["access"])


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
