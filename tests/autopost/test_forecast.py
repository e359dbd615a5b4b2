"""The forecast against what a drain really does: the real functions, at the moments of their own."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from drained import drain
from planned import NIGHT, OFFICE, clock
from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16


async def forecast(workspace: Autopost, post: dict[str, Any] | str = "new") -> dict[str, Any]:
    rows = await workspace.sql(
        "select * from autopost.forecast(%s, %s, %s)",
        workspace.workspace, Jsonb({"text": post} if isinstance(post, str) else post), workspace.now,
    )  # fmt: skip
    return {row["channel_id"]: row for row in rows}


async def drained(workspace: Autopost, text: str = "new") -> dict[str, datetime]:
    """When the sends of one post begin, by channel."""
    return {row["channel_id"]: at for at, row in await drain(workspace) if row["rendered_text"] == text}


async def backlog(workspace: Autopost, count: int, *channels: str) -> None:
    workspace.wait(seconds=-count)
    for n in range(count):
        await workspace.push({"text": f"{channels} {n}", "channels": list(channels)})
        workspace.wait(seconds=1)


async def holds(workspace: Autopost, tolerance: float, post: dict[str, Any] | str = "new") -> dict[str, float]:
    """What was foreseen is what happens, within so many seconds; returns the seconds from now at which it happened."""
    foreseen = await forecast(workspace, post)
    since = workspace.now
    await workspace.push(post)
    happened = await drained(workspace)
    told = {name: row["leaves_at"] for name, row in foreseen.items() if row["outcome"] == "enqueued"}
    assert told.keys() == happened.keys()
    wrong = {
        name: ((told[name] - since).total_seconds(), (happened[name] - since).total_seconds())
        for name in told
        if abs((told[name] - happened[name]).total_seconds()) > tolerance
    }
    assert not wrong, f"foreseen and happened: {wrong}"
    return {name: (at - since).total_seconds() for name, at in happened.items()}


async def group_rate(workspace: Autopost, rate: float, group: str = "bot") -> None:
    await workspace.sql(
        "insert into autopost.platform_limits (workspace_id, platform, rate_group, rate_rps) values (%s, 'telegram', %s, %s)",
        workspace.workspace, group, rate,
    )  # fmt: skip


async def test_nothing_in_the_way_is_now(workspace: Autopost) -> None:
    await workspace.channel()
    assert await holds(workspace, 0) == {"c1": 0}


async def test_a_backlog_at_the_channels_own_rate(workspace: Autopost) -> None:
    await workspace.channel("slow", rate_rps=0.5)
    await workspace.channel("fast", rate_rps=2)
    await backlog(workspace, 12, "slow", "fast")
    assert {name: row["ahead"] for name, row in (await forecast(workspace)).items()} == {"slow": 12, "fast": 12}
    assert await holds(workspace, 0.1) == pytest.approx({"slow": 24, "fast": 6}, abs=0.1)


async def test_a_ceiling_that_several_channels_share(workspace: Autopost) -> None:
    """Ten channels of one a second under a ceiling of two: five seconds a round."""
    await group_rate(workspace, 2)
    for n in range(10):
        await workspace.channel(f"c{n}", rate_rps=1)
    await backlog(workspace, 4, *(f"c{n}" for n in range(10)))
    happened = await holds(workspace, 5)
    assert max(happened.values()) == pytest.approx(24.5, abs=1)


async def test_a_ceiling_shared_with_a_channel_that_this_post_is_not_for(workspace: Autopost) -> None:
    await group_rate(workspace, 1)
    await workspace.channel("mine")
    await workspace.channel("busy", route_filter={"include_any": ["x"]})
    workspace.wait(seconds=-1)
    for n in range(20):
        await workspace.push({"text": f"other {n}", "tags": ["x"], "channels": ["busy"]})
    workspace.wait(seconds=1)
    await backlog(workspace, 6, "mine")
    (at,) = (await holds(workspace, 4)).values()
    assert at > 8, "they take turns"


async def test_under_a_ceiling_the_oldest_go_first_in_whichever_channel(workspace: Autopost) -> None:
    await group_rate(workspace, 2)
    for n in range(8):
        await workspace.channel(f"c{n}", rate_rps=1)
    await backlog(workspace, 5, *(f"c{n}" for n in range(8)))
    await backlog(workspace, 10, "c3")
    happened = await holds(workspace, 5)
    assert min(happened.values()) > 20, "forty are older"


async def test_a_window_that_closes_before_it_is_its_turn(workspace: Autopost) -> None:
    """Ten minutes of the evening are left, and twenty minutes' worth waits."""
    workspace.now = clock(17, 50)
    await workspace.channel("office", rate_rps=1 / 60, window_mode="windowed", posting_window=OFFICE)
    await backlog(workspace, 20, "office")
    happened = await holds(workspace, 61)
    assert happened["office"] == pytest.approx((clock(9, 10, day=2) - clock(17, 50)).total_seconds(), abs=61)


