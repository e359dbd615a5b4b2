"""What every act needs: a look from outside, and a word when it shows something else than it should."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vestnik.demo.stage import Failed, Stage

Say = Callable[[str], None]


async def deliveries(stage: Stage, message_id: str) -> list[dict[str, Any]]:
    return await stage.sql(
        "select delivery_id, channel_id, status, attempt from autopost.deliveries"
        " where workspace_id = %s and message_id = %s",
        stage.workspace,
        message_id,
    )


async def all_sent(stage: Stage, message_id: str, count: int, say: Say) -> bool:
    sent = [row for row in await deliveries(stage, message_id) if row["status"] == "sent"]
    say(f"{len(sent)} of {count} delivered")
    return len(sent) == count


async def settled(stage: Stage, message_id: str) -> bool:
    open_states = ("queued", "claimed", "sending", "retry")
    return not any(row["status"] in open_states for row in await deliveries(stage, message_id))


def expect(true: bool, otherwise: str) -> None:
    if not true:
        raise Failed(otherwise)
