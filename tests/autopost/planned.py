"""What an operator does to posts that wait, and what waits."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from conftest import Autopost

Rows = list[dict[str, Any]]
OFFICE: dict[str, Any] = {"daily": [["09:00", "18:00"]]}
NIGHT: dict[str, Any] = {"daily": [["22:00", "02:00"]]}


def clock(hour: int, minute: int = 0, day: int = 1) -> datetime:
    return datetime(2027, 3, day, hour, minute, tzinfo=UTC)


def post(text: str, at: datetime | None = None, **more: Any) -> dict[str, Any]:
    return {"text": text, **({"scheduled_for": at.isoformat()} if at else {}), **more}


async def push_at(workspace: Autopost, text: str, at: datetime | None = None, **more: Any) -> UUID:
    found: UUID = (await workspace.push(post(text, at, **more)))["message_id"]
    return found


async def cancel(workspace: Autopost, message_id: UUID, *channels: str, reason: str = "why") -> dict[str, str]:
    rows: Rows = await workspace.sql(
        "select * from autopost.cancel_deliveries(%s, 'anna', %s, %s, null, %s, %s)",
        workspace.workspace, reason, message_id, list(channels) or None, workspace.now,
    )  # fmt: skip
    return {row["channel_id"]: row["outcome"] for row in rows}


async def move(workspace: Autopost, message_id: UUID, at: datetime | None, *channels: str) -> dict[str, Any]:
    """The outcome and the moment of each channel."""
    rows: Rows = await workspace.sql(
        "select * from autopost.reschedule_deliveries(%s, 'anna', 'why', %s, %s, null, %s, %s)",
        workspace.workspace, at, message_id, list(channels) or None, workspace.now,
    )  # fmt: skip
    return {row["channel_id"]: (row["outcome"], row["goes_at"]) for row in rows}


async def replace(workspace: Autopost, message_id: UUID, raw: dict[str, Any]) -> Any:
    return (await workspace.sql(
        "select * from autopost.replace_message(%s, 'anna', %s, %s, %s)",
        workspace.workspace, message_id, Jsonb(raw), workspace.now,
    ))[0]  # fmt: skip


async def begins_at(workspace: Autopost, moment: datetime) -> list[str]:
    """The texts that begin when a dispatcher looks at this moment."""
    workspace.now = moment
    return [row["rendered_text"] for row in await workspace.take()]


async def goes_exactly_at(workspace: Autopost, moment: datetime, text: str) -> None:
    """Not a microsecond before."""
    assert await begins_at(workspace, moment.replace(microsecond=0) - _A_BIT) == []
    assert await begins_at(workspace, moment) == [text]


_A_BIT = datetime.resolution
