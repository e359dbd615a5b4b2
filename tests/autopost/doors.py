"""Endpoints, and requests that come in through them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conftest import Autopost


async def door(workspace: Autopost, endpoint_id: str = "door", **columns: Any) -> str:
    """An endpoint with a secret that no other workspace has."""
    secret_hash = columns.pop("secret_hash", f"{workspace.workspace}/{endpoint_id}")
    return await workspace.endpoint(endpoint_id, secret_hash=secret_hash, **columns)


async def opened_by(workspace: Autopost, secret_hash: str, kind: str = "webhook_push") -> list[tuple[str, str]]:
    rows = await workspace.sql("select * from autopost.resolve_endpoint(%s, %s)", kind, secret_hash)
    return [(row["workspace_id"], row["endpoint_id"]) for row in rows]


async def admit(workspace: Autopost, count: int = 1, endpoint_id: str = "door") -> int:
    return await workspace.value(
        "select autopost.ingress_admit(%s, %s, %s, %s)", workspace.workspace, endpoint_id, count, workspace.now
    )


async def retry_after(workspace: Autopost) -> float:
    return await workspace.value(
        "select extract(epoch from autopost.ingress_retry_after(%s, 'door', %s))::float8",
        workspace.workspace,
        workspace.now,
    )


async def arrive(workspace: Autopost, *payloads: dict[str, Any], endpoint: str = "door") -> list[str]:
    return [row["outcome"] for row in await workspace.push_batch(*payloads, endpoint=endpoint, gated=True)]


async def refuse(workspace: Autopost, action: str, reason: str, count: int = 1) -> None:
    await workspace.sql(
        "select autopost.record_refusals(%s, 'door', %s, %s, %s, %s)",
        workspace.workspace, action, reason, count, workspace.now,
    )  # fmt: skip


async def rotate(workspace: Autopost, endpoint_id: str, secret_hash: str) -> str:
    return await workspace.value(
        "select autopost.rotate_endpoint(%s, %s, %s, %s)", workspace.workspace, endpoint_id, secret_hash, workspace.now
    )
