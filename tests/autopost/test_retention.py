"""What is old goes, page by page; what waits, what a channel still looks back for, and what somebody refers to stays."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16
KEEP = timedelta(days=90)


async def prune(workspace: Autopost, what: str, limit: int = 500, keep: timedelta = KEEP) -> int:
    """Pages until none is left."""
    removed, more = 0, True
    while more:
        (row,) = await workspace.sql(
            f"select * from autopost.prune_{what}(%s, %s, %s, %s)", workspace.workspace, keep, limit, workspace.now
        )
        removed, more = removed + row["removed"], row["more"]
    return removed


async def messages(workspace: Autopost) -> list[str]:
    rows = await workspace.sql(
        "select payload ->> 'text' as text from autopost.messages where workspace_id = %s order by 1",
        workspace.workspace,
    )
    return [row["text"] for row in rows]


async def sent(workspace: Autopost, *texts: str) -> None:
    for text in texts:
        await workspace.push(text)
    while rows := await workspace.take():
        for row in rows:
            await workspace.sent(row["delivery_id"], row["lease"])


async def test_what_was_sent_goes_when_it_is_old_and_its_message_after_it(workspace: Autopost) -> None:
    await workspace.channel()
    await sent(workspace, "a", "b")
    workspace.wait(days=90)
    await sent(workspace, "young")
    assert await prune(workspace, "deliveries") == 0, "not older than 90 days yet"
    workspace.wait(seconds=1)
    assert await prune(workspace, "messages") == 0, "deliveries refer to them"
    assert await prune(workspace, "deliveries") == 2
    assert await prune(workspace, "messages") == 2
    assert await messages(workspace) == ["young"]
    assert await workspace.statuses() == {"sent": 1}


async def test_only_what_has_come_to_an_end_goes(workspace: Autopost) -> None:
    await workspace.channel(rate_rps=None, max_parallel=10)
    for text in ("sent", "dead", "failed", "retry", "sending", "queued"):
        await workspace.push(text)
        if text == "queued":
            break
        (row,) = await workspace.take()
        error = {"category": "TRANSIENT", "code": "500", "scope": "delivery"}
        match text:
            case "sent":
                await workspace.sent(row["delivery_id"], row["lease"])
            case "dead":
                await workspace.policy(max_attempts=1)
                await workspace.retry(row["delivery_id"], error, row["lease"])
                await workspace.policy(max_attempts=5)
            case "failed":
                await workspace.fail(row["delivery_id"], lease=row["lease"])
            case "retry":
                await workspace.retry(row["delivery_id"], error, row["lease"], workspace.now + timedelta(days=365))
    await workspace.push("queued")  # suppressed: it is on its way
    assert await workspace.statuses() == {
        "sent": 1, "dead": 1, "failed_permanent": 1, "retry": 1, "sending": 1, "queued": 1, "deduped": 1,
    }  # fmt: skip
    workspace.wait(days=400)
    assert await prune(workspace, "deliveries") == 4
    assert await workspace.statuses() == {"retry": 1, "sending": 1, "queued": 1}
    await prune(workspace, "messages")
    assert await messages(workspace) == ["queued", "retry", "sending"]


async def test_the_age_of_a_delivery_counts_from_its_end(workspace: Autopost) -> None:
    """Scheduled long before it went."""
    await workspace.channel()
    await workspace.push({"text": "later", "scheduled_for": (workspace.now + timedelta(days=100)).isoformat()})
    workspace.wait(days=100)
    for row in await workspace.take():
        await workspace.sent(row["delivery_id"], row["lease"])
    workspace.wait(days=90)
    assert await prune(workspace, "deliveries") == 0
    workspace.wait(seconds=1)
    assert await prune(workspace, "deliveries") == 1


@pytest.mark.parametrize("whose", ["channel", "policy"])
async def test_what_a_channel_looks_back_for_stays(workspace: Autopost, whose: str) -> None:
    days = 120
    if whose == "policy":
        await workspace.policy(dedup_ttl_hours=days * 24)
    await workspace.channel(dedup_ttl_hours=days * 24 if whose == "channel" else None)
    await sent(workspace, "again and again")
    workspace.wait(days=days - 1)
    assert await prune(workspace, "deliveries") == 0
    assert (await workspace.push("again and again"))["suppressed"] == 1
    workspace.wait(days=2)
    assert await prune(workspace, "deliveries") == 0, "a day more, for clocks that are behind"
    workspace.wait(seconds=1)
    assert await prune(workspace, "deliveries") == 1
    assert (await workspace.push("again and again"))["enqueued"] == 1


async def test_a_message_that_came_again_lately_stays_and_one_that_went_comes_anew(workspace: Autopost) -> None:
    await workspace.push("seen again")
    await workspace.push("seen once")
    workspace.wait(days=89)
    await workspace.push("seen again")
    workspace.wait(days=2)
    assert await prune(workspace, "messages") == 1
    assert await messages(workspace) == ["seen again"]
    await workspace.channel()
    assert (await workspace.push("seen once"))["enqueued"] == 1


async def test_it_goes_on_where_it_was_and_begins_anew_at_the_end(workspace: Autopost) -> None:
    await workspace.channel()
    await sent(workspace, *[f"{n}" for n in range(7)])
    workspace.wait(days=91)
    query = "select * from autopost.prune_deliveries(%s, %s, 3, %s)"
    found = [(await workspace.sql(query, workspace.workspace, KEEP, workspace.now))[0] for _ in range(3)]
    assert [(row["removed"], row["more"]) for row in found] == [(3, True), (3, True), (1, False)]
    reached = (
        "select place, removed, gone_before from ops.retention_progress where workspace_id = %s and rule = 'deliveries'"
    )
    (row,) = await workspace.sql(reached, workspace.workspace)
    assert (row["place"], row["removed"]) == (None, 7)
    assert row["gone_before"] == workspace.now - KEEP


async def test_a_page_of_what_stays_does_not_hold_up_what_comes_after_it(workspace: Autopost) -> None:
    await workspace.channel()
    await workspace.channel("shut", enabled=True, paused_until="infinity")
    for n in range(4):
        await workspace.push({"text": f"waits {n}", "channels": ["shut"]})
    await sent(workspace, "goes")
    workspace.wait(days=91)
    assert await prune(workspace, "deliveries", limit=2) == 1
    assert await workspace.statuses() == {"queued": 5}


async def test_looking_says_what_would_go_and_removes_nothing(workspace: Autopost) -> None:
    await workspace.channel()
    await sent(workspace, "a", "b", "c")
    ended = workspace.now
    workspace.wait(days=91)
    await workspace.push("waits")

    async def look(what: str) -> Any:
        query = f"select * from autopost.look_at_{what}(%s, %s, null, 100, %s)"
        (row,) = await workspace.sql(query, workspace.workspace, KEEP, workspace.now)
        return row["going"], row["oldest"], row["place"]

    assert await look("deliveries") == (3, ended, None)
    assert await look("messages") == (0, None, None)
    await prune(workspace, "deliveries")
    assert await look("deliveries") == (0, None, None)
    assert await look("messages") == (3, ended, None)


async def test_who_keeps_more_from_now_on_has_not_got_back_what_went(workspace: Autopost) -> None:
    """Up to where something was removed once, what is missing was removed."""
    keeps = [timedelta(days=10), timedelta(days=90), timedelta(days=5)]
    for keep in keeps:
        await workspace.sql(
            "select autopost.prune_deliveries(%s, %s, 10, %s)", workspace.workspace, keep, workspace.now
        )
        reached = await workspace.value("select ops.gone_before(%s, 'deliveries')", workspace.workspace)
        assert reached == workspace.now - min(keeps[: keeps.index(keep) + 1])


async def test_runs_go_by_their_beginning(workspace: Autopost) -> None:
    await workspace.push("a")
    workspace.wait(days=50)
    await workspace.push("b")
    workspace.wait(days=41)
    query = "select * from autopost.look_at_runs(%s, %s, null, 100, %s)"
    (row,) = await workspace.sql(query, workspace.workspace, KEEP, workspace.now)
    assert row["going"] == await prune(workspace, "runs") == 1
    assert (
        await workspace.value("select count(*) from autopost.ingest_runs where workspace_id = %s", workspace.workspace)
        == 1
    )


@pytest.mark.parametrize(("query", "index"), [
    ("select from autopost.deliveries where message_id = '00000000-0000-7000-8000-000000000001'", "deliveries_by_message"),
    ("select from autopost.messages where payload ? 'media'"
     " and jsonb_path_query_array(payload, '$.media[*].blob_ref') @> '[\"sha256:1\"]'", "messages_by_media"),
], ids=["a message's deliveries", "a file's posts"])  # fmt: skip
async def test_what_decides_is_found_by_an_index(workspace: Autopost, query: str, index: str) -> None:
    async with workspace.connection.transaction(force_rollback=True):
        await workspace.sql("set local enable_seqscan = off")
        plan = await workspace.sql(f"explain {query}")
    assert index in str(plan)
