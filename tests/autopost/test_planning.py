"""When a post goes: at its moment, within its channel's hours, at the channel's pace; and until then it can be taken back."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from planned import NIGHT, OFFICE, begins_at, cancel, clock, goes_exactly_at, move, post, push_at
from sends import begun

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16

HELD = "from autopost.deliveries where workspace_id = %s and held_at is not null and next_retry_at = 'infinity'"


# The exact moment


async def test_a_post_with_a_moment_goes_then_and_not_before(workspace: Autopost) -> None:
    await workspace.channel()
    await push_at(workspace, "later", clock(15, 30))
    await goes_exactly_at(workspace, clock(15, 30), "later")


async def test_the_moment_counts_in_its_own_zone(workspace: Autopost) -> None:
    await workspace.channel()
    await workspace.push({"text": "later", "scheduled_for": "2027-03-01T18:30:00+03:00"})
    await goes_exactly_at(workspace, clock(15, 30), "later")


async def test_a_moment_that_has_passed_is_now_and_said_to_be_so(workspace: Autopost) -> None:
    await workspace.channel()
    answer = await workspace.push(post("late", clock(11)))
    assert answer["warnings"] == ["scheduled_for is in the past: it goes at once"]
    assert await begins_at(workspace, workspace.now) == ["late"]


async def test_a_moment_outside_the_hours_waits_for_the_next_window(workspace: Autopost) -> None:
    await workspace.channel(window_mode="windowed", posting_window=OFFICE, timezone="Europe/Moscow")
    await push_at(workspace, "evening", clock(17))  # 20:00 in Moscow
    await goes_exactly_at(workspace, clock(6, day=2), "evening")


async def test_a_moment_inside_the_hours_is_kept_to_the_letter(workspace: Autopost) -> None:
    await workspace.channel(window_mode="windowed", posting_window=OFFICE)
    await push_at(workspace, "afternoon", clock(16, 20))
    await goes_exactly_at(workspace, clock(16, 20), "afternoon")


@pytest.mark.parametrize(
    ("zone", "moment", "opens"),
    [
        # 02:30 does not come on the night of the change, and comes twice in autumn.
        ("Europe/Berlin", "2027-03-28T00:30Z", "2027-03-28T01:00Z"),
        ("Europe/Berlin", "2027-10-31T00:10Z", "2027-10-31T00:30Z"),
        ("Europe/Berlin", "2027-10-31T01:10Z", "2027-10-31T01:30Z"),
    ],
)
async def test_hours_follow_the_clock_through_its_changes(
    workspace: Autopost, zone: str, moment: str, opens: str
) -> None:
    window = {"daily": [["02:30", "03:30"]]} if "03-28" in moment else {"daily": [["02:30", "03:00"]]}
    await workspace.channel(window_mode="windowed", posting_window=window, timezone=zone)
    workspace.now = datetime.fromisoformat(moment)
    await workspace.push("night")
    await goes_exactly_at(workspace, datetime.fromisoformat(opens), "night")


async def test_posts_of_one_moment_keep_the_pace_of_their_channel_from_then_on(workspace: Autopost) -> None:
    await workspace.channel(rate_rps=0.5, max_parallel=5)
    for text in "abc":
        await push_at(workspace, text, clock(15))
        workspace.wait(seconds=1)
    await goes_exactly_at(workspace, clock(15), "a")
    told = [row["not_before"] for row in await workspace.deliveries("claimed")]
    assert told == [clock(15) + timedelta(seconds=2), clock(15) + timedelta(seconds=4)]
    assert await begins_at(workspace, told[0]) == ["b"]
    assert await begins_at(workspace, told[1] - timedelta(microseconds=1)) == []
    assert await begins_at(workspace, told[1]) == ["c"]


# A window that closes


async def test_a_window_that_closes_while_a_post_waits_keeps_it_for_the_next(workspace: Autopost) -> None:
    await workspace.channel(window_mode="windowed", posting_window=OFFICE)
    await workspace.push("missed it")
    assert await begins_at(workspace, clock(18)) == []
    await goes_exactly_at(workspace, clock(9, day=2), "missed it")


async def test_a_claim_whose_window_closes_goes_back_and_says_why(workspace: Autopost) -> None:
    await workspace.channel(window_mode="windowed", posting_window=OFFICE, rate_rps=0.5)
    workspace.now = clock(17, 59).replace(second=58)
    for text in ("first", "second"):
        workspace.wait(seconds=0.5)
        await workspace.push(text)
    assert len(await workspace.claim()) == 2
    (first,) = await workspace.begin()
    await workspace.sent(first["delivery_id"], first["lease"])
    workspace.now = clock(18) + timedelta(seconds=1)  # its slot has come, and the window has closed
    assert await workspace.begin() == []
    assert await workspace.value("select next_begin_at(%s, %s)", workspace.workspace, workspace.now) is None
    assert (await workspace.sweep())[1] == 1
    (event,) = await workspace.events("claim_released")
    assert (event["meta"]["reason"], event["result"]) == ("window_closed", "ok")
    await goes_exactly_at(workspace, clock(9, day=2), "second")


async def test_a_retry_waits_for_the_window_too(workspace: Autopost) -> None:
    await workspace.channel(window_mode="windowed", posting_window=OFFICE)
    workspace.now = clock(17, 59)
    row = await begun(workspace)
    await workspace.retry(row["delivery_id"], {"code": "500"}, row["lease"], at=clock(18, 5))
    assert await begins_at(workspace, clock(23)) == []
    await goes_exactly_at(workspace, clock(9, day=2), "hi")


async def test_a_send_that_has_begun_is_not_stopped_by_the_clock(workspace: Autopost) -> None:
    await workspace.channel(window_mode="windowed", posting_window=OFFICE)
    workspace.now = clock(17, 59)
    row = await begun(workspace)
    workspace.now = clock(18, 1)
    assert await workspace.sweep() == (0, 0)
    assert await workspace.sent(row["delivery_id"], row["lease"]) == "sent"


async def test_hours_changed_by_hand_are_noticed_once_the_channel_is_open(workspace: Autopost) -> None:
    await workspace.channel(window_mode="windowed", posting_window=NIGHT)
    await workspace.push("waits for the night")
    await push_at(workspace, "waits for its moment", clock(15))
    await workspace.sql(
        "update autopost.channels set window_mode = 'immediate' where workspace_id = %s", workspace.workspace
    )
    swept = "select autopost.sweep_windows(%s, 500, %s)"
    assert await workspace.take() == []
    assert await workspace.value(swept, workspace.workspace, workspace.now) == 2
    assert await workspace.value(swept, workspace.workspace, workspace.now) == 0
    assert await begins_at(workspace, workspace.now) == ["waits for the night"]
    (row,) = await workspace.deliveries("queued")
    assert row["not_before"] == clock(15)


async def test_what_was_sent_again_by_hand_follows_new_hours_as_well(workspace: Autopost) -> None:
    await workspace.channel(window_mode="windowed", posting_window=NIGHT)
    await cancel(workspace, await push_at(workspace, "after all"))
    await workspace.sql(
        "update autopost.deliveries set status = 'retry', next_retry_at = %s where workspace_id = %s",
        workspace.now, workspace.workspace,
    )  # fmt: skip
    assert await workspace.take() == []
    await workspace.sql(
        "update autopost.channels set window_mode = 'immediate' where workspace_id = %s", workspace.workspace
    )
    assert await workspace.value("select autopost.sweep_windows(%s, 500, %s)", workspace.workspace, workspace.now) == 1
    assert await begins_at(workspace, workspace.now) == ["after all"]


# Cancel


async def test_what_is_cancelled_never_goes_and_is_no_alarm(workspace: Autopost) -> None:
    await workspace.channel()
    message = await push_at(workspace, "oh no", clock(15))
    assert await cancel(workspace, message, reason="wrong price") == {"c1": "cancelled"}
    (row,) = await workspace.deliveries()
    assert (row["status"], row["last_error"]["code"], row["last_error"]["message"]) == (
        "failed_permanent", "cancelled", "wrong price",
    )  # fmt: skip
    (event,) = await workspace.events("cancelled")
    told = {name: event["meta"][name] for name in ("operator", "reason", "from_status")}
    assert told == {"operator": "anna", "reason": "wrong price", "from_status": "queued"}
    assert event["result"] == "ok"
    assert await workspace.events("failed_permanent", "dead_letter") == []
    assert (await workspace.channel_row())["error_streak"] == 0
    assert await begins_at(workspace, clock(16)) == []


async def test_cancelling_again_finds_nothing_and_changes_nothing(workspace: Autopost) -> None:
    await workspace.channel()
    message = await push_at(workspace, "oh no", clock(15))
    await cancel(workspace, message)
    before = await workspace.deliveries(), await workspace.events()
    assert await cancel(workspace, message) == {}
    assert await cancel(workspace, uuid4()) == {}
    assert await move(workspace, message, clock(16)) == {}
    assert (await workspace.deliveries(), await workspace.events()) == before


async def test_only_the_channels_named_are_touched(workspace: Autopost) -> None:
    for channel in ("c1", "c2", "c3"):
        await workspace.channel(channel)
    message = await push_at(workspace, "hi", clock(15))
    assert await cancel(workspace, message, "c2", "elsewhere") == {"c2": "cancelled"}
    assert await move(workspace, message, clock(16), "c3") == {"c3": ("rescheduled", clock(16))}
    assert len(await begins_at(workspace, clock(15))) == 1
    assert len(await begins_at(workspace, clock(16))) == 1


async def test_another_message_and_another_workspace_are_left_alone(workspace: Autopost) -> None:
    await workspace.channel()
    message = await push_at(workspace, "one", clock(15))
    await push_at(workspace, "two", clock(15))
    stranger = type(workspace)(workspace.connection, f"{workspace.workspace}-x")
    await stranger.workspace_row()
    assert await cancel(stranger, message) == {}
    assert await cancel(workspace, message) == {"c1": "cancelled"}
    assert await workspace.statuses() == {"failed_permanent": 1, "queued": 1}


async def test_what_is_claimed_or_under_way_is_too_late(workspace: Autopost) -> None:
    await workspace.channel("paced", rate_rps=1)
    await workspace.channel("quick")
    await workspace.channel("later", window_mode="windowed", posting_window=NIGHT)
    message = await push_at(workspace, "hi")
    await workspace.claim()
    await workspace.sql(
        "update autopost.channels set paused_until = 'infinity' where workspace_id = %s and channel_id = 'paced'",
        workspace.workspace,
    )
    await workspace.begin()
    assert await workspace.statuses() == {"claimed": 1, "sending": 1, "queued": 1}
    before = len(await workspace.events())
    late = {"paced": "too_late", "quick": "too_late"}
    assert await cancel(workspace, message) == late | {"later": "cancelled"}
    assert await move(workspace, message, clock(20)) == {name: (said, None) for name, said in late.items()}
    assert len(await workspace.events()) == before + 1
    assert await workspace.statuses() == {"claimed": 1, "sending": 1, "failed_permanent": 1}


async def test_a_retry_and_a_held_delivery_can_be_cancelled(workspace: Autopost) -> None:
    await workspace.channel("c1")
    await workspace.channel("c2", on_unknown="hold")
    message = await push_at(workspace, "hi")
    row, _ = sorted(await workspace.take(), key=lambda row: row["channel_id"])
    await workspace.retry(row["delivery_id"], {"code": "500"}, row["lease"], at=clock(20))
    workspace.wait(seconds=301)
    await workspace.sweep()
    assert await workspace.value(f"select count(*) {HELD}", workspace.workspace) == 1
    assert await cancel(workspace, message) == {"c1": "cancelled", "c2": "cancelled"}
    assert await workspace.value(f"select count(*) {HELD}", workspace.workspace) == 0
    assert await workspace.statuses() == {"failed_permanent": 2}
    assert {event["meta"]["from_status"] for event in await workspace.events("cancelled")} == {"retry"}
    workspace.wait(days=1)
    assert await workspace.take() == []


async def test_the_same_post_may_be_pushed_again_after_it_was_cancelled(workspace: Autopost) -> None:
    await workspace.channel()
    await cancel(workspace, await push_at(workspace, "second thoughts", clock(15)))
    answer = await workspace.push("second thoughts")
    assert (answer["enqueued"], answer["suppressed"]) == (1, 0)
    assert await begins_at(workspace, workspace.now) == ["second thoughts"]


# Reschedule


@pytest.mark.parametrize("first", [None, clock(13), clock(20)], ids=["at once", "earlier", "later"])
async def test_a_post_goes_at_the_last_moment_that_was_named(workspace: Autopost, first: datetime | None) -> None:
    await workspace.channel()
    message = await push_at(workspace, "moved", clock(15))
    if first:
        await move(workspace, message, first)
    assert await move(workspace, message, clock(17)) == {"c1": ("rescheduled", clock(17))}
    assert await move(workspace, message, clock(17)) == {"c1": ("rescheduled", clock(17))}
    await goes_exactly_at(workspace, clock(17), "moved")


async def test_a_move_is_told_with_who_and_why(workspace: Autopost) -> None:
    await workspace.channel()
    message = await push_at(workspace, "moved", clock(15))
    await move(workspace, message, None)
    (event,) = await workspace.events("rescheduled")
    told = {name: event["meta"][name] for name in ("operator", "reason", "to")}
    assert told == {"operator": "anna", "reason": "why", "to": None}
    assert datetime.fromisoformat(event["meta"]["from"]) == clock(15)
    assert await begins_at(workspace, workspace.now) == ["moved"]


async def test_a_moved_post_still_keeps_the_hours_of_its_channel(workspace: Autopost) -> None:
    await workspace.channel(window_mode="windowed", posting_window=OFFICE)
    message = await push_at(workspace, "moved", clock(15))
    assert await move(workspace, message, clock(19)) == {"c1": ("rescheduled", clock(9, day=2))}
    await goes_exactly_at(workspace, clock(9, day=2), "moved")


async def test_a_retry_is_moved_but_never_before_its_backoff_is_over(workspace: Autopost) -> None:
    row = await begun(workspace)
    message = (await workspace.delivery(row["delivery_id"]))["message_id"]
    await workspace.retry(row["delivery_id"], {"code": "500"}, row["lease"], at=clock(12, 30))
    assert await move(workspace, message, clock(14)) == {"c1": ("rescheduled", clock(14))}
    assert await begins_at(workspace, clock(13)) == []
    workspace.now = clock(12, 10)
    assert await move(workspace, message, None) == {"c1": ("rescheduled", clock(12, 30))}
    await goes_exactly_at(workspace, clock(12, 30), "hi")


async def test_a_held_delivery_waits_for_a_word_not_for_a_moment(workspace: Autopost) -> None:
    await workspace.channel(on_unknown="hold")
    row = await begun(workspace)
    workspace.wait(seconds=301)
    await workspace.sweep()
    assert await move(workspace, row["message_id"], clock(20)) == {"c1": ("held", None)}
    assert await workspace.value(f"select scheduled_for is null {HELD}", workspace.workspace)
    assert await workspace.events("rescheduled") == []
    assert await begins_at(workspace, clock(21)) == []


# Media on their way


async def waiting_for_media(workspace: Autopost, at: datetime | None = None) -> Any:
    await workspace.channel()
    media = [{"type": "image", "url": "https://e.org/a.png"}]
    message = await push_at(workspace, "with a picture", at, media=media)
    assert await workspace.value(
        "select not_before = 'infinity' from autopost.deliveries where workspace_id = %s", workspace.workspace
    )
    return message


async def arrive(workspace: Autopost, message_id: Any) -> int:
    blob = (
        '[{"place": 0, "blob_ref": "sha256:aa", "origin_url": "o", "sha256": "aa", "size_bytes": 9,'
        ' "content_type": "image/png", "width": 5, "height": 5}]'
    )
    return await workspace.value(
        "select autopost.media_arrived(%s, %s, %s::jsonb, %s)", workspace.workspace, message_id, blob, workspace.now
    )


async def test_a_picture_that_arrives_after_the_cancel_sends_nothing(workspace: Autopost) -> None:
    message = await waiting_for_media(workspace)
    assert await cancel(workspace, message) == {"c1": "cancelled"}
    assert await arrive(workspace, message) == 0
    assert await begins_at(workspace, clock(20)) == []
    assert await workspace.statuses() == {"failed_permanent": 1}


async def test_a_post_moved_while_its_picture_is_fetched_goes_at_the_new_moment(workspace: Autopost) -> None:
    message = await waiting_for_media(workspace, clock(13))
    assert await move(workspace, message, clock(15)) == {"c1": ("rescheduled", None)}
    assert await begins_at(workspace, clock(14)) == []
    assert await arrive(workspace, message) == 1
    await goes_exactly_at(workspace, clock(15), "with a picture")


# What waits


async def test_the_first_of_what_waits_come_from_the_index_however_many_wait(autopost: Autopost) -> None:
    """Pages, not seconds: 10 of 5,000 in a channel that is closed."""
    await autopost.channel(window_mode="windowed", posting_window=NIGHT)
    await autopost.push("overdue")
    await autopost.sql(
        "insert into autopost.deliveries (workspace_id, delivery_id, message_id, channel_id, content_hash, not_before)"
        " select 'w', core.nth_uuid(b.base, n), m.message_id, 'c1', n::text, %s + n * interval '1 second'"
        " from generate_series(-2500, 2500) n, (select core.uuid7(now()) as base offset 0) b, autopost.messages m",
        autopost.now,
    )
    await autopost.sql("vacuum analyze autopost.deliveries")
    query = "select * from autopost.planned_deliveries('w', null, 10, %s)"
    rows = await autopost.sql(query, autopost.now)
    assert [row["goes_at"] for row in rows] == [clock(22)] * 10
    plan = await autopost.sql(f"explain (analyze, buffers, format json) {query}", autopost.now)
    top = plan[0]["QUERY PLAN"][0]["Plan"]
    assert top["Shared Hit Blocks"] + top["Shared Read Blocks"] < 100
