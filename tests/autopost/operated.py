"""What an operator does by hand, by the SQL functions; and the rows that it leaves, without what differs between twins."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from psycopg import AsyncClientCursor
from runbook import as_psycopg, at_any_time, statements
from sends import BUSY

if TYPE_CHECKING:
    from conftest import Autopost

OPERATOR, REASON = "olga", "drill"
_IDS = {"workspace_id", "id", "delivery_id", "message_id", "trace_id", "enqueue_batch_id", "payload_ref", "created_at"}
_NAMES_ROWS = {"trace_id", "idempotency_key", "run_id", "delivery_id"}


async def requeue(
    workspace: Autopost, *delivery_ids: UUID, operator: str = OPERATOR
) -> dict[UUID, tuple[str, str | None]]:
    """The outcome of each, and why it was refused."""
    rows = await workspace.sql(
        "select * from autopost.requeue_deliveries(%s, %s, %s, %s, %s)",
        workspace.workspace, operator, REASON, list(delivery_ids), workspace.now,
    )  # fmt: skip
    return {row["delivery_id"]: (row["outcome"], row["detail"]) for row in rows}


async def do(workspace: Autopost, function: str, *arguments: Any) -> list[Any]:
    """An operation on channels; what it returns."""
    places = ", ".join(["%s"] * (3 + len(arguments)))
    rows = await workspace.sql(
        f"select x.* from autopost.{function}({places}, p_now => %s) x",
        workspace.workspace, OPERATOR, REASON, *arguments, workspace.now,
    )  # fmt: skip
    return [next(iter(row.values())) for row in rows]


async def release_stuck(workspace: Autopost, limit: int = 1000, **age: float) -> list[Any]:
    return await workspace.sql(
        "select * from autopost.release_stuck(%s, %s, %s, %s, %s)",
        workspace.workspace, OPERATOR, timedelta(**age or {"minutes": 10}), limit, workspace.now,
    )  # fmt: skip


async def credential(workspace: Autopost, auth_ref: str, platform: str = "telegram") -> None:
    await workspace.sql(
        "insert into core.credential_bindings (workspace_id, platform, auth_ref, secret) values (%s, %s, %s, '\\x00')",
        workspace.workspace, platform, auth_ref,
    )  # fmt: skip


async def switch_auth(
    workspace: Autopost, channel_id: str, auth_ref: str, group: str | None = None, drained: Any = None
) -> Any:
    drained = drained or {"drained_until": None, "paused_before": None}
    return (await workspace.sql(
        "select * from autopost.switch_auth(%s, %s, null, %s, %s, %s, %s, %s, %s)",
        workspace.workspace, OPERATOR, channel_id, auth_ref, group,
        drained["drained_until"], drained["paused_before"], workspace.now,
    ))[0]  # fmt: skip


async def drain(workspace: Autopost, channel_id: str, **duration: float) -> Any:
    return (await workspace.sql(
        "select * from autopost.drain_channel(%s, %s, %s, %s, %s)",
        workspace.workspace, OPERATOR, channel_id, timedelta(**duration or {"minutes": 2}), workspace.now,
    ))[0]  # fmt: skip


async def as_printed(workspace: Autopost, section: int, **arguments: Any) -> None:
    """The specification's own SQL, at the moment of the workspace."""
    known = {"workspace_id": workspace.workspace, "operator": OPERATOR, "reason": REASON, "now": workspace.now}
    async with AsyncClientCursor(workspace.connection) as cursor:
        for statement in statements(section):
            await cursor.execute(as_psycopg(at_any_time(statement)).encode(), known | arguments)


async def gave_up(workspace: Autopost, text: str = "hello") -> UUID:
    """A dead delivery of a channel of its own."""
    await workspace.policy(max_attempts=1)
    await workspace.channel("a")
    await workspace.push(text)
    (row,) = await workspace.take()
    assert await workspace.retry(row["delivery_id"], BUSY, row["lease"]) == "dead"
    found: UUID = row["delivery_id"]
    return found


async def left_behind(workspace: Autopost) -> dict[str, Any]:
    """The rows and events of a workspace, as its twin should have them."""
    texts = {row["delivery_id"]: row["rendered_text"] for row in await workspace.deliveries()}
    first = await workspace.value("select min(ts) from autopost.events where workspace_id = %s", workspace.workspace)
    found: dict[str, Any] = {}
    for table, order in (
        ("deliveries", "channel_id, rendered_text"), ("channels", "channel_id"), ("channel_auth", "channel_id"),
        ("platform_limits", "platform, rate_group"), ("events", "ts, action, channel_id"),
    ):  # fmt: skip
        rows = await workspace.sql(
            f"select * from autopost.{table} where workspace_id = %s order by {order}", workspace.workspace
        )
        found[table] = [_without_names(row, texts) for row in rows]
        for row in found[table]:
            if not first <= row.get("updated_at", first) <= workspace.now:
                del row["updated_at"]  # nobody has touched it since it was made, by the server's clock
    found["events"].sort(key=lambda row: (row["ts"], row["action"], row["channel_id"] or "", row["of"] or ""))
    return found


def _without_names(row: dict[str, Any], texts: dict[UUID, str]) -> dict[str, Any]:
    kept = {key: value for key, value in row.items() if key not in _IDS}
    if isinstance(row.get("meta"), dict):
        kept["meta"] = {key: value for key, value in row["meta"].items() if key not in _NAMES_ROWS}
    return kept | {"of": texts.get(row.get("delivery_id"))}  # type: ignore[arg-type]
