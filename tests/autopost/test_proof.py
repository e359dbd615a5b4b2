"""The live proof: what happened lately is replayed, and no contradiction passes. Each kind of them is planted here."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from operated import requeue
from planned import cancel
from proving import alert, forge, kinds, prove, rewrite, unsay

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16


async def sent(workspace: Autopost, **columns: Any) -> Any:
    """One delivery that went out at its second attempt, an hour's worth of history behind it."""
    await workspace.channel(**columns)
    await workspace.push("hi")
    (row,) = await workspace.take()
    workspace.wait(minutes=2)
    await workspace.retry(row["delivery_id"], None, row["lease"])
    workspace.wait(minutes=2)
    (row,) = await workspace.take()
    workspace.wait(minutes=2)
    await workspace.sent(row["delivery_id"], row["lease"])
    return row


async def test_a_sound_history_of_every_kind_has_no_contradiction(workspace: Autopost) -> None:
    await sent(workspace, on_unknown="hold", max_parallel=3)
    for text in "abcdefgh":
        await workspace.push(text)
    a, b, c = await workspace.take()
    workspace.wait(seconds=301)
    await workspace.sweep()
    who = (workspace.workspace, "ana", "looked")
    await workspace.sql(
        "select autopost.confirm_delivery(%s, %s, %s, %s, 'm7', %s)", *who, a["delivery_id"], workspace.now
    )
    await workspace.sql("select autopost.resend_delivery(%s, %s, %s, %s, %s)", *who, b["delivery_id"], workspace.now)
    await workspace.sent(c["delivery_id"], c["lease"])
    workspace.wait(minutes=1)
    rows = await workspace.take()
    await workspace.fail(rows[0]["delivery_id"], None, rows[0]["lease"])
    await workspace.sql("update autopost.deliveries set status = 'retry', next_retry_at = %s where status = 'failed_permanent'"
                        " and workspace_id = %s", workspace.now, workspace.workspace)  # fmt: skip
    await forge(workspace, rows[0], "manual_requeue", attempt=rows[0]["attempt"])
    (waiting,) = await workspace.sql(
        "select message_id from autopost.deliveries where workspace_id = %s and status = 'queued' limit 1",
        workspace.workspace,
    )
    await cancel(workspace, waiting["message_id"])
    await workspace.push("hi")
    workspace.wait(minutes=1)
    assert await prove(workspace) == []
    assert await alert(workspace, "autopost.proof") is None
    assert len(set((await workspace.statuses()).keys())) >= 5


@pytest.mark.parametrize(
    ("forged", "after", "says"),
    [
        ("retry_scheduled", 300, "retry_scheduled cannot follow sent"),
        ("claim_released", 300, "claim_released cannot follow sent"),
        ("manual_requeue", 300, "manual_requeue cannot follow sent"),
        ("dedup_suppressed", 300, "dedup_suppressed cannot follow sent"),
        ("failed_permanent", 300, "failed_permanent cannot follow sent"),
        ("enqueue", 300, "enqueue cannot follow send_attempt"),
        ("cancelled", -100, "cancelled cannot follow send_attempt"),
    ],
)
async def test_a_move_that_the_table_forbids_is_found_with_both_events(
    workspace: Autopost, forged: str, after: float, says: str
) -> None:
    row = await sent(workspace)
    event = await forge(workspace, row, forged, attempt=2, after=after)
    workspace.wait(minutes=10)
    (trouble,) = [t for t in await prove(workspace) if t["kind"] == "impossible_move" and t["says"] == says]
    assert trouble["subject"] == str(row["delivery_id"])
    assert trouble["details"]["second_event"] == str(event)
    known = {str(e["id"]): e["action"] for e in await workspace.events()}
    assert known[trouble["details"]["first_event"]] == says.split()[-1]


async def test_a_begin_whose_last_send_came_to_no_end_is_found(workspace: Autopost) -> None:
    row = await sent(workspace)
    await unsay(workspace, row, "retry_scheduled")
    assert await kinds(workspace) == ["impossible_move"]


