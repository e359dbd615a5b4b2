"""The live proof and the integrity job, page by page, and ways to break what they watch over."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conftest import Autopost


async def prove(workspace: Autopost, page: int = 5000) -> list[dict[str, Any]]:
    """All that one run of the proof finds."""
    found: list[dict[str, Any]] = []
    last = False
    while not last:
        (row,) = await workspace.sql(
            "select * from autopost.prove_page(%s, %s, p_now => %s)", workspace.workspace, page, workspace.now
        )
        found += row["troubles"]
        last = row["is_last"]
    await workspace.sql("select autopost.tell_findings(%s, 'proof', %s)", workspace.workspace, workspace.now)
    return found


async def check(workspace: Autopost, page: int = 5000, **kept: str) -> list[dict[str, Any]]:
    """All that one round of the integrity job finds."""
    found: list[dict[str, Any]] = []
    ended = False
    while not ended:
        (row,) = await workspace.sql(
            "select * from autopost.check_page(%s, %s, %s, %s)",
            workspace.workspace, page, kept.get("kept", "90 days"), workspace.now,
        )  # fmt: skip
        found += row["troubles"]
        ended = row["pass_ended"]
    await workspace.sql("select autopost.tell_findings(%s, 'integrity', %s)", workspace.workspace, workspace.now)
    return found


async def kinds(workspace: Autopost) -> list[str]:
    return sorted(trouble["kind"] for trouble in await prove(workspace))


@asynccontextmanager
async def unguarded(workspace: Autopost) -> AsyncIterator[None]:
    """Neither the guard nor a foreign key: as if a restore or a hand in the files had done it."""
    async with workspace.connection.transaction():
        await workspace.sql("alter table autopost.deliveries disable trigger deliveries_guard")
        await workspace.sql("alter table autopost.deliveries drop constraint deliveries_workspace_id_message_id_fkey")
        yield
        await workspace.sql("alter table autopost.deliveries enable trigger deliveries_guard")
        await workspace.sql(
            "alter table autopost.deliveries add constraint deliveries_workspace_id_message_id_fkey"
            " foreign key (workspace_id, message_id) references autopost.messages not valid"
        )


async def rewrite(workspace: Autopost, delivery: Any, **columns: Any) -> None:
    """A row becomes what no function would make of it."""
    async with unguarded(workspace):
        sets = ", ".join(f"{name} = %s" for name in columns)
        await workspace.sql(
            f"update autopost.deliveries set {sets} where workspace_id = %s and delivery_id = %s",
            *columns.values(), workspace.workspace, delivery["delivery_id"],
        )  # fmt: skip


async def forge(workspace: Autopost, delivery: Any, action: str, *, attempt: int = 1, after: float = 0) -> Any:
    """One more event, so many seconds from now."""
    return await workspace.value(
        "insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, attempt)"
        " select workspace_id, gen_random_uuid(), delivery_id, message_id, channel_id, %s + make_interval(secs => %s), %s, %s"
        " from autopost.deliveries where workspace_id = %s and delivery_id = %s returning id",
        workspace.now, after, action, attempt, workspace.workspace, delivery["delivery_id"],
    )  # fmt: skip


async def unsay(workspace: Autopost, delivery: Any, action: str) -> None:
    await workspace.sql(
        "delete from autopost.events where workspace_id = %s and delivery_id = %s and action = %s",
        workspace.workspace, delivery["delivery_id"], action,
    )  # fmt: skip


async def alert(workspace: Autopost, name: str) -> Any:
    """The alert that is on, or None."""
    found = await workspace.sql(
        "select * from ops.alerts where workspace_id = %s and alert = %s and cleared_at is null",
        workspace.workspace, name,
    )  # fmt: skip
    return found[0] if found else None