async def test_a_window_that_is_closed_now(workspace: Autopost) -> None:
    await workspace.channel("night", window_mode="windowed", posting_window=NIGHT, rate_rps=1)
    await backlog(workspace, 3, "night")
    assert await holds(workspace, 1) == pytest.approx({"night": 10 * 3600 + 3}, abs=1)


async def test_pauses_and_cooldowns_put_it_off(workspace: Autopost) -> None:
    for n, column in enumerate(("paused_until", "cooldown_until")):
        await workspace.channel(f"c{n}", **{column: workspace.now + timedelta(minutes=n + 1)}, rate_rps=1)
    await backlog(workspace, 2, "c0", "c1")
    assert await holds(workspace, 1) == pytest.approx({"c0": 62, "c1": 122}, abs=1)


async def test_the_posts_that_wait_for_their_hour_go_before_it_when_it_waits_for_a_later_one(
    workspace: Autopost,
) -> None:
    await workspace.channel(rate_rps=0.1)
    for n in range(5):
        await workspace.push({"text": f"planned {n}", "scheduled_for": clock(15).isoformat()})
        workspace.wait(seconds=1)
    foreseen = await forecast(workspace)
    assert (foreseen["c1"]["ahead"], foreseen["c1"]["leaves_at"]) == (0, workspace.now)
    at = {"text": "new", "scheduled_for": clock(15).isoformat()}
    assert (await forecast(workspace, at))["c1"]["ahead"] == 5
    assert await holds(workspace, 1, at) == pytest.approx({"c1": 3 * 3600 + 45}, abs=1)


async def test_a_retry_that_is_due_before_it_goes_first(workspace: Autopost) -> None:
    await workspace.policy(backoff_jitter=0, backoff_base="4 seconds")
    await workspace.channel(rate_rps=1)
    await backlog(workspace, 8, "c1")
    (row,) = await workspace.take()
    await workspace.retry(row["delivery_id"], {"code": "500"}, row["lease"])
    assert await holds(workspace, 2) == pytest.approx({"c1": 8}, abs=2)


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_the_queue_the_forecast_is_near(workspace: Autopost, seed: int) -> None:
    """Rates, ceilings, backlogs, pauses and hours at random. Near: within a tenth of the time, or a round of the group and a
    step. The last one always; which channel gets a place that a busy ceiling has left may be another one now and then."""
    chance = random.Random(seed)
    workspace.now = clock(8, 58)
    ceiling = chance.choice([0.5, 1, 3])
    await group_rate(workspace, ceiling)
    names = [f"c{n}" for n in range(chance.randint(2, 7))]
    for name in names:
        hours: dict[str, Any] = {"window_mode": "windowed", "posting_window": OFFICE} if chance.random() < 0.3 else {}
        pause = (
            {"paused_until": workspace.now + timedelta(seconds=chance.randint(5, 60))} if chance.random() < 0.3 else {}
        )
        await workspace.channel(name, rate_rps=chance.choice([None, 0.3, 1]), max_parallel=5, **hours, **pause)
    for name in names:
        await backlog(workspace, chance.randint(0, 12), name)
    foreseen = await forecast(workspace)
    since = workspace.now
    await workspace.push("new")
    happened = await drained(workspace)
    round_ = len(names) / ceiling + 1 / 0.3
    told, real = ({name: (at - since).total_seconds() for name, at in moments.items()}
                  for moments in ({name: row["leaves_at"] for name, row in foreseen.items()}, happened))  # fmt: skip
    assert max(told.values()) == pytest.approx(max(real.values()), rel=0.1, abs=round_)
    near = [name for name in names if told[name] == pytest.approx(real[name], rel=0.1, abs=round_)]
    assert len(near) * 2 >= len(names), (told, real)