async def test_a_state_that_no_event_told_of_is_found(workspace: Autopost) -> None:
    row = await sent(workspace)
    await rewrite(workspace, row, status="retry", next_retry_at=workspace.now)
    assert [(t["kind"], t["says"]) for t in await prove(workspace)] == [
        ("sent_events", "it is retry, and 1 events say that it was sent"),
        ("status", "the last event is sent, and it is retry"),
    ][1:]  # fmt: skip


async def test_a_lost_event_of_the_end_is_found(workspace: Autopost) -> None:
    row = await sent(workspace)
    await unsay(workspace, row, "sent")
    assert await kinds(workspace) == ["sent_events", "status"]


async def test_two_events_that_say_it_was_sent_are_found(workspace: Autopost) -> None:
    row = await sent(workspace)
    event = await forge(workspace, row, "sent", attempt=2, after=-1)
    (trouble,) = [t for t in await prove(workspace) if t["kind"] == "sent_events"]
    assert trouble["says"] == "it is sent, and 2 events say that it was sent"
    assert str(event) in trouble["details"].values()


@pytest.mark.parametrize(
    "columns", [{"attempt": 3, "lease": 3}, {"lease": 3}, {"settled_lease": 4}, {"attempt": 1, "lease": 1}]
)
async def test_a_counter_that_is_not_the_number_of_begins_is_found(
    workspace: Autopost, columns: dict[str, int]
) -> None:
    row = await sent(workspace)
    await rewrite(workspace, row, **columns)
    assert await kinds(workspace) == ["begins"]


async def test_two_begins_of_one_attempt_are_found(workspace: Autopost) -> None:
    row = await sent(workspace)
    await forge(workspace, row, "send_attempt", attempt=2, after=-120)
    assert set(await kinds(workspace)) == {"begins", "impossible_move"}


async def test_a_delivery_without_a_beginning_is_found_unless_its_day_is_gone(workspace: Autopost) -> None:
    row = await sent(workspace)
    await workspace.push("other")
    await unsay(workspace, row, "enqueue")
    assert await kinds(workspace) == [], "nothing is older: it may have gone with its day"
    await workspace.sql("update autopost.events set ts = ts - interval '1 hour' where workspace_id = %s and action = 'enqueue'", workspace.workspace)  # fmt: skip
    workspace.wait(minutes=1)
    assert await kinds(workspace) == ["no_beginning"]


async def paced(workspace: Autopost, **columns: Any) -> list[Any]:
    """A channel whose measures are known, and two posts a minute apart that went through it."""
    await workspace.channel(**columns)
    await prove(workspace)
    return await a_minute_apart(workspace, "ab")


async def a_minute_apart(workspace: Autopost, texts: str) -> list[Any]:
    rows = []
    for text in texts:
        workspace.wait(minutes=1)
        await workspace.push(text)
        rows += await workspace.take()
        workspace.wait(seconds=5)
        await workspace.sent(rows[-1]["delivery_id"], rows[-1]["lease"])
    return rows


async def move_begin(workspace: Autopost, row: Any, seconds: float) -> None:
    await workspace.sql(
        "update autopost.events set ts = ts + make_interval(secs => %s) where workspace_id = %s and delivery_id = %s"
        " and action = 'send_attempt'", seconds, workspace.workspace, row["delivery_id"],
    )  # fmt: skip


@pytest.mark.parametrize(("earlier", "found"), [(0, []), (55, []), (55.000002, ["too_fast"])])
async def test_begins_closer_than_a_step_are_found(workspace: Autopost, earlier: float, found: list[str]) -> None:
    first, second = await paced(workspace, rate_rps=0.1)
    await move_begin(workspace, first, 15)
    await workspace.sql("update autopost.events set ts = ts + interval '10 s' where workspace_id = %s and delivery_id = %s"
                        " and action = 'sent'", workspace.workspace, first["delivery_id"])  # fmt: skip
    await move_begin(workspace, second, 15 - earlier)
    troubles = await prove(workspace)
    assert [t["kind"] for t in troubles] == found
    assert all(t["subject"] == str(second["delivery_id"]) and "first_event" in t["details"] for t in troubles)


