"""A post travels from n8n's webhook to the channels, and nothing but n8n has carried it: no dispatcher and no jobs run."""

from __future__ import annotations

import json
import os
import signal

import pytest
from n8n_stage import OPERATORS, SECRET, SLOW_SECRET, Stage

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_post_arrives_in_every_channel_as_it_was_written(stage: Stage) -> None:
    text = """It's "$1", '$2', ${3}, {{ $json.body }}, a\\b, 5; drop table x; -- Привет 👋"""
    status, answer, _ = await stage.push({"text": text, "source_ref": "odd"})
    assert (status, answer["outcome"], answer["enqueued"]) == (202, "accepted", 2)
    await stage.until(lambda: _is(stage, "Привет", ["sent", "sent"]), "it is sent")
    assert stage.seen("telegram") == stage.seen("max") == [text]
    assert await stage.events("Привет") == ["enqueue", "send_attempt", "sent"]


async def test_the_webhook_answers_like_the_api(stage: Stage) -> None:
    post = {"text": "Once", "source_ref": "once"}
    assert (await stage.push(post))[0] == 202
    assert (await stage.push(post))[:2] == (200, {"outcome": "duplicate"})
    assert (await stage.push(post, X_Vestnik_Secret=SECRET, Authorization="Basic bm9ib2R5Og=="))[0] == 200

    status, answer, headers = await stage.push(post, secret="nobody's")
    assert (status, headers["Www-Authenticate"], answer["status"]) == (401, "Bearer", 401)
    assert headers["Content-Type"].startswith("application/problem+json")

    status, answer, _ = await stage.push({"txt": "?"})
    assert (status, answer["errors"]) == (422, ["txt: unknown key"])
    assert (await stage.push({"text": "a\0b"}))[0] == 422
    assert (await stage.push(b"[1, 2"))[0] in (400, 422)  # n8n itself says so
    assert (await stage.push({"text": "x" * 30_000}))[0] == 413

    assert (await stage.push({"text": "The only one"}, secret=SLOW_SECRET))[0] == 202
    status, _, headers = await stage.push({"text": "One too many"}, secret=SLOW_SECRET)
    assert status == 429
    assert int(headers["Retry-After"]) > 1

    refused = await stage.sql(
        "select action, meta ->> 'reason' as reason, sum((meta ->> 'count')::int) as n from autopost.events"
        " where action like 'ingress%%' group by 1, 2 order by 1, 2"
    )
    assert [(row["action"], row["reason"], row["n"]) for row in refused] == [
        ("ingress_dedup_dropped", "seen_before", 2),
        ("ingress_payload_rejected", "invalid", 2),
        ("ingress_payload_rejected", "too_large", 1),
        ("ingress_rate_limited", "rate", 1),
    ]


async def test_a_platform_that_is_busy_is_asked_again(stage: Stage) -> None:
    await stage.fault("telegram", kind="429", retry_after=1, times=2)
    await stage.push({"text": "Patience"})
    await stage.until(lambda: _is(stage, "Patience", ["sent", "sent"]), "it is sent")
    assert await stage.events("Patience") == [
        "enqueue", "send_attempt", "retry_scheduled", "send_attempt", "retry_scheduled", "send_attempt", "sent",
    ]  # fmt: skip
    assert stage.seen("telegram").count("Patience") == 1


async def test_what_cannot_be_sent_fails_for_good(stage: Stage) -> None:
    await stage.fault("telegram", kind="400", message="Bad Request: not today", times=1)
    await stage.push({"text": "Unwanted"})
    await stage.until(lambda: _is(stage, "Unwanted", ["sent", "failed_permanent"]), "it is refused")
    assert (await stage.events("Unwanted"))[-1] == "failed_permanent"


async def test_the_monitor_frees_what_is_stuck_and_tells_the_operators(stage: Stage) -> None:
    await stage.sql("update autopost.policies set max_attempts = 1")
    await stage.sql(
        "insert into ops.alert_targets (workspace_id, target_id, kind, address, auth_ref, language)"
        " values ('shop', 'chat', 'telegram', %s, 'bot', 'ru')",
        OPERATORS,
    )
    await stage.fault("max", kind="500", times=1)
    await stage.push({"text": "Hopeless"})
    await stage.until(lambda: _is(stage, "Hopeless", ["dead", "sent"]), "it is given up")
    await stage.execute("vestnik03monitor")
    await stage.execute("vestnik03monitor")  # what was told is not told again
    (told,) = stage.seen("telegram", OPERATORS)
    assert told.startswith("Vestnik · shop\n🔴 не доставлено: 1 (500)")
    assert (await stage.sql("select alert from ops.alerts where cleared_at is null")) == [{"alert": "dead"}]


async def test_a_feed_is_read_once(stage: Stage) -> None:
    await stage.add_item("city", id="1", title="Old news", link="https://city.example/1")
    await stage.add_item("city", id="2", title="Newest news", link="https://city.example/2")
    config = json.dumps({"url": f"{stage.sandbox.url}/feeds/city.xml"})
    await stage.sql(
        "insert into autopost.pull_sources (workspace_id, source_id, kind, config_json, backlog)"
        " values ('shop', 'city', 'rss', %s, 1)",
        config,
    )
    await stage.until(lambda: _is(stage, "Newest news", ["sent", "sent"]), "the newest is posted")
    await stage.add_item("city", id="3", title="Fresh news", link="https://city.example/3")
    await stage.until(lambda: _is(stage, "Fresh news", ["sent", "sent"]), "what is new is posted")
    assert [text for text in stage.seen("telegram") if "news" in text] == [
        "Newest news\n\nhttps://city.example/2", "Fresh news\n\nhttps://city.example/3",
    ]  # fmt: skip


async def test_a_feed_that_cannot_be_read_says_so(stage: Stage) -> None:
    config = json.dumps({"url": f"{stage.sandbox.url}/feeds/none.xml"})
    await stage.sql(
        "insert into autopost.pull_sources (workspace_id, source_id, kind, config_json) values ('shop', 'none', 'rss', %s)",
        config,
    )

    async def failed() -> bool:
        return bool(await stage.sql("select 1 from autopost.pull_sources where source_id = 'none' and failures > 0"))

    await stage.until(failed, "its run has failed")


async def test_a_call_that_the_api_refuses_is_made_again(stage: Stage) -> None:
    await stage.sql("update autopost.policies set max_attempts = 100")
    await stage.sql("update core.api_keys set revoked_at = now()")
    await stage.push({"text": "Locked out"})
    await stage.until(lambda: stage.refused("Locked out", "api_401"), "it is refused")
    await stage.sql("update core.api_keys set revoked_at = null")
    await stage.until(lambda: _is(stage, "Locked out", ["sent", "sent"]), "it is sent")


async def test_an_api_that_is_away_leaves_nothing_behind_in_sending(stage: Stage) -> None:
    os.kill(stage.api_pid, signal.SIGKILL)
    status, _, _ = await stage.push({"text": "Nobody there"})
    assert status == 202  # the webhook needs the database alone
    await stage.until(lambda: stage.refused("Nobody there", "api_unreachable"), "it is to be tried again")


async def test_no_execution_has_failed(stage: Stage) -> None:
    assert await stage.failed_executions() == []


async def _is(stage: Stage, text: str, statuses: list[str]) -> bool:
    return await stage.statuses(text) == statuses
