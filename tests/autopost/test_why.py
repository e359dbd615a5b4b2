"""Why has it not gone out? The gate that opens last, and when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest
from answers import FORBIDDEN, fails
from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16


async def why(workspace: Autopost, delivery_id: UUID | None = None) -> Any:
    one = delivery_id or (await workspace.deliveries())[0]["delivery_id"]
    (answer,) = await workspace.sql(
        "select * from autopost.why_delivery(%s, %s, %s)", workspace.workspace, one, workspace.now
    )
    return answer


async def gate(workspace: Autopost) -> tuple[str, float | None]:
    answer = await why(workspace)
    return answer["gate"], answer["earliest"] and (answer["earliest"] - workspace.now).total_seconds()


async def set_channel(workspace: Autopost, **columns: Any) -> None:
    for name, value in columns.items():
        await workspace.sql(
            f"update autopost.channels set {name} = %s where workspace_id = %s", value, workspace.workspace
        )


async def set_group(workspace: Autopost, **columns: Any) -> None:
    await workspace.sql("select autopost.lock_channels(%s, '{c1}')", workspace.workspace)
    for name, value in columns.items():
        await workspace.sql(
            f"update autopost.platform_limits set {name} = %s where workspace_id = %s", value, workspace.workspace
        )


async def queued(workspace: Autopost, **columns: Any) -> None:
    await workspace.channel(**columns)
    await workspace.push("hi")


async def test_nothing_in_the_way(workspace: Autopost) -> None:
    await queued(workspace)
    answer = await why(workspace)
    assert (answer["status"], answer["gate"], answer["earliest"], answer["gates"]) == (
        "queued",
        "none",
        workspace.now,
        [],
    )
    assert answer["detail"] == "nothing is in its way: it goes with the next round of the dispatcher"


async def test_a_gate_that_only_a_person_opens_has_no_time(workspace: Autopost) -> None:
    await queued(workspace)
    await set_channel(workspace, enabled=False)
    assert await gate(workspace) == ("disabled", None)
    await set_channel(workspace, enabled=True)
    await workspace.sql("update core.workspaces set status = 'paused' where workspace_id = %s", workspace.workspace)
    assert await gate(workspace) == ("workspace", None)
    assert (await why(workspace))["detail"] == "the workspace is paused"


async def test_gates_with_a_time(workspace: Autopost) -> None:
    await queued(workspace)
    until = workspace.now + timedelta(seconds=40)
    await set_channel(workspace, paused_until=until)
    assert await gate(workspace) == ("paused", 40)
    await set_channel(workspace, paused_until=None, cooldown_until=until)
    assert await gate(workspace) == ("cooldown", 40)
    await set_channel(workspace, cooldown_until=None)
    await set_group(workspace, cooldown_until=until)
    assert await gate(workspace) == ("group_cooldown", 40)
    assert (await why(workspace))["detail"] == "the platform asked group bot to wait"
    workspace.wait(seconds=40)
    assert await gate(workspace) == ("none", 0)


async def test_of_several_gates_the_one_that_opens_last_is_named_and_all_are_listed(workspace: Autopost) -> None:
    await queued(workspace)
    await set_channel(
        workspace, cooldown_until=workspace.now + timedelta(seconds=5), paused_until=workspace.now + timedelta(hours=1)
    )
    answer = await why(workspace)
    assert (answer["gate"], answer["earliest"]) == ("paused", workspace.now + timedelta(hours=1))
    assert [found["gate"] for found in answer["gates"]] == ["paused", "cooldown"]
    await set_channel(workspace, enabled=False)
    answer = await why(workspace)
    assert (answer["gate"], answer["earliest"]) == ("disabled", None)
    assert answer["gates"][0]["opens"] is None


async def test_a_retry_says_when_and_after_what(workspace: Autopost) -> None:
    await queued(workspace)
    (row,) = await workspace.take()
    error = {"code": "500", "scope": "platform", "message": "oops"}
    await workspace.retry(row["delivery_id"], error, row["lease"], at=workspace.now + timedelta(seconds=8))
    assert await gate(workspace) == ("retry", 8)
    assert (await why(workspace))["detail"] == "attempt 1 failed: oops"


async def test_a_held_row_waits_for_a_person(workspace: Autopost) -> None:
    await queued(workspace, on_unknown="hold")
    (row,) = await workspace.take()
    workspace.wait(seconds=301)
    await workspace.sweep()
    answer = await why(workspace, row["delivery_id"])
    assert (answer["status"], answer["gate"], answer["earliest"]) == ("retry", "held", None)


async def test_a_schedule_and_a_slot(workspace: Autopost) -> None:
    await queued(workspace, rate_rps=0.5)
    workspace.wait(seconds=1)
    await workspace.push("second")
    await workspace.sql("update autopost.deliveries set not_before = %s where workspace_id = %s and rendered_text = 'hi'",
                        workspace.now + timedelta(seconds=77), workspace.workspace)  # fmt: skip
    assert await gate(workspace) == ("schedule", 77)
    await workspace.sql(
        "update autopost.deliveries set not_before = created_at where workspace_id = %s", workspace.workspace
    )
    await workspace.claim()
    later = (await workspace.deliveries("claimed"))[1]
    answer = await why(workspace, later["delivery_id"])
    assert (answer["gate"], answer["earliest"]) == ("slot", workspace.now + timedelta(seconds=2))


OFFICE = {"daily": [["09:00", "18:00"]]}
NIGHT = {"daily": [["22:00", "02:00"]]}


async def test_a_closed_window_names_itself_and_its_opening(workspace: Autopost) -> None:
    await queued(workspace, window_mode="windowed", posting_window=NIGHT)
    answer = await why(workspace)
    assert (answer["gate"], answer["earliest"]) == ("window", clock(22))
    assert answer["detail"] == "the posting window of channel c1 is closed"
    assert [found["gate"] for found in answer["gates"]] == ["window"], "nobody has scheduled it"


async def test_an_open_window_is_no_gate(workspace: Autopost) -> None:
    await queued(workspace, window_mode="windowed", posting_window=OFFICE)
    assert await gate(workspace) == ("none", 0)


async def test_a_schedule_and_the_window_behind_it(workspace: Autopost) -> None:
    await workspace.channel(window_mode="windowed", posting_window=NIGHT)
    await workspace.push({"text": "hi", "scheduled_for": clock(15).isoformat()})
    answer = await why(workspace)
    assert (answer["gate"], answer["earliest"]) == ("window", clock(22))
    assert [(found["gate"], found["opens"][11:16]) for found in answer["gates"]] == [
        ("window", "22:00"), ("schedule", "15:00"),
    ]  # fmt: skip


async def test_a_schedule_within_the_window_is_the_gate(workspace: Autopost) -> None:
    await workspace.channel(window_mode="windowed", posting_window=OFFICE)
    await workspace.push({"text": "hi", "scheduled_for": clock(15).isoformat()})
    answer = await why(workspace)
    assert (answer["gate"], answer["earliest"], answer["detail"]) == (
        "schedule",
        clock(15),
        "it is scheduled for later",
    )


async def test_another_gate_that_opens_while_the_window_is_closed_leads_to_the_window(workspace: Autopost) -> None:
    await queued(workspace, window_mode="windowed", posting_window=OFFICE)
    await set_channel(workspace, paused_until=clock(20))
    answer = await why(workspace)
    assert (answer["gate"], answer["earliest"]) == ("window", clock(9, day=2))
    assert answer["detail"] == "the posting window of channel c1 is closed then"


async def test_a_window_that_never_opens_has_no_moment(workspace: Autopost) -> None:
    await queued(workspace, window_mode="windowed", posting_window=OFFICE)
    await workspace.sql(
        "update autopost.channels set posting_window = '{}' where workspace_id = %s", workspace.workspace
    )
    assert await gate(workspace) == ("window", None)


async def test_hours_changed_by_hand_do_not_hide_the_moment_that_was_planned(workspace: Autopost) -> None:
    await queued(workspace, window_mode="windowed", posting_window=NIGHT)
    await set_channel(workspace, window_mode="immediate")
    answer = await why(workspace)
    assert (answer["gate"], answer["earliest"]) == ("schedule", clock(22))
    assert await workspace.take() == []


async def test_a_send_under_way_waits_for_no_window(workspace: Autopost) -> None:
    await queued(workspace, window_mode="windowed", posting_window=OFFICE)
    workspace.now = clock(17, 59)
    await workspace.take()
    workspace.now = clock(18)
    assert (await why(workspace))["gate"] == "lease"


async def test_media_that_are_fetched_come_before_everything(workspace: Autopost) -> None:
    await workspace.channel(window_mode="windowed", posting_window=NIGHT)
    media = [{"type": "image", "url": "https://e.org/a.png"}]
    await workspace.push({"text": "hi", "media": media, "scheduled_for": clock(15).isoformat()})
    (event,) = await workspace.events("enqueue")
    answer = await why(workspace, event["delivery_id"])
    assert (answer["gate"], answer["earliest"], answer["detail"]) == (
        "media_pending", None, "its media are being fetched",
    )  # fmt: skip
    assert [found["gate"] for found in answer["gates"]] == ["media_pending", "window"]


def clock(hour: int, minute: int = 0, day: int = 1) -> datetime:
    return datetime(2027, 3, day, hour, minute, tzinfo=UTC)


async def test_places_and_leases(workspace: Autopost) -> None:
    await queued(workspace)
    await workspace.push("second")
    (row,) = await workspace.take()
    answer = await why(workspace, row["delivery_id"])
    assert (answer["gate"], answer["earliest"]) == ("lease", workspace.now + timedelta(seconds=300))
    waiting = (await workspace.deliveries("queued"))[0]
    answer = await why(workspace, waiting["delivery_id"])
    assert (answer["gate"], answer["detail"]) == (
        "max_parallel", "1 sends of this channel are under way, as many as it may have",
    )  # fmt: skip


async def test_a_claim_that_fell_behind_waits_for_the_pace(workspace: Autopost) -> None:
    await queued(workspace, rate_rps=0.5)
    workspace.wait(seconds=1)
    await workspace.push("second")
    await workspace.claim()
    workspace.wait(minutes=1)
    (row,) = await workspace.begin()
    await workspace.sent(row["delivery_id"], row["lease"])
    (waiting,) = await workspace.deliveries("claimed")
    answer = await why(workspace, waiting["delivery_id"])
    assert (answer["gate"], answer["earliest"]) == ("pace", workspace.now + timedelta(seconds=2))
    workspace.wait(seconds=2, microseconds=-1)
    assert await workspace.begin() == []
    workspace.wait(microseconds=1)
    assert (await why(workspace, waiting["delivery_id"]))["gate"] == "none"
    assert len(await workspace.begin()) == 1


async def test_rates_that_are_booked_ahead(workspace: Autopost) -> None:
    await queued(workspace, rate_rps=2)
    await set_channel(workspace, next_allowed_at=workspace.now + timedelta(seconds=9))
    assert await gate(workspace) == ("rate", 9)
    assert (await why(workspace))["detail"] == "channel c1 takes 2 a second"
    await set_group(workspace, rate_rps=5, next_allowed_at=workspace.now + timedelta(seconds=12))
    assert await gate(workspace) == ("group_rate", 12)


async def test_a_rate_that_was_taken_away_is_no_gate(workspace: Autopost) -> None:
    await queued(workspace, rate_rps=None)
    await set_channel(workspace, next_allowed_at=workspace.now + timedelta(seconds=9))
    await set_group(workspace, rate_rps=0, next_allowed_at=workspace.now + timedelta(seconds=12))
    assert await gate(workspace) == ("none", 0)
    assert len(await workspace.take()) == 1


async def test_finished_rows_say_how_they_ended(workspace: Autopost) -> None:
    await workspace.policy(max_attempts=1)
    await workspace.channel(max_parallel=3)
    for text in "abc":
        await workspace.push(text)
        workspace.wait(seconds=1)
    sent, failed, dead = await workspace.take()
    await workspace.sent(sent["delivery_id"], 1)
    await workspace.fail(failed["delivery_id"], {"code": "400", "message": "bad markup"}, 1)
    await workspace.retry(dead["delivery_id"], {"code": "500", "message": "gone"}, 1)
    await workspace.push("a")
    (deduped,) = await workspace.deliveries("deduped")
    await set_channel(workspace, enabled=False)
    answers = [await why(workspace, row["delivery_id"]) for row in (sent, failed, dead, deduped)]
    assert [(a["status"], a["gate"], a["earliest"], a["gates"]) for a in answers] == [
        (status, status, None, []) for status in ("sent", "failed_permanent", "dead", "deduped")
    ]
    assert answers[0]["detail"].startswith("sent at 2027-03-01")
    assert [answer["detail"] for answer in answers[1:]] == [
        "bad markup", "given up after 1 attempts: gone", "the same content went into this channel before",
    ]  # fmt: skip


async def test_a_delivery_that_is_not_here_has_no_answer(workspace: Autopost) -> None:
    await queued(workspace)
    (row,) = await workspace.deliveries()
    for where, what in ((workspace.workspace, uuid4()), (workspace.workspace + "x", row["delivery_id"])):
        assert await workspace.sql("select * from autopost.why_delivery(%s, %s)", where, what) == []


async def test_asking_changes_nothing(workspace: Autopost) -> None:
    await queued(workspace)
    before = await workspace.deliveries(), await workspace.channel_row(), await workspace.events()
    await why(workspace)
    assert before == (await workspace.deliveries(), await workspace.channel_row(), await workspace.events())


@pytest.mark.parametrize(
    "gates",
    ["none", "paused", "cooldown", "group", "retry", "schedule", "pause and cooldown", "window", "pause into night"],
)
async def test_the_earliest_moment_is_the_moment_at_which_it_can_go(workspace: Autopost, gates: str) -> None:
    """Not a microsecond before: the answer and the claim must never drift apart."""
    await queued(workspace)
    await workspace.policy(backoff_jitter=0)
    if gates in ("cooldown", "retry"):
        (row,) = await workspace.take()
        error = {"scope": "platform", "code": "429", "retry_after_ms": 5000} if gates == "cooldown" else {"code": "500"}
        await workspace.retry(row["delivery_id"], error, row["lease"])
    until = workspace.now + timedelta(seconds=20)
    if "pause" in gates:
        await set_channel(workspace, paused_until=until)
    if gates == "pause and cooldown":
        await set_channel(workspace, cooldown_until=until + timedelta(seconds=3))
    if gates == "group":
        await set_group(workspace, cooldown_until=until)
    if gates == "schedule":
        await workspace.sql(
            "update autopost.deliveries set not_before = %s where workspace_id = %s", until, workspace.workspace
        )
    if gates in ("window", "pause into night"):
        await workspace.sql(
            "update autopost.channels set window_mode = 'windowed', posting_window = %s where workspace_id = %s",
            Jsonb(NIGHT if gates == "window" else OFFICE), workspace.workspace,
        )  # fmt: skip
        await set_channel(workspace, paused_until=clock(21) if gates == "pause into night" else None)
    earliest = (await why(workspace))["earliest"]
    if earliest > workspace.now:
        workspace.now = earliest - timedelta(microseconds=1)
        assert await workspace.take() == []
    workspace.now = earliest
    assert len(await workspace.take()) == 1


async def test_a_channel_that_was_refused_says_what_the_platform_said(workspace: Autopost) -> None:
    await workspace.policy(disable_after_permanent_streak=2)
    await queued(workspace)
    await workspace.push("second")
    for gate_, detail in (
        ("paused", "channel c1 is paused: bot was kicked"),
        ("disabled", "channel c1 is disabled: bot was kicked"),
    ):
        (row,) = await workspace.take()
        await fails(workspace, row, FORBIDDEN)
        await workspace.push(f"waits for {gate_}")
        waiting = "select delivery_id from autopost.deliveries where workspace_id = %s and status = 'queued' limit 1"
        answer = await why(workspace, await workspace.value(waiting, workspace.workspace))
        assert (answer["gate"], answer["detail"]) == (gate_, detail)
        workspace.wait(hours=1)


async def test_a_pause_that_the_platform_did_not_cause_does_not_quote_it(workspace: Autopost) -> None:
    await queued(workspace)
    (row,) = await workspace.take()
    await fails(workspace, row, FORBIDDEN)
    workspace.wait(hours=1)
    await workspace.push("next")
    (row,) = await workspace.take()
    await workspace.sent(row["delivery_id"], row["lease"])
    await set_channel(workspace, paused_until=workspace.now + timedelta(hours=1))
    await workspace.push("waits")
    waiting = "select delivery_id from autopost.deliveries where workspace_id = %s and status = 'queued'"
    delivery_id = await workspace.value(waiting, workspace.workspace)
    assert (await why(workspace, delivery_id))["detail"] == "channel c1 is paused"
    await workspace.sql(
        "insert into autopost.events (workspace_id, id, channel_id, ts, action, meta)"
        " values (%s, %s, 'c1', %s, 'channel_paused', %s)",
        workspace.workspace, uuid4(), workspace.now, Jsonb({"operator": "ana", "reason": "moving house"}),
    )  # fmt: skip
    assert (await why(workspace, delivery_id))["detail"] == "channel c1 is paused: moving house, by ana"


async def test_what_has_ended_says_why_by_whom_and_what_brings_it_back(workspace: Autopost) -> None:
    await workspace.policy(max_attempts=1)
    await workspace.channel(max_parallel=9)
    await workspace.channel("c2", on_unknown="hold")
    for text in "abcd":
        await workspace.push({"text": text, "channels": ["c1"]})
        workspace.wait(seconds=1)
    one, two, three, _ = await workspace.take()
    await workspace.fail(one["delivery_id"], {"code": "400", "message": "bad markup", "scope": "delivery"}, 1)
    await workspace.fail(two["delivery_id"], {"code": "401", "message": "no such bot", "scope": "platform"}, 1)
    await workspace.retry(three["delivery_id"], {"code": "500", "message": "gone"}, 1)
    answers = [await why(workspace, row["delivery_id"]) for row in (one, two, three)]
    assert [(a["gate"], a["detail"], a["remedy"]) for a in answers] == [
        ("failed_permanent", "bad markup", f"vestnik requeue {one['delivery_id']}"),
        ("failed_permanent", "no such bot", "put right what the platform refused, then push the post again"),
        ("dead", "given up after 1 attempts: gone", f"vestnik requeue {three['delivery_id']}"),
    ]
    await workspace.push({"text": "d", "channels": ["c1"]})
    (twin,) = await workspace.deliveries("deduped")
    answer = await why(workspace, twin["delivery_id"])
    assert (answer["detail"], answer["remedy"]) == (
        "the same content was on its way into this channel", "push it again once the dedup window of the channel is over",
    )  # fmt: skip


async def test_a_withdrawn_delivery_names_who_withdrew_it(workspace: Autopost) -> None:
    await queued(workspace)
    (row,) = await workspace.deliveries()
    await workspace.sql(
        "select autopost.cancel_deliveries(%s, 'anna', 'wrong price', null, %s)",
        workspace.workspace, [row["delivery_id"]],
    )  # fmt: skip
    answer = await why(workspace)
    assert (answer["status"], answer["gate"], answer["detail"]) == (
        "failed_permanent", "cancelled", "cancelled: wrong price, by anna",
    )  # fmt: skip
    assert answer["remedy"] == f"vestnik requeue {row['delivery_id']}"


async def test_a_confirmed_delivery_names_who_confirmed_it(workspace: Autopost) -> None:
    await queued(workspace, on_unknown="hold")
    (row,) = await workspace.take()
    workspace.wait(seconds=301)
    await workspace.sweep()
    delivery = row["delivery_id"]
    assert (await why(workspace, delivery))["remedy"] == (
        f"vestnik unknown confirm {delivery}, or vestnik unknown resend {delivery}"
    )
    await workspace.sql(
        "select autopost.confirm_delivery(%s, 'anna', 'I saw it', %s, p_now => %s)",
        workspace.workspace, delivery, workspace.now,
    )  # fmt: skip
    answer = await why(workspace, delivery)
    assert answer["detail"].endswith("; anna confirmed it: I saw it")
    assert answer["remedy"] is None


@pytest.mark.parametrize(
    ("columns", "event", "remedy"),
    [
        ({"enabled": False}, None, "vestnik resume {w} c1"),
        ({"enabled": False}, {"rate_group": "bot", "operator": "ana"}, "vestnik enable-group {w} bot"),
        ({"enabled": False}, {"rate_group": "another"}, "vestnik resume {w} c1"),
        ({"paused_until": datetime(2028, 1, 1, tzinfo=UTC)}, None, "vestnik resume {w} c1"),
        ({"cooldown_until": datetime(2028, 1, 1, tzinfo=UTC)}, None, None),
    ],
)
async def test_a_gate_that_a_person_opens_names_the_command(
    workspace: Autopost, columns: dict[str, Any], event: dict[str, str] | None, remedy: str | None
) -> None:
    await queued(workspace)
    await set_channel(workspace, **columns)
    if event:
        await workspace.sql(
            "insert into autopost.events (workspace_id, id, channel_id, ts, action, meta)"
            " values (%s, %s, 'c1', %s, 'channel_disabled', %s)",
            workspace.workspace, uuid4(), workspace.now, Jsonb(event),
        )  # fmt: skip
    assert (await why(workspace))["remedy"] == (remedy and remedy.format(w=workspace.workspace))


async def test_a_command_is_one_that_a_shell_reads(workspace: Autopost) -> None:
    told = "select autopost.shell_word(%s)"
    assert await workspace.value(told, "@my-channel_1") == "@my-channel_1"
    assert await workspace.value(told, "it's $HOME") == "'it'\\''s $HOME'"
