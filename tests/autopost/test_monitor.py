"""One call watches over a workspace: what is stuck comes back, what is wrong is an alert, what is right again is none."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb

pytestmark = pytest.mark.pg16

QUERY = "select * from autopost.monitor_workspace(%s, %s)"


async def monitor(workspace: Any) -> dict[str, Any]:
    """What is on, by its name."""
    return {row["alert"]: row for row in await workspace.sql(QUERY, workspace.workspace, workspace.now)}


async def limits(workspace: Any, **columns: Any) -> None:
    await workspace.sql("select ops.alert_policy_of(%s)", workspace.workspace)
    sets = ", ".join(f"{name} = %s" for name in columns)
    query = f"update ops.alert_policies set {sets} where workspace_id = %s"
    await workspace.sql(query, *columns.values(), workspace.workspace)


async def begun(workspace: Any, *texts: str) -> list[Any]:
    for text in texts:
        await workspace.push(text)
    return [row["delivery_id"] for row in await workspace.take()]


async def test_a_workspace_where_all_is_well_has_no_alert(workspace: Any) -> None:
    await workspace.channel()
    await workspace.push("hello")
    assert await monitor(workspace) == {}


async def test_one_dead_delivery_is_an_alert_until_it_is_requeued(workspace: Any) -> None:
    await workspace.channel()
    await workspace.policy(max_attempts=1)
    (delivery,) = await begun(workspace, "a")
    await workspace.retry(delivery, {"code": "502", "message": "the words of a platform"})
    alert = (await monitor(workspace))["dead"]
    assert (alert["severity"], alert["is_new"], alert["details"]["count"]) == ("critical", True, 1)
    assert alert["details"]["code"] == "502"
    assert "words" not in str(alert)
    workspace.wait(seconds=30)
    assert (await monitor(workspace))["dead"]["is_new"] is False
    await workspace.sql(
        "update autopost.deliveries set status = 'retry', next_retry_at = %s where workspace_id = %s",
        workspace.now, workspace.workspace,
    )  # fmt: skip
    assert await monitor(workspace) == {}
    query = "select cleared_at from ops.alerts where workspace_id = %s"
    assert await workspace.value(query, workspace.workspace) == workspace.now


async def test_refusals_are_an_alert_when_they_are_many_within_the_time(workspace: Any) -> None:
    await workspace.channel(max_parallel=10)
    await limits(workspace, failed_permanent_max=2)
    for delivery in await begun(workspace, "a", "b", "c"):
        assert "failed_permanent" not in await monitor(workspace)
        await workspace.fail(delivery)
    assert (await monitor(workspace))["failed_permanent"]["details"]["count"] == 3
    workspace.wait(minutes=10)
    assert "failed_permanent" not in await monitor(workspace)


async def test_what_somebody_cancelled_is_no_refusal(workspace: Any) -> None:
    await workspace.channel()
    await limits(workspace, failed_permanent_max=0)
    post = await workspace.push("a")
    await workspace.sql(
        "select * from autopost.cancel_deliveries(%s, 'me', 'why', %s, p_now => %s)",
        workspace.workspace, post["message_id"], workspace.now,
    )  # fmt: skip
    assert await workspace.statuses() == {"failed_permanent": 1}
    assert await monitor(workspace) == {}


async def test_paused_channels_are_an_alert_when_they_are_many(workspace: Any) -> None:
    await limits(workspace, paused_channels_max=1)
    for name in ("a", "b"):
        assert await monitor(workspace) == {}
        await workspace.channel(name, paused_until=workspace.now.replace(hour=13))
    assert (await monitor(workspace))["paused_channels"]["details"]["channels"] == ["a", "b"]
    workspace.wait(hours=1)
    assert await monitor(workspace) == {}


async def test_a_channel_that_refusals_switched_off_is_an_alert_of_its_own(workspace: Any) -> None:
    await workspace.policy(disable_after_permanent_streak=1)
    await workspace.channel("refused")
    await workspace.channel("shut", enabled=False)
    (delivery,) = await begun(workspace, "a")
    await workspace.fail(delivery, {"code": "403", "scope": "channel"})
    rows = await workspace.sql(QUERY, workspace.workspace, workspace.now)
    assert [(row["alert"], row["subject"]) for row in rows] == [("channel_disabled", "refused")]


@pytest.mark.parametrize(
    "gate",
    [
        {"enabled": False},
        {"paused_until": "2027-03-02Z"},
        {"cooldown_until": "2027-03-02Z"},
        {"window_mode": "windowed", "posting_window": {"daily": [["01:00", "02:00"]]}},
        {"last_begin_at": "2027-03-01 12:25Z", "rate_rps": 1},
        {"updated_at": "2027-03-01 12:25Z"},
    ],
)
async def test_what_a_gate_holds_is_explained(workspace: Any, gate: dict[str, Any]) -> None:
    await workspace.channel(updated_at=workspace.now)
    await workspace.push("a")
    workspace.wait(minutes=30)
    assert "waiting" in await monitor(workspace)
    names = ", ".join(f"{name} = %s" for name in gate)
    values = [Jsonb(value) if isinstance(value, dict) else value for value in gate.values()]
    query = f"update autopost.channels set {names} where workspace_id = %s"
    await workspace.sql(query, *values, workspace.workspace)
    assert await monitor(workspace) == {}


async def test_what_is_due_and_does_not_move_is_an_alert_with_its_channel(workspace: Any) -> None:
    await workspace.channel(updated_at=workspace.now)
    await workspace.push("a")
    workspace.wait(minutes=10, seconds=-1)
    assert await monitor(workspace) == {}
    workspace.wait(seconds=1)
    alert = (await monitor(workspace))["waiting"]
    assert (alert["severity"], alert["details"]["channels"]) == ("critical", ["c1"])
    assert len(await workspace.take()) == 1
    assert await monitor(workspace) == {}


async def test_a_long_line_that_moves_is_no_alert(workspace: Any) -> None:
    await workspace.channel(updated_at=workspace.now)
    for n in range(3):
        await workspace.push(f"post {n}")
    workspace.wait(hours=1)
    (row,) = await workspace.take()
    await workspace.sent(row["delivery_id"], row["lease"])
    workspace.wait(minutes=9)
    assert await monitor(workspace) == {}
    workspace.wait(minutes=2)
    assert "waiting" in await monitor(workspace)


async def test_a_group_that_moves_explains_its_channels(workspace: Any) -> None:
    """They share a pace: who waits for the others' sends is not stuck."""
    await workspace.channel(updated_at=workspace.now)
    await workspace.push("a")
    workspace.wait(minutes=30)
    await workspace.sql(
        "insert into autopost.platform_limits (workspace_id, platform, rate_group, rate_rps, last_begin_at)"
        " select workspace_id, platform, rate_group, 1, %s from autopost.channels where workspace_id = %s",
        workspace.now - timedelta(minutes=9),
        workspace.workspace,
    )
    assert await monitor(workspace) == {}
    workspace.wait(minutes=2)
    assert "waiting" in await monitor(workspace)