async def test_who_never_gets_it_is_told_apart(workspace: Autopost) -> None:
    await workspace.channel("open")
    await workspace.channel("off", enabled=False)
    await workspace.channel("off-topic", enabled=False, route_filter={"include_any": ["sport"]})
    await workspace.channel("other", route_filter={"include_any": ["sport"]})
    await workspace.channel("halted", paused_until="infinity")
    await workspace.channel("narrow", platform="max", target_id="7")
    found = await forecast(workspace, "x" * 4050)
    assert {name: (row["outcome"], row["reason"]) for name, row in found.items()} == {
        "open": ("enqueued", None),
        "halted": ("never", "the channel is paused until somebody resumes it"),
        "narrow": ("refused", "text is too long: 4050 of 4000 characters"),
        "off": ("never", "the channel is disabled"),
        "off-topic": ("not_routed", "the channel is disabled"),
        "other": ("not_routed", "its route_filter wants one of sport, and the post has no tags"),
    }
    assert {name for name, row in found.items() if row["leaves_at"]} == {"open"}
    await workspace.push("x" * 4050)
    assert (await forecast(workspace, "x" * 4050))["open"]["outcome"] == "suppressed"
    await workspace.sql("update core.workspaces set status = 'paused' where workspace_id = %s", workspace.workspace)
    again = (await forecast(workspace))["open"]
    assert (again["outcome"], again["reason"], again["leaves_at"]) == ("never", "the workspace is paused", None)


async def test_a_forecast_keeps_nothing(workspace: Autopost) -> None:
    await workspace.channel(rate_rps=1)
    await backlog(workspace, 2, "c1")
    await forecast(workspace)
    before = await workspace.deliveries(), await workspace.channel_row(), await workspace.events()
    await forecast(workspace)
    assert before == (await workspace.deliveries(), await workspace.channel_row(), await workspace.events())
    assert await workspace.sql("select 1 from autopost.messages where workspace_id = %s and payload ->> 'text' = 'new'", workspace.workspace) == []  # fmt: skip


async def test_many_channels_with_backlogs_of_every_size_are_foreseen(workspace: Autopost) -> None:
    """More classes than are looked at one by one: backlogs are rounded."""
    await group_rate(workspace, 20)
    await workspace.sql(
        "insert into autopost.channels (workspace_id, channel_id, platform, target_id, auth_ref, rate_group, rate_rps)"
        " select %s, 'c' || n, 'telegram', n::text, 'bot', 'bot', 1 from generate_series(1, 300) n", workspace.workspace,
    )  # fmt: skip
    await workspace.push("one for all")
    await workspace.sql(
        "insert into autopost.deliveries (workspace_id, delivery_id, message_id, channel_id, content_hash, not_before, created_at)"
        " select d.workspace_id, gen_random_uuid(), d.message_id, d.channel_id, 'more', d.not_before, d.created_at"
        " from autopost.deliveries d, generate_series(2, substr(d.channel_id, 2)::integer) where d.workspace_id = %s", workspace.workspace,
    )  # fmt: skip
    found = await forecast(workspace)
    assert found["c300"]["ahead"] == 300
    total = (300 * 301 / 2 + 300) / 20
    last = (max(row["leaves_at"] for row in found.values()) - workspace.now).total_seconds()
    assert last == pytest.approx(total, rel=0.1)
    first = (min(row["leaves_at"] for row in found.values()) - workspace.now).total_seconds()
    assert first > total * 0.8, "all that waits in the group is older"
