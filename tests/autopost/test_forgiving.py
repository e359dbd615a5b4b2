"""What a channel was refused for is mended: it goes on at once, and says who let it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from answers import FORBIDDEN, channels, fails, under_way

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16
GRACE = timedelta(seconds=10)  # how long a dispatcher may still know the old token


async def refused(workspace: Autopost, count: int = 1, **columns: Any) -> None:
    """All of them are paused."""
    await channels(workspace, count, **columns)
    for row in (await under_way(workspace, "refused")).values():
        await fails(workspace, row, FORBIDDEN)


async def forgive(workspace: Autopost, *channel_ids: str) -> list[str]:
    rows = await workspace.sql(
        "select f from autopost.forgive_channels(%s, 'apply', 'another target', %s, %s, %s) f",
        workspace.workspace, list(channel_ids), workspace.now, workspace.now,
    )  # fmt: skip
    return [row["f"] for row in rows]


async def new_token(workspace: Autopost, auth_ref: str = "bot") -> list[str]:
    rows = await workspace.sql(
        "select f from autopost.forgive_credential(%s, 'apply', 'telegram', %s, %s) f",
        workspace.workspace, auth_ref, workspace.now,
    )  # fmt: skip
    return [row["f"] for row in rows]


async def test_a_channel_that_is_mended_goes_on_at_once(workspace: Autopost) -> None:
    await refused(workspace, 2)
    workspace.wait(seconds=1)
    assert await forgive(workspace, "c1") == ["c1"]
    channel = await workspace.channel_row("c1")
    assert (channel["error_streak"], channel["paused_until"]) == (0, None)
    assert list(await under_way(workspace, "next")) == ["c1"]
    (event,) = await workspace.events("channel_enabled")
    assert (event["channel_id"], event["result"]) == ("c1", "ok")
    assert event["meta"] == {"operator": "apply", "reason": "another target", "error_streak": 1}
    assert await forgive(workspace, "c1") == [], "once"


async def test_a_new_token_counts_when_nobody_knows_the_old_one_any_more(workspace: Autopost) -> None:
    """A dispatcher that reads its tokens every few seconds would be refused again, and the channel paused anew."""
    await refused(workspace, 1)
    await workspace.channel("other", auth_ref="other bot")
    workspace.wait(seconds=1)
    assert await new_token(workspace) == ["c1"]
    assert (await workspace.channel_row("c1"))["paused_until"] == workspace.now + GRACE
    assert list(await under_way(workspace, "next")) == ["other"]
    waiting = "select delivery_id from autopost.deliveries where workspace_id = %s and status = 'queued'"
    delivery_id = await workspace.value(waiting, workspace.workspace)
    why = "select detail from autopost.why_delivery(%s, %s, %s)"
    detail = await workspace.value(why, workspace.workspace, delivery_id, workspace.now)
    assert detail == "channel c1 is paused: it goes on with a new token"
    workspace.wait(seconds=10)
    (row,) = await workspace.take()
    assert row["channel_id"] == "c1"


async def test_what_began_with_the_old_token_does_not_pause_the_channel_again(workspace: Autopost) -> None:
    await refused(workspace)
    workspace.wait(hours=1)
    row = (await under_way(workspace, "begun with the old one"))["c1"]
    workspace.wait(seconds=1)
    assert await new_token(workspace) == ["c1"]
    workspace.wait(seconds=1)
    await fails(workspace, row, FORBIDDEN)
    channel = await workspace.channel_row()
    assert (channel["error_streak"], channel["paused_until"] <= workspace.now) == (0, True)


async def test_the_binding_of_a_channel_says_whose_token_it_uses(workspace: Autopost) -> None:
    await refused(workspace, 2)
    await workspace.sql(
        "insert into autopost.channel_auth (workspace_id, channel_id, auth_ref) values (%s, 'c2', 'mine')",
        workspace.workspace,
    )
    assert await new_token(workspace, "mine") == ["c2"]
    assert await new_token(workspace) == ["c1"]


async def test_a_pause_by_hand_and_a_disabled_channel_stay(workspace: Autopost) -> None:
    await refused(workspace, 1)
    until = workspace.now + timedelta(hours=2)
    await workspace.channel("by hand", paused_until=until)
    await workspace.sql("update autopost.channels set enabled = false where workspace_id = %s and channel_id = 'c1'",
                        workspace.workspace)  # fmt: skip
    assert await new_token(workspace) == []
    assert (await workspace.channel_row("by hand"))["paused_until"] == until
    assert (await workspace.channel_row("c1"))["error_streak"] == 1