async def test_what_is_planned_or_waits_for_its_files_is_no_alert(workspace: Any) -> None:
    await workspace.channel(updated_at=workspace.now)
    await workspace.push({"text": "later", "scheduled_for": "2027-03-05T12:00:00Z"})
    await workspace.push({"text": "p", "media": [{"type": "image", "url": "https://e.example/a.png"}]})
    workspace.wait(days=1)
    assert await monitor(workspace) == {}


async def test_a_paused_workspace_waits_without_an_alert(workspace: Any) -> None:
    await workspace.channel(updated_at=workspace.now)
    await workspace.push("a")
    workspace.wait(hours=1)
    query = "update core.workspaces set status = 'paused' where workspace_id = %s"
    await workspace.sql(query, workspace.workspace)
    assert await monitor(workspace) == {}


async def source(workspace: Any, **columns: Any) -> None:
    row = {
        "workspace_id": workspace.workspace, "source_id": "feed", "kind": "rss", "every": "5 minutes",
        "created_at": workspace.now, "updated_at": workspace.now,
    } | columns  # fmt: skip
    names, places = ", ".join(row), ", ".join(["%s"] * len(row))
    await workspace.sql(f"insert into autopost.pull_sources ({names}) values ({places})", *row.values())


async def test_a_source_that_nobody_reads_is_an_alert_after_three_intervals(workspace: Any) -> None:
    await source(workspace)
    workspace.wait(minutes=15)
    assert await monitor(workspace) == {}
    workspace.wait(minutes=2)
    assert (await monitor(workspace))["source"]["subject"] == "feed"
    query = "update autopost.pull_sources set last_run_at = %s where workspace_id = %s"
    await workspace.sql(query, workspace.now, workspace.workspace)
    assert await monitor(workspace) == {}


