"""Unknown outcomes: what a channel holds back until somebody has looked, confirmed or sent again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from sends import refused

from queue_audit import violations

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16


async def held(workspace: Autopost, *texts: str, channel_id: str = "c1", **columns: Any) -> list[Any]:
    """What was begun, and never heard of again."""
    await workspace.channel(channel_id, on_unknown="hold", max_parallel=9, **columns)
    for text in texts or ("hi",):
        await workspace.push(text)
        workspace.wait(seconds=1)
    rows = await workspace.take()
    workspace.wait(seconds=301)
    assert (await workspace.sweep())[0] == len(rows)
    return rows


async def confirm(workspace: Autopost, delivery_id: Any, provider_message_id: str | None = None) -> str:
    return await workspace.value(
        "select autopost.confirm_delivery(%s, 'ana', 'I saw it', %s, %s, %s)",
        workspace.workspace, delivery_id, provider_message_id, workspace.now,
    )  # fmt: skip


async def resend(workspace: Autopost, delivery_id: Any) -> str:
    return await workspace.value(
        "select autopost.resend_delivery(%s, 'ana', 'it is not there', %s, %s)",
        workspace.workspace, delivery_id, workspace.now,
    )  # fmt: skip


async def listed(workspace: Autopost, channel_id: str | None = None, limit: int = 200) -> list[Any]:
    return await workspace.sql(
        "select * from autopost.unknown_deliveries(%s, %s, %s, %s)",
        workspace.workspace,
        channel_id,
        limit,
        workspace.now,
    )


async def test_the_list_says_what_is_held_where_and_why(workspace: Autopost) -> None:
    rows = await held(workspace, "first", "second")
    workspace.wait(minutes=5)
    found = await listed(workspace)
    assert [row["delivery_id"] for row in found] == sorted(row["delivery_id"] for row in rows)
    assert [row["shows"] for row in found] == ["first", "second"]
    assert {(row["code"], row["attempt"], row["parts"], row["total"], row["channel_id"]) for row in found} == {
        ("lease_expired", 1, 0, 2, "c1")
    }
    assert {(row["held_at"] - row["began_at"]).total_seconds() for row in found} == {301}
    assert len(await listed(workspace, limit=1)) == 1
    assert await listed(workspace, "another") == []


async def test_a_confirmed_delivery_is_sent_and_says_who_said_so(workspace: Autopost) -> None:
    (row,) = await held(workspace)
    held_at = workspace.now
    workspace.wait(hours=1)
    assert await confirm(workspace, row["delivery_id"], "m77") == "confirmed"
    now = await workspace.delivery(row["delivery_id"])
    assert (now["status"], now["sent_at"], now["provider_message_id"], now["held_at"], now["next_retry_at"]) == (
        "sent", held_at, "m77", None, None,
    )  # fmt: skip
    for event in await workspace.events("confirmed", "sent"):
        meta = event["meta"]
        assert (meta["operator"], meta["reason"], meta["provider_message_id"], event["attempt"]) == (
            "ana",
            "I saw it",
            "m77",
            1,
        )
    assert len(await workspace.events("confirmed", "sent")) == 2
    assert await listed(workspace) == []
    assert await violations(workspace.connection, workspace.workspace) == []


async def test_what_was_confirmed_counts_as_sent_for_the_next_same_post(workspace: Autopost) -> None:
    (row,) = await held(workspace, dedup_ttl_hours=1)
    workspace.wait(minutes=30)
    await confirm(workspace, row["delivery_id"])
    assert (await workspace.push("hi"))["suppressed"] == 1
    workspace.wait(minutes=31)
    assert (await workspace.push("hi"))["enqueued"] == 1, "an hour after it was held: no later can it have arrived"


async def test_what_is_sent_again_goes_at_once_and_says_who_wanted_it(workspace: Autopost) -> None:
    (row,) = await held(workspace)
    workspace.wait(hours=1)
    assert await workspace.take() == []
    assert await resend(workspace, row["delivery_id"]) == "resent"
    (event,) = await workspace.events("manual_requeue")
    assert (event["meta"]["operator"], event["meta"]["from_status"], event["attempt"]) == ("ana", "retry", 1)
    (again,) = await workspace.take()
    assert (again["delivery_id"], again["attempt"]) == (row["delivery_id"], 2)
    await workspace.sent(again["delivery_id"], again["lease"])
    assert await violations(workspace.connection, workspace.workspace) == []


async def test_of_a_series_only_what_is_not_known_to_be_shown_goes_again(workspace: Autopost) -> None:
    await workspace.channel(on_unknown="hold")
    await workspace.push("hi")
    (row,) = await workspace.take()
    await workspace.sql(
        "select autopost.record_progress(%s, %s, 1, 1, '{m1,m2}', '{0,1}', '{\"pinned\": 1}', %s)",
        workspace.workspace, row["delivery_id"], workspace.now,
    )  # fmt: skip
    workspace.wait(seconds=301)
    await workspace.sweep()
    assert (await listed(workspace))[0]["parts"] == 2
    await resend(workspace, row["delivery_id"])
    (again,) = await workspace.take()
    assert again["render_meta"]["series_progress"]["calls"] == 1
    workspace.wait(seconds=301)
    await workspace.sweep()
    await confirm(workspace, row["delivery_id"])
    assert (await workspace.delivery(row["delivery_id"]))["provider_message_id"] == "m1", "what is known of it is kept"


async def test_a_late_success_settles_what_is_held(workspace: Autopost) -> None:
    (row,) = await held(workspace)
    assert await workspace.sent(row["delivery_id"], row["lease"], "late") == "sent"
    assert (await workspace.delivery(row["delivery_id"]))["provider_message_id"] == "late"
    assert await listed(workspace) == []
    await refused(workspace, "VM001", confirm(workspace, row["delivery_id"]), resend(workspace, row["delivery_id"]))


async def test_a_late_result_changes_nothing_of_what_was_confirmed(workspace: Autopost) -> None:
    (row,) = await held(workspace)
    await confirm(workspace, row["delivery_id"], "m1")
    assert await workspace.sent(row["delivery_id"], row["lease"], "late") == "duplicate"
    assert await workspace.fail(row["delivery_id"], None, row["lease"]) == "late"
    now = await workspace.delivery(row["delivery_id"])
    assert (now["status"], now["provider_message_id"]) == ("sent", "m1")
    assert len(await workspace.events("sent")) == 1


async def test_a_success_of_the_first_send_arrives_after_it_was_sent_again(workspace: Autopost) -> None:
    """Until the second begins it settles; then it is too late to prevent it."""
    (row,) = await held(workspace)
    await resend(workspace, row["delivery_id"])
    assert await workspace.sent(row["delivery_id"], row["lease"]) == "sent"
    assert await workspace.take() == []


async def test_what_is_not_held_is_refused_by_name(workspace: Autopost) -> None:
    await workspace.channel()
    await workspace.push("hi")
    (row,) = await workspace.deliveries()
    await refused(workspace, "VM001", confirm(workspace, row["delivery_id"]), resend(workspace, row["delivery_id"]))
    await refused(workspace, "VN001", confirm(workspace, uuid4()), resend(workspace, uuid4()))
    with pytest.raises(Exception, match="is not held: it is queued"):
        await confirm(workspace, row["delivery_id"])


async def test_an_exhausted_delivery_that_is_sent_again_has_one_more_try(workspace: Autopost) -> None:
    await workspace.policy(max_attempts=1)
    (row,) = await held(workspace)
    await resend(workspace, row["delivery_id"])
    (again,) = await workspace.take()
    assert await workspace.retry(again["delivery_id"], {"code": "500"}, again["lease"]) == "dead"


@pytest.mark.parametrize("verb", ["confirm", "resend"])
async def test_a_whole_channel_at_once_but_only_what_was_held_by_then(workspace: Autopost, verb: str) -> None:
    rows = await held(workspace, *"abcde")
    until = workspace.now
    workspace.wait(minutes=1)
    await workspace.push("later")
    (later,) = await workspace.take()
    workspace.wait(seconds=301)
    await workspace.sweep()
    done: list[Any] = []
    for _ in range(3):
        page = await workspace.sql(
            f"select * from autopost.{verb}_deliveries(%s, 'ana', 'all of them', null, 'c1', %s, 2, p_now => %s)",
            workspace.workspace, until, workspace.now,
        )  # fmt: skip
        assert len(page) <= 2
        done += page
    assert {row["delivery_id"] for row in done} == {row["delivery_id"] for row in rows}
    assert {row["outcome"] for row in done} == {"confirmed" if verb == "confirm" else "resent"}
    assert [row["delivery_id"] for row in await listed(workspace)] == [later["delivery_id"]]
    assert await violations(workspace.connection, workspace.workspace) == []


async def test_of_those_named_each_says_what_became_of_it(workspace: Autopost) -> None:
    first, second = await held(workspace, "a", "b")
    await workspace.sent(first["delivery_id"], first["lease"])
    found = await workspace.sql(
        "select * from autopost.confirm_deliveries(%s, 'ana', 'why', %s, p_now => %s)",
        workspace.workspace, [first["delivery_id"], second["delivery_id"], uuid4()], workspace.now,
    )  # fmt: skip
    assert {row["delivery_id"]: (row["outcome"], row["status"]) for row in found} == {
        first["delivery_id"]: ("not_held", "sent"), second["delivery_id"]: ("confirmed", "sent"),
    }  # fmt: skip