@pytest.mark.parametrize(("earlier", "found"), [(0, []), (55, []), (55.000002, ["group_too_fast"])])
async def test_begins_of_a_group_closer_than_its_step_are_found(
    workspace: Autopost, earlier: float, found: list[str]
) -> None:
    await workspace.sql(
        "insert into autopost.platform_limits (workspace_id, platform, rate_group, rate_rps) values (%s, 'telegram', 'bot', 0.1)",
        workspace.workspace,
    )
    await workspace.channel("c2", route_filter={"include_any": ["x"]})
    first, second = await paced(workspace)
    await workspace.sql("update autopost.events set channel_id = 'c2' where workspace_id = %s and delivery_id = %s",
                        workspace.workspace, first["delivery_id"])  # fmt: skip
    await move_begin(workspace, second, 5 - earlier)
    await move_begin(workspace, first, 5)
    assert await kinds(workspace) == found


async def test_a_rate_that_was_changed_does_not_judge_the_past(workspace: Autopost) -> None:
    await paced(workspace, rate_rps=1)
    await workspace.sql("update autopost.channels set rate_rps = 0.01 where workspace_id = %s", workspace.workspace)
    assert await kinds(workspace) == []
    workspace.wait(minutes=1)
    assert await kinds(workspace) == []


async def test_a_rate_that_was_changed_for_a_moment_does_not_judge_what_went_out_in_it(workspace: Autopost) -> None:
    """Nobody looked in between: the measures are those that were noted."""
    _, second = await paced(workspace, rate_rps=0.1)
    await move_begin(workspace, second, -58)
    await workspace.sql("select core.note_change(%s, 'apply', 'changed', 'channel c1', '{}', %s)",
                        workspace.workspace, workspace.now)  # fmt: skip
    assert "too_fast" not in await kinds(workspace)
    workspace.wait(minutes=5)
    _, later = await a_minute_apart(workspace, "cd")
    await move_begin(workspace, later, -58)
    assert "too_fast" in await kinds(workspace), "what came after it is judged"


async def test_a_rate_that_changes_during_a_look_does_not_judge_what_came_before(workspace: Autopost) -> None:
    """The measures were noted, then somebody commits others, then the begins are read."""
    await paced(workspace, rate_rps=0.1)
    await prove(workspace)
    await workspace.sql("update autopost.channels set rate_rps = 0.01 where workspace_id = %s", workspace.workspace)
    look = "select kind from autopost.hasty_begins(%s, %s - interval '1 hour', %s)"
    assert await workspace.sql(look, workspace.workspace, workspace.now, workspace.now) == []


async def test_a_begin_is_held_against_the_last_one_of_an_earlier_page(workspace: Autopost) -> None:
    first, second = await paced(workspace, rate_rps=0.1)
    await move_begin(workspace, second, -56)
    before = (
        "select max(ts) from autopost.events where workspace_id = %s and action = 'send_attempt' and delivery_id = %s"
    )
    first_ts = await workspace.value(before, workspace.workspace, first["delivery_id"])
    look = "select kind from autopost.hasty_begins(%s, %s + interval '1 second', %s)"
    found = await workspace.sql(look, workspace.workspace, first_ts, workspace.now)
    assert [row["kind"] for row in found] == ["too_fast"]


async def test_a_send_that_began_before_the_page_takes_a_place_in_it(workspace: Autopost) -> None:
    """And has no event since: it is still being sent."""
    await workspace.channel(max_parallel=2)
    await prove(workspace)
    workspace.wait(minutes=1)
    await workspace.push_batch({"text": "a"}, {"text": "b"})
    assert len(await workspace.take()) == 2
    await workspace.sql("update autopost.channels set max_parallel = 1 where workspace_id = %s", workspace.workspace)
    await workspace.sql("select autopost.note_paces(%s, %s)", workspace.workspace, workspace.now - timedelta(minutes=1))
    early, late = await workspace.deliveries()
    await workspace.sql("update autopost.events set ts = ts + interval '5 minutes' where workspace_id = %s and delivery_id = %s"
                        " and action = 'send_attempt'", workspace.workspace, late["delivery_id"])  # fmt: skip
    look = (
        "select delivery_id, kind from autopost.crowded_begins(%s, %s + interval '1 minute', %s + interval '9 minutes')"
    )
    found = await workspace.sql(look, workspace.workspace, workspace.now, workspace.now)
    assert [(row["delivery_id"], row["kind"]) for row in found] == [(late["delivery_id"], "too_many")]
    assert early["delivery_id"] != late["delivery_id"]