async def test_a_source_that_fails_again_and_again_is_an_alert(workspace: Any) -> None:
    await source(workspace, failures=3, last_run_at=workspace.now)
    assert (await monitor(workspace))["source"]["details"]["failures"] == 3
    query = "update autopost.pull_sources set enabled = false where workspace_id = %s"
    await workspace.sql(query, workspace.workspace)
    assert await monitor(workspace) == {}


async def test_a_source_by_the_clock_is_silent_when_its_tick_is_long_over(workspace: Any) -> None:
    await source(workspace, every=None, cron="0 9 * * *")
    await workspace.sql(
        "select ops.put_schedule(%s, 'source:feed', '{\"kind\": \"source.pull\", \"cron\": \"0 9 * * *\"}', %s, %s)",
        workspace.workspace, workspace.now, workspace.now,
    )  # fmt: skip
    assert await monitor(workspace) == {}
    workspace.wait(minutes=11)
    assert "source" in await monitor(workspace)


async def test_dead_jobs_are_an_alert_by_their_kind_for_a_day(workspace: Any) -> None:
    await workspace.sql(
        "insert into ops.jobs (workspace_id, job_id, kind, status, finished_at, last_error)"
        " values (%s, gen_random_uuid(), 'media.fetch', 'dead', %s, '{\"code\": \"gone\"}')",
        workspace.workspace, workspace.now,
    )  # fmt: skip
    assert (await monitor(workspace))["jobs_dead"]["subject"] == "media.fetch"
    workspace.wait(days=1)
    assert await monitor(workspace) == {}


async def test_the_guards_bring_back_what_no_dispatcher_sweeps(workspace: Any) -> None:
    await workspace.channel("c1")
    await workspace.channel("c2")
    await workspace.push("a")
    assert len(await workspace.claim()) == 2
    assert len(await workspace.begin(1)) == 1
    workspace.wait(seconds=301)
    await monitor(workspace)
    assert {(row["status"], row["attempt"]) for row in await workspace.deliveries()} == {("retry", 1), ("queued", 0)}
    actions = ["sending_lease_expired", "claimed_lease_expired"]
    assert {row["action"] for row in await workspace.events(*actions)} == set(actions)


async def test_the_guards_leave_alone_what_is_young(workspace: Any) -> None:
    await workspace.channel()
    await begun(workspace, "a")
    workspace.wait(seconds=299)
    await monitor(workspace)
    assert await workspace.statuses() == {"sending": 1}


async def test_the_dispatcher_is_to_be_woken_when_something_may_go(workspace: Any) -> None:
    kick = "select autopost.needs_kick(%s, %s)"
    await workspace.channel(paused_until=workspace.now.replace(hour=13))
    await workspace.push("a")
    assert await workspace.value(kick, workspace.workspace, workspace.now) is False
    workspace.wait(hours=1)
    assert await workspace.value(kick, workspace.workspace, workspace.now) is True
    await workspace.take()
    assert await workspace.value(kick, workspace.workspace, workspace.now) is False
