"""Sends under way, and what there is to compare when a call must leave everything as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pytest

if TYPE_CHECKING:
    from conftest import Autopost

BAD = {"category": "PERMANENT", "scope": "delivery", "code": "400", "message": "cannot parse"}
BUSY = {"category": "TRANSIENT", "scope": "platform", "code": "503", "message": "come again"}


async def begun(workspace: Autopost, text: str = "hi") -> Any:
    """One delivery under way."""
    if not await workspace.sql("select 1 from autopost.channels where workspace_id = %s", workspace.workspace):
        await workspace.channel()
    await workspace.push(text)
    (row,) = await workspace.take()
    return row


async def begun_again(workspace: Autopost, delivery_id: UUID) -> Any:
    """Its lease is lost, it is swept, and begun once more."""
    workspace.wait(seconds=301)
    assert (await workspace.sweep())[0] == 1
    workspace.wait(minutes=1)
    (row,) = await workspace.take()
    assert (row["delivery_id"], row["lease"]) == (delivery_id, 2)
    return row


async def everything(workspace: Autopost) -> Any:
    """What a call that is refused must leave as it is."""
    return [
        await workspace.sql(
            f"select * from autopost.{table} where workspace_id = %s order by 1, 2, 3", workspace.workspace
        )
        for table in ("deliveries", "events", "channels", "platform_limits", "messages")
    ]


async def refused(workspace: Autopost, sqlstate: str, *calls: Any) -> None:
    """Each of the calls raises the named error and changes nothing."""
    before = await everything(workspace)
    for call in calls:
        with pytest.raises(psycopg.Error) as refusal:
            await call
        assert refusal.value.sqlstate == sqlstate
    assert await everything(workspace) == before
