"""Every SQL text of the workflows on the real schema, and the way of a post through all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from by_hand import DISPATCHER, ByHand
from flows import ALL, Flow
from psycopg import AsyncConnection

from vestnik.sandbox.faults import parse_faults

MAIN, SLOW = "the-main-secret-of-the-test", "the-slow-secret-of-the-test"
STATEMENTS = [(flow, node["name"]) for flow in ALL for node in flow.of_type("postgres")]


@pytest.mark.pg16
@pytest.mark.parametrize(("flow", "node"), STATEMENTS, ids=[f"{flow.name}: {node}" for flow, node in STATEMENTS])
async def test_the_schema_takes_it(flow: Flow, node: str, worker_database: str) -> None:
    async with await AsyncConnection.connect(worker_database, autocommit=True) as db:
        await db.execute(f"prepare statement as {flow.sql(node)}".encode())


async def test_a_post_goes_in_once_and_comes_out(by_hand: ByHand) -> None:
    status, done = await by_hand.push(MAIN, {"text": "Hello", "source_ref": "1"})
    assert (status, done["enqueued"]) == (202, 1)
    assert (await by_hand.push(MAIN, {"text": "Hello", "source_ref": "1"}))[0] == 200
    assert await by_hand.dispatch("other, another") == []
    assert await by_hand.dispatch("other, shop") == ["sent"]
    assert await by_hand.dispatch() == []
    assert seen(by_hand) == ["Hello"]
    (row,) = await rows(by_hand, "select status, attempt, provider_message_id, sent_at from autopost.deliveries")
    assert (row["status"], row["attempt"], row["provider_message_id"]) == ("sent", 1, "1")
    assert row["sent_at"] is not None


async def test_what_is_refused_at_the_door_is_noted(by_hand: ByHand) -> None:
    assert await by_hand.push("nobody's", {"text": "Hello"}) == (401, None)
    assert await by_hand.push(MAIN, {"text": "x" * 2000}) == (413, 2000)
    assert await by_hand.push(MAIN, {"txt": "?"}) == (422, ["txt: unknown key"])
    assert await by_hand.push(MAIN, {"text": "a\0b"}) == (422, None)
    assert (await by_hand.push(SLOW, {"text": "one"}))[0] == 202
    status, retry_after = await by_hand.push(SLOW, {"text": "two"})
    assert (status, retry_after > 500) == (429, True)
    noted = await rows(
        by_hand,
        "select meta ->> 'reason' as reason from autopost.events where action like 'ingress%%' order by action, 1",
    )
    assert [row["reason"] for row in noted] == ["invalid", "too_large", "rate"]


async def test_a_busy_platform_a_refusal_and_an_api_that_says_no(by_hand: ByHand) -> None:
    faults = by_hand.sandbox.state.platforms["telegram"].faults
    await by_hand.push(MAIN, {"text": "Patience"})
    faults[:] = parse_faults([{"kind": "500", "times": 1}, {"kind": "400", "message": "Bad Request: no"}])
    assert await by_hand.dispatch() == ["retry"]
    outcomes: list[str] = []
    while not outcomes:
        outcomes = await by_hand.dispatch()
    assert outcomes == ["failed_permanent"]

    faults.clear()
    await by_hand.push(MAIN, {"text": "Locked out"})
    key, by_hand.key = by_hand.key, "vkey_nobody's"
    assert await by_hand.dispatch() == ["retry"]
    by_hand.key, outcomes = key, []
    while not outcomes:
        outcomes = await by_hand.dispatch()
    assert outcomes == ["sent"]
    actions = await rows(by_hand, "select action, error ->> 'code' as code from autopost.events order by ts, id")
    assert [(row["action"], row["code"]) for row in actions if row["code"]] == [
        ("retry_scheduled", "500"), ("failed_permanent", "400"), ("retry_scheduled", "api_401"),
    ]  # fmt: skip


async def test_the_monitor_frees_tells_and_tells_later(by_hand: ByHand) -> None:
    await rows(by_hand, "update autopost.policies set sending_lease = '1 millisecond', max_attempts = 1")
    await rows(
        by_hand,
        "insert into ops.alert_targets (workspace_id, target_id, kind, address, auth_ref)"
        " values ('shop', 'chat', 'telegram', '-1002', 'bot'), ('shop', 'nobody', 'telegram', '-9', 'bot')",
    )
    await by_hand.push(MAIN, {"text": "Stuck"})
    await by_hand.sql(DISPATCHER, "Claim", "shop", "n8n-1", 20)
    assert len(await by_hand.sql(DISPATCHER, "Begin", "shop", "n8n-1", 20)) == 1  # and then nothing is heard of it
    (alert,) = await by_hand.monitor()
    assert (alert["alert"], alert["details"]["count"]) == ("dead", 1)
    assert seen(by_hand, "-1002") == ["1 dead, mostly with lease_expired"]
    await by_hand.monitor()
    assert len(seen(by_hand, "-1002")) == 1
    told = await rows(by_hand, "select target_id, failures from ops.alert_targets order by 1")
    assert [(row["target_id"], row["failures"]) for row in told] == [("chat", 0), ("nobody", 1)]


async def test_a_feed_becomes_posts(by_hand: ByHand) -> None:
    await rows(
        by_hand,
        "insert into autopost.pull_sources (workspace_id, source_id, kind, config_json, backlog)"
        """ values ('shop', 'city', 'rss', '{"url": "http://127.0.0.1:1/"}', 1)""",
    )
    entries = [
        {"guid": "2", "title": "Newest", "link": "https://city.example/2"},
        {"id": "1", "title": "Old", "link": "javascript:alert(1)"},
    ]
    assert await by_hand.pull([]) == 0
    assert await by_hand.pull(entries) == 2  # the old one is noted, and not posted
    assert await by_hand.pull([{"guid": "3", "title": "Fresh", "link": "mailto:x"}, *entries]) == 1
    assert await by_hand.pull(None) == 0
    posts = await rows(by_hand, "select rendered_text as text from autopost.deliveries order by created_at")
    assert [row["text"].split("\n")[0] for row in posts] == ["Newest", "Fresh"]
    (source,) = await rows(by_hand, "select failures, last_error ->> 'code' as code from autopost.pull_sources")
    assert (source["failures"], source["code"]) == (1, "n8n")
    await rows(
        by_hand,
        "insert into ops.schedules (workspace_id, schedule_id, kind, every, next_at)"
        " values ('shop', 'source:city', 'source.pull', '1 hour', now())",
    )
    assert await by_hand.pull(None) == 0
    (source,) = await rows(by_hand, "select failures from autopost.pull_sources")
    assert source["failures"] == 1  # Vestnik's own jobs read it now


def test_between_them_these_tests_run_every_statement() -> None:
    """One that is only prepared may still not do what it should."""
    source = (Path(__file__).parent / "by_hand.py").read_text()
    assert [node for _, node in STATEMENTS if f'"{node}"' not in source] == []


def seen(by_hand: ByHand, chat: str = "-1001") -> list[str]:
    return [post.as_json()["visible"] for post in by_hand.sandbox.state.platforms["telegram"].chats[chat].posts]


async def rows(by_hand: ByHand, query: str) -> list[dict[str, Any]]:
    cursor = await by_hand.db.execute(query.encode())
    return await cursor.fetchall() if cursor.description else []
