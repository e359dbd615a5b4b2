"""What platforms answer, and how long channels and groups have to wait after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conftest import Autopost

LIMITED = {"scope": "platform", "code": "429", "message": "Too Many Requests", "retry_after_ms": 30000}
FORBIDDEN = {"scope": "channel", "code": "403", "message": "bot was kicked"}
REVOKED = {"scope": "platform", "code": "401", "message": "the account is suspended"}


async def channels(workspace: Autopost, count: int, **columns: Any) -> None:
    """Of one group, each with one post under way."""
    await workspace.policy(backoff_jitter=0)
    for n in range(1, count + 1):
        await workspace.channel(f"c{n}", **columns)


async def under_way(workspace: Autopost, text: str = "hi") -> dict[str, Any]:
    await workspace.push(text)
    return {row["channel_id"]: row for row in await workspace.take()}


async def fails(workspace: Autopost, row: Any, error: dict[str, Any]) -> str:
    return await workspace.fail(row["delivery_id"], error, row["lease"])


async def retries(workspace: Autopost, row: Any, error: dict[str, Any]) -> str:
    return await workspace.retry(row["delivery_id"], error, row["lease"])


async def cooldowns(workspace: Autopost) -> tuple[dict[str, float], float]:
    """Seconds that each channel, and the group, has to wait."""
    rows = await workspace.sql("select * from autopost.channels where workspace_id = %s", workspace.workspace)
    waits = {
        row["channel_id"]: (row["cooldown_until"] - workspace.now).total_seconds()
        for row in rows if row["cooldown_until"] and row["cooldown_until"] > workspace.now
    }  # fmt: skip
    return waits, await group_wait(workspace)


async def group_wait(workspace: Autopost, rate_group: str = "bot") -> float:
    (row,) = await workspace.sql(
        "select * from autopost.platform_limits where workspace_id = %s and rate_group = %s",
        workspace.workspace,
        rate_group,
    )
    until = row["cooldown_until"]
    return (until - workspace.now).total_seconds() if until and until > workspace.now else 0