async def test_a_change_of_a_group_or_of_the_policy_counts_for_every_channel(workspace: Autopost) -> None:
    for n, subject in enumerate(("limit telegram/bot", "policy of w", "source news")):
        if n == 0:
            await paced(workspace, rate_rps=0.1)
        _, second = await a_minute_apart(workspace, f"{n}{n + 5}")
        await move_begin(workspace, second, -58)
        await workspace.sql("select core.note_change(%s, 'apply', 'changed', %s, '{}', %s)",
                            workspace.workspace, subject, workspace.now)  # fmt: skip
        assert ("too_fast" in await kinds(workspace)) == (subject == "source news")
        workspace.wait(minutes=5)


async def test_a_group_that_is_slower_now_is_judged_from_when_that_was_noted(workspace: Autopost) -> None:
    await paced(workspace)
    await workspace.sql("update autopost.platform_limits set rate_rps = 0.01 where workspace_id = %s", workspace.workspace)  # fmt: skip
    look = "select kind from autopost.hasty_begins(%s, %s - interval '1 hour', %s)"
    for since, found in ((timedelta(0), []), (timedelta(hours=2), ["group_too_fast"])):
        await workspace.sql("select autopost.note_paces(%s, %s)", workspace.workspace, workspace.now - since)
        rows = await workspace.sql(look, workspace.workspace, workspace.now, workspace.now)
        assert [row["kind"] for row in rows] == found
        await workspace.sql("delete from autopost.channel_paces where workspace_id = %s", workspace.workspace)


async def test_a_page_that_is_full_ends_with_all_of_one_moment(workspace: Autopost) -> None:
    await workspace.channel()
    await prove(workspace)
    workspace.wait(minutes=3)
    await workspace.push_batch(*({"text": f"post {n}"} for n in range(5)))
    row = (await workspace.deliveries())[-1]
    await rewrite(workspace, row, lease=9)
    (page,) = await workspace.sql("select * from autopost.prove_page(%s, 2, p_now => %s)", workspace.workspace, workspace.now)  # fmt: skip
    assert [t["subject"] for t in page["troubles"]] == [str(row["delivery_id"])]


async def test_more_sends_at_once_than_a_channel_may_have_are_found(workspace: Autopost) -> None:
    first, second = await paced(workspace)
    await move_begin(workspace, second, -63)
    (trouble,) = await prove(workspace)
    assert (trouble["kind"], trouble["says"]) == ("too_many", "2 sends of channel c1 were under way, it may have 1")
    assert trouble["details"]["channel_id"] == first["channel_id"]


async def test_the_same_post_twice_within_its_window_is_found(workspace: Autopost) -> None:
    first, second = await paced(workspace)
    (one,) = [d for d in await workspace.deliveries() if d["delivery_id"] == first["delivery_id"]]
    await rewrite(workspace, second, message_id=one["message_id"], content_hash=one["content_hash"])
    (trouble,) = [t for t in await prove(workspace) if t["kind"] == "sent_twice"]
    assert trouble["subject"] == str(second["delivery_id"])
    assert trouble["details"] == {"other_delivery": str(first["delivery_id"])}


@pytest.mark.parametrize("between", [0, 1], ids=["the younger comes later", "the older comes later"])
async def test_one_that_was_requeued_after_the_window_of_the_other_is_sound(workspace: Autopost, between: int) -> None:
    await workspace.policy(max_attempts=1)
    await workspace.channel(dedup_ttl_hours=1)
    await prove(workspace)
    workspace.wait(minutes=1)
    await workspace.push("hi")
    (old,) = await workspace.take()
    await workspace.retry(old["delivery_id"], None, old["lease"])
    workspace.wait(minutes=1)
    await workspace.push("hi")
    (young,) = await workspace.take()
    await workspace.retry(young["delivery_id"], None, young["lease"])
    for row in [old, young][:: 1 - 2 * between]:
        await requeue(workspace, row["delivery_id"])
        (again,) = await workspace.take()
        await workspace.sent(again["delivery_id"], again["lease"])
        workspace.wait(hours=1, minutes=2)
    assert await workspace.statuses() == {"sent": 2}
    workspace.wait(minutes=1)
    assert await prove(workspace) == []


