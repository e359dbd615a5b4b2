"""Another credential for a channel: refused while something is being sent, and without a trace of the old one afterwards."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from answers import FORBIDDEN
from operated import credential, do, drain, switch_auth
from sends import begun, refused

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16


@pytest.fixture
async def shop(workspace: Autopost) -> Autopost:
    """Channel ``c1`` of ``bot``; ``new`` is a credential too."""
    await workspace.channel(max_parallel=2)
    await credential(workspace, "new")
    return workspace


async def end_drain(workspace: Autopost, drained: Any) -> bool:
    return bool(await workspace.value(
        "select autopost.end_drain(%s, 'olga', 'c1', %s, %s, %s)",
        workspace.workspace, drained["drained_until"], drained["paused_before"], workspace.now,
    ))  # fmt: skip


async def paused_until(workspace: Autopost) -> Any:
    return (await workspace.channel_row())["paused_until"]


async def test_what_begins_next_has_the_new_credential(shop: Autopost) -> None:
    await shop.push("one")
    assert [row["auth_ref"] for row in await shop.take()] == ["bot"]
    (row,) = await shop.deliveries()
    await shop.sent(row["delivery_id"], 1)
    assert await switch_auth(shop, "c1", "new") == {"outcome": "rotated", "old_auth_ref": "bot", "sending": 0}
    await shop.push("two")
    assert [row["auth_ref"] for row in await shop.take()] == ["new"]
    assert (
        await shop.value("select auth_ref from autopost.channel_auth where workspace_id = %s", shop.workspace) == "new"
    )


async def test_while_something_is_being_sent_it_is_refused_and_nothing_changes(shop: Autopost) -> None:
    await shop.push_batch({"text": "one"}, {"text": "two"})
    assert len(await shop.take()) == 2
    before = await shop.channel_row()
    assert await switch_auth(shop, "c1", "new") == {"outcome": "sending", "old_auth_ref": "bot", "sending": 2}
    assert await shop.channel_row() == before
    assert await shop.events("auth_rotated") == []


async def test_a_drain_lets_nothing_begin_and_ends_with_the_switch(shop: Autopost) -> None:
    row = await begun(shop, "one")
    drained = await drain(shop, "c1")
    await shop.push("two")
    assert await shop.take() == []
    await shop.sent(row["delivery_id"], row["lease"])
    shop.wait(seconds=5)
    assert (await switch_auth(shop, "c1", "new", drained=drained))["outcome"] == "rotated"
    assert [row["auth_ref"] for row in await shop.take()] == ["new"]
    told = [(event["action"], event["meta"].get("reason")) for event in await shop.events(
        "channel_paused", "channel_enabled", "auth_rotated")]  # fmt: skip
    assert sorted(told, key=str) == [
        ("auth_rotated", None), ("channel_enabled", "its credential is no longer being rotated"),
        ("channel_paused", "its credential is being rotated"),
    ]  # fmt: skip


async def test_a_drain_that_nobody_ends_is_over_by_itself(shop: Autopost) -> None:
    await drain(shop, "c1", minutes=2)
    await shop.push("hello")
    shop.wait(minutes=2)
    assert [row["auth_ref"] for row in await shop.take()] == ["bot"]


@pytest.mark.parametrize("deed", ["switch", "give up"])
@pytest.mark.parametrize(("seconds", "stays"), [(30, True), (3600, True), (1, False)])
async def test_a_pause_that_somebody_else_made_is_left_alone(
    shop: Autopost, deed: str, seconds: int, stays: bool
) -> None:
    """A shorter one goes on when the drain ends, if it is not over; a longer one was never touched."""
    theirs = (await do(shop, "pause_channel", "c1", timedelta(seconds=seconds)))[0]
    drained = await drain(shop, "c1", minutes=2)
    assert await paused_until(shop) == max(theirs, shop.now + timedelta(minutes=2))
    shop.wait(seconds=2)
    if deed == "switch":
        await switch_auth(shop, "c1", "new", drained=drained)
    else:
        assert await end_drain(shop, drained) == (seconds < 120)
    assert await paused_until(shop) == (theirs if stays else None)


async def test_a_pause_made_during_the_drain_is_left_alone(shop: Autopost) -> None:
    drained = await drain(shop, "c1")
    shop.wait(seconds=1)
    (theirs,) = await do(shop, "pause_channel", "c1", "2 hours")
    await switch_auth(shop, "c1", "new", drained=drained)
    assert await paused_until(shop) == theirs
    assert not await end_drain(shop, drained)


async def test_what_the_old_credential_was_refused_for_holds_nothing_back(shop: Autopost) -> None:
    row = await begun(shop, "one")
    await shop.fail(row["delivery_id"], FORBIDDEN, row["lease"])
    shop.wait(seconds=1)
    await switch_auth(shop, "c1", "new")
    channel = await shop.channel_row()
    assert (channel["paused_until"], channel["error_streak"]) == (None, 0)


async def test_a_new_group_keeps_the_rate_of_the_old_one(shop: Autopost) -> None:
    await shop.push("one")
    await shop.take()
    await shop.sql("update autopost.platform_limits set rate_rps = 7 where workspace_id = %s", shop.workspace)
    (row,) = await shop.deliveries()
    await shop.sent(row["delivery_id"], 1)
    await switch_auth(shop, "c1", "new", "group-of-new")
    assert (await shop.channel_row())["rate_group"] == "group-of-new"
    rates = await shop.sql(
        "select rate_group, rate_rps from autopost.platform_limits where workspace_id = %s", shop.workspace
    )
    assert {row["rate_group"]: row["rate_rps"] for row in rates} == {"bot": 7, "group-of-new": 7}


async def test_a_group_that_is_there_keeps_its_own_rate(shop: Autopost) -> None:
    await shop.sql(
        "insert into autopost.platform_limits (workspace_id, platform, rate_group, rate_rps) values (%s, 'telegram', 'g', 3)",
        shop.workspace,
    )
    await switch_auth(shop, "c1", "new", "g")
    rates = "select rate_rps from autopost.platform_limits where workspace_id = %s and rate_group = 'g'"
    assert await shop.value(rates, shop.workspace) == 3


async def test_the_same_once_more_changes_nothing(shop: Autopost) -> None:
    await switch_auth(shop, "c1", "new")
    shop.wait(seconds=1)
    assert await switch_auth(shop, "c1", "new") == {"outcome": "unchanged", "old_auth_ref": "new", "sending": 0}
    assert len(await shop.events("auth_rotated")) == 1
    assert (await switch_auth(shop, "c1", "new", "g"))["outcome"] == "rotated", "another group is a change"


async def test_without_the_channel_or_the_credential_nothing_changes(shop: Autopost) -> None:
    await credential(shop, "max-bot", "max")
    await begun(shop)
    await refused(
        shop, "VN001", switch_auth(shop, "c2", "new"), switch_auth(shop, "c1", "missing"), switch_auth(shop, "c1", "max-bot"),
        drain(shop, "c2"),
    )  # fmt: skip
    check = "select autopost.require_credential(%s, %s, 'new')"
    await shop.sql(check, shop.workspace, ["c1"])
    with pytest.raises(Exception, match="no channel c2 in workspace"):
        await shop.sql(check, shop.workspace, ["c1", "c2"])


async def test_the_channels_of_a_credential_are_those_that_send_with_it(shop: Autopost) -> None:
    for channel_id, platform in (("c2", "telegram"), ("c3", "max")):
        await shop.channel(channel_id, platform=platform)
    await switch_auth(shop, "c1", "new")
    query = "select c from autopost.channels_with_auth(%s, %s, %s) c"
    for auth_ref, platform, expected in (
        ("bot", None, ["c2", "c3"]),
        ("bot", "max", ["c3"]),
        ("new", None, ["c1"]),
        ("x", None, []),
    ):
        assert [row["c"] for row in await shop.sql(query, shop.workspace, auth_ref, platform)] == expected