async def test_events_of_transactions_side_by_side_may_come_in_any_order(workspace: Autopost) -> None:
    """The sweep began before the late success did, and was told with the later time."""
    await workspace.channel()
    await workspace.push("hi")
    (row,) = await workspace.take()
    workspace.wait(seconds=301)
    await workspace.sweep()
    await workspace.sent(row["delivery_id"], row["lease"])
    await workspace.sql("update autopost.events set ts = ts + interval '10 seconds' where workspace_id = %s"
                        " and action = 'sending_lease_expired'", workspace.workspace)  # fmt: skip
    workspace.wait(minutes=1)
    assert await prove(workspace) == []
    await workspace.sql("update autopost.events set ts = ts + interval '5 minutes' where workspace_id = %s"
                        " and action = 'sending_lease_expired'", workspace.workspace)  # fmt: skip
    workspace.wait(minutes=10)
    assert set(await kinds(workspace)) == {"impossible_move", "status"}


async def test_pages_see_what_one_look_sees(workspace: Autopost) -> None:
    row = await sent(workspace)
    for n in range(30):
        await workspace.push(f"post {n}")
        workspace.wait(seconds=1)
    await rewrite(workspace, row, lease=9)
    found = await prove(workspace, page=7)
    assert {(t["kind"], t["subject"]) for t in found} == {("begins", str(row["delivery_id"]))}


async def test_a_run_goes_on_where_the_last_one_stopped_and_no_further_back_than_it_may(workspace: Autopost) -> None:
    row = await sent(workspace)
    await prove(workspace)
    workspace.wait(days=2)
    (page,) = await workspace.sql(
        "select * from autopost.prove_page(%s, p_now => %s)", workspace.workspace, workspace.now
    )
    assert (page["events"], page["skipped"].total_seconds()) == (0, 2 * 86400 - 6 * 3600 + 60)
    await forge(workspace, row, "manual_requeue", attempt=2, after=-30)
    assert set(await kinds(workspace)) == {"impossible_move", "status"}, "the last minute is looked at once more"


async def test_an_alert_names_what_was_found_and_ends_a_day_later(workspace: Autopost) -> None:
    row = await sent(workspace)
    await rewrite(workspace, row, lease=9)
    await prove(workspace)
    raised = await alert(workspace, "autopost.proof")
    assert (raised["severity"], raised["details"]["count"]) == ("critical", 1)
    assert raised["details"]["findings"][0]["subject"] == str(row["delivery_id"])
    assert "hi" not in str(raised["details"]).split()
    (finding,) = await workspace.sql("select * from autopost.list_findings(%s)", workspace.workspace)
    assert (finding["source"], finding["kind"], finding["subject"]) == ("proof", "begins", str(row["delivery_id"]))
    workspace.wait(days=1, seconds=1)
    await prove(workspace)
    assert await alert(workspace, "autopost.proof") is None
    workspace.wait(days=30)
    await prove(workspace)
    assert await workspace.sql("select * from autopost.list_findings(%s)", workspace.workspace) == []


async def test_one_born_refused_that_was_put_back_in_the_same_moment_is_sound(workspace: Autopost) -> None:
    await workspace.channel()
    await workspace.push({"text": "<b>broken", "parse_mode": "HTML"})
    (born_refused,) = await workspace.deliveries("failed_permanent")
    await workspace.sql("update autopost.deliveries set status = 'retry', next_retry_at = %s where workspace_id = %s",
                        workspace.now, workspace.workspace)  # fmt: skip
    await forge(workspace, born_refused, "manual_requeue", attempt=0)
    assert await kinds(workspace) == []


async def test_what_operators_do_again_and_again_in_one_moment_is_sound(workspace: Autopost) -> None:
    again_and_again = ["manual_requeue", "cancelled", "manual_requeue"]
    await workspace.channel()
    await workspace.push({"text": "<b>broken", "parse_mode": "HTML"})
    (row,) = await workspace.deliveries()
    for action in again_and_again:
        await forge(workspace, row, action, attempt=0)
    workspace.wait(minutes=5)
    for action in ("cancelled", "manual_requeue", "cancelled"):
        await forge(workspace, row, action, attempt=0)
    assert await kinds(workspace) == []
