"""Every failure that a webhook asked for is told at least once, signed, and without a word that somebody wrote."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import web
from psycopg import AsyncConnection
from psycopg.rows import dict_row
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from vestnik.autopost.alerting import AlertDesk
from vestnik.db.pool import Pool, make_pool
from vestnik.download import Downloader, parse_networks
from vestnik.ops.alerts.notifier import Notifier
from vestnik.ops.jobs.registry import JobContext, JobFailed, JobRetry, JobSnooze
from vestnik.ops.secrets.box import SecretBox
from vestnik.ops.webhooks.caller import Caller
from vestnik.ops.webhooks.sender import WebhookSender

BOX = SecretBox(b"0" * 43 + b"=")
EVENTS = ["delivery.dead", "delivery.failed_permanent", "channel.disabled"]


@dataclass
class Other:
    """An address that answers as ``statuses`` say, then with 204, and what it was sent."""

    url: str = ""
    statuses: list[int] = field(default_factory=list)
    seen: list[tuple[dict[str, str], bytes]] = field(default_factory=list)


@pytest.fixture
async def shared_pool(worker_database: str) -> AsyncIterator[Pool]:
    async with make_pool(worker_database, max_size=4) as pool:
        yield pool


@pytest.fixture
async def other_side() -> AsyncIterator[Other]:
    other = Other()

    async def answer(request: web.Request) -> web.Response:
        other.seen.append(({k.lower(): v for k, v in request.headers.items()}, await request.read()))
        return web.Response(status=other.statuses.pop(0) if other.statuses else 204)

    app = web.Application()
    app.router.add_post("/", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    other.url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    yield other
    await runner.cleanup()


@pytest.fixture
async def sender(shared_pool: Pool) -> AsyncIterator[WebhookSender]:
    downloader = Downloader(allow=parse_networks("127.0.0.0/8"))
    yield WebhookSender(shared_pool, Caller(shared_pool, BOX, downloader))
    await downloader.close()


async def webhook(workspace: Any, url: str = "https://e.example/", events: list[str] = EVENTS) -> None:
    query = "insert into ops.webhooks (workspace_id, webhook_id, url, events) values (%s, 'crm', %s, %s)"
    await workspace.sql(query, workspace.workspace, url, events)


async def secret(workspace: Any, pool: Pool, **how: Any) -> str:
    desk = AlertDesk(pool, BOX, Notifier(pool, {}))
    return await desk.rotate_secret(workspace.workspace, "webhook:crm", actor="me", **how)


async def refuse(workspace: Any, text: str = "a", scope: str = "delivery", code: str = "400") -> Any:
    await workspace.push(text)
    (row,) = await workspace.take()
    error = {"code": code, "scope": scope, "message": "the platform's own words"}
    await workspace.fail(row["delivery_id"], error)
    return row["delivery_id"]


async def collect(workspace: Any) -> list[dict[str, Any]]:
    """What is to be told: the payloads of the jobs."""
    query = "select * from ops.collect_failures(%s, 500, now())"
    await workspace.sql(query, workspace.workspace)
    query = "select payload from ops.jobs where workspace_id = %s and kind = 'webhook.send' order by job_id"
    return [row["payload"] for row in await workspace.sql(query, workspace.workspace)]


async def send(sender: WebhookSender, workspace: Any, pool: Pool, payload: dict[str, Any]) -> Any:
    deadline = asyncio.get_running_loop().time() + 60
    job = JobContext(uuid4(), workspace.workspace, "webhook.send", payload, 1, None, pool, deadline)
    return await sender.kind().handler(job)


async def again_at_once(workspace: Any) -> None:
    query = "update ops.webhooks set next_try_at = null where workspace_id = %s"
    await workspace.sql(query, workspace.workspace)


# What is told


async def test_a_refusal_is_told_by_its_ids_and_its_cause(workspace: Any) -> None:
    await webhook(workspace)
    await workspace.channel()
    delivery = await refuse(workspace, "the text of a post")
    (payload,) = await collect(workspace)
    data = payload["body"]["data"]
    assert payload["body"]["type"] == "delivery.failed_permanent"
    assert datetime.fromisoformat(payload["body"]["timestamp"]) == workspace.now
    assert (data["delivery_id"], data["channel_id"], data["platform"]) == (str(delivery), "c1", "telegram")
    assert (data["attempt"], data["error"]) == (1, {"category": "PERMANENT", "code": "400", "scope": "delivery"})
    assert data["trace_id"]
    assert "text of a post" not in json.dumps(payload)
    assert "own words" not in json.dumps(payload)


async def test_each_failure_is_told_by_its_name(workspace: Any) -> None:
    await webhook(workspace)
    await workspace.policy(max_attempts=1, disable_after_permanent_streak=1)
    await workspace.channel()
    await workspace.channel("picky", send_mode="media")
    await workspace.push("no channel for pictures takes it")
    (row,) = await workspace.take()
    await workspace.retry(row["delivery_id"])
    await refuse(workspace, "b", scope="channel", code="403")
    told = [(p["body"]["type"], p["body"]["data"]["channel_id"]) for p in await collect(workspace)]
    assert sorted(told) == [
        ("channel.disabled", "c1"),
        ("delivery.dead", "c1"),
        ("delivery.failed_permanent", "c1"),
        ("delivery.failed_permanent", "picky"),
        ("delivery.failed_permanent", "picky"),
    ]


async def test_only_what_was_asked_for_is_told(workspace: Any) -> None:
    await webhook(workspace, events=["channel.disabled"])
    await workspace.channel()
    await refuse(workspace)
    query = "select count(*) from ops.failures where workspace_id = %s"
    assert await workspace.value(query, workspace.workspace) == 0
    await workspace.sql("update ops.webhooks set events = %s where workspace_id = %s", EVENTS, workspace.workspace)
    await refuse(workspace, "b")
    await workspace.sql("update ops.webhooks set events = %s where workspace_id = %s", EVENTS[:1], workspace.workspace)
    assert await collect(workspace) == [], "it changed its mind before it was told"


async def test_a_workspace_without_webhooks_keeps_no_failures(workspace: Any) -> None:
    await workspace.channel()
    await refuse(workspace)
    query = "select count(*) from ops.failures where workspace_id = %s"
    assert await workspace.value(query, workspace.workspace) == 0


# Nothing is lost, nothing is told twice for nothing


async def test_what_commits_late_is_told_too(workspace: Any, worker_database: str) -> None:
    """Its moment lies before that of what was collected already."""
    await webhook(workspace)
    await workspace.channel("c1")
    await workspace.channel("c2", rate_group="another")
    await workspace.push("a")
    first, second = await workspace.take()
    async with await AsyncConnection.connect(worker_database, row_factory=dict_row) as slow:
        await workspace.on(slow).fail(first["delivery_id"])
        workspace.wait(minutes=10)
        await workspace.fail(second["delivery_id"])
        assert len(await collect(workspace)) == 1
        await slow.commit()
    assert len(await collect(workspace)) == 2


async def test_what_was_rolled_back_is_not_told(workspace: Any) -> None:
    await webhook(workspace)
    await workspace.channel()
    async with workspace.connection.transaction(force_rollback=True):
        await refuse(workspace)
    assert await collect(workspace) == []


async def test_of_many_collectors_each_failure_becomes_one_job(workspace: Any, worker_database: str) -> None:
    await webhook(workspace)
    await workspace.channel(max_parallel=40)
    for n in range(40):
        await workspace.push(f"post {n}")
    for row in await workspace.take():
        await workspace.fail(row["delivery_id"])

    async def one() -> None:
        async with await AsyncConnection.connect(worker_database, autocommit=True, row_factory=dict_row) as connection:
            query = "select failures from ops.collect_failures(%s, 3)"
            while (await (await connection.execute(query, (workspace.workspace,))).fetchone())["failures"]:  # type: ignore[index]
                pass

    await asyncio.gather(*(one() for _ in range(4)))
    payloads = await collect(workspace)
    assert len({payload["message_id"] for payload in payloads}) == len(payloads) == 40


# The call


async def test_a_message_is_signed_as_standard_webhooks(
    workspace: Any, shared_pool: Pool, sender: WebhookSender, other_side: Other
) -> None:
    await webhook(workspace, other_side.url)
    key = await secret(workspace, shared_pool)
    await workspace.channel()
    await refuse(workspace, "кириллица")
    (payload,) = await collect(workspace)
    assert await send(sender, workspace, shared_pool, payload) == {"told": "crm"}
    ((headers, body),) = other_side.seen
    assert Webhook(key).verify(body, headers)["type"] == "delivery.failed_permanent"
    assert headers["webhook-id"] == payload["message_id"]
    with pytest.raises(WebhookVerificationError):
        Webhook(key).verify(body + b" ", headers)


async def test_two_secrets_sign_while_one_takes_over(
    workspace: Any, shared_pool: Pool, sender: WebhookSender, other_side: Other
) -> None:
    await webhook(workspace, other_side.url)
    await workspace.channel()
    await refuse(workspace)
    (payload,) = await collect(workspace)
    old, new = await secret(workspace, shared_pool), await secret(workspace, shared_pool)
    await send(sender, workspace, shared_pool, payload)
    newest = await secret(workspace, shared_pool, overlap=timedelta(0))
    await send(sender, workspace, shared_pool, payload)
    (first, body), (second, _) = other_side.seen
    for key in (old, new):
        Webhook(key).verify(body, first)
        with pytest.raises(WebhookVerificationError):
            Webhook(key).verify(body, second)
    Webhook(newest).verify(body, second)


async def test_secrets_are_kept_encrypted(workspace: Any, shared_pool: Pool) -> None:
    await webhook(workspace)
    key = await secret(workspace, shared_pool)
    query = "select secret from ops.webhook_secrets where workspace_id = %s"
    stored = bytes(await workspace.value(query, workspace.workspace))
    assert key.removeprefix("whsec_").encode() not in stored
    assert BOX.unlock(stored) == key


async def test_a_failure_is_tried_again_and_holds_up_the_others(
    workspace: Any, shared_pool: Pool, sender: WebhookSender, other_side: Other
) -> None:
    await webhook(workspace, other_side.url)
    await secret(workspace, shared_pool)
    await workspace.channel()
    await refuse(workspace)
    (payload,) = await collect(workspace)
    other_side.statuses = [500, 302]
    for code in ("http_500", "http_302"):
        with pytest.raises(JobRetry) as retry:
            await send(sender, workspace, shared_pool, payload)
        assert (retry.value.code, (retry.value.after or 0) > 5) == (code, True)
        with pytest.raises(JobSnooze):
            await send(sender, workspace, shared_pool, payload)
        await again_at_once(workspace)
    assert await send(sender, workspace, shared_pool, payload) == {"told": "crm"}
    assert len({headers["webhook-id"] for headers, _ in other_side.seen}) == 1
    query = "select failures, last_error from ops.webhooks where workspace_id = %s"
    assert await workspace.sql(query, workspace.workspace) == [{"failures": 0, "last_error": None}]


async def test_after_a_day_it_is_given_up_and_is_an_alert(
    workspace: Any, shared_pool: Pool, sender: WebhookSender, other_side: Other
) -> None:
    await webhook(workspace, other_side.url)
    await secret(workspace, shared_pool)
    await workspace.channel()
    await refuse(workspace)
    (payload,) = await collect(workspace)
    payload["noted_at"] = (datetime.now(UTC) - timedelta(days=1, seconds=1)).isoformat()
    other_side.statuses = [500]
    for _ in range(2):
        with pytest.raises(JobFailed):
            await send(sender, workspace, shared_pool, payload)
    assert len(other_side.seen) == 1
    await workspace.sql(
        "update ops.jobs set status = 'dead', finished_at = %s where workspace_id = %s",
        workspace.now, workspace.workspace,
    )  # fmt: skip
    query = "select alert, subject, details from autopost.monitor_workspace(%s, %s)"
    (alert,) = await workspace.sql(query, workspace.workspace, workspace.now)
    assert (alert["alert"], alert["subject"], alert["details"]["count"]) == ("webhook", "crm", 1)
    await again_at_once(workspace)
    assert await send(sender, workspace, shared_pool, payload) == {"told": "crm"}, "an operator may try it again"


async def test_who_wants_no_more_is_not_asked_again(
    workspace: Any, shared_pool: Pool, sender: WebhookSender, other_side: Other
) -> None:
    await webhook(workspace, other_side.url)
    await secret(workspace, shared_pool)
    await workspace.channel()
    await refuse(workspace)
    (payload,) = await collect(workspace)
    other_side.statuses = [410]
    with pytest.raises(JobFailed):
        await send(sender, workspace, shared_pool, payload)
    assert "skipped" in await send(sender, workspace, shared_pool, payload)
    assert len(other_side.seen) == 1
    query = "select alert from autopost.monitor_workspace(%s, %s)"
    assert [row["alert"] for row in await workspace.sql(query, workspace.workspace, workspace.now)] == ["webhook"]


async def test_many_failures_at_once_are_one_pause(workspace: Any) -> None:
    await webhook(workspace)
    query = """select ops.note_webhook(%s, 'crm', '{"code": "http_500"}', false, %s) as again"""
    for _ in range(8):
        again = await workspace.value(query, workspace.workspace, workspace.now)
        assert (again - workspace.now).total_seconds() == 10
    workspace.now = again
    again = await workspace.value(query, workspace.workspace, workspace.now)
    assert (again - workspace.now).total_seconds() == 20


async def test_a_second_change_of_secrets_gives_the_oldest_no_more_time(workspace: Any) -> None:
    put = "select ops.put_webhook_secret(%s, 'webhook:crm', %s, %s, %s)"
    for name, overlap in ((b"first", "0"), (b"second", "1 hour"), (b"third", "1 day")):
        await workspace.sql(put, workspace.workspace, name, overlap, workspace.now)
        workspace.wait(minutes=1)
    workspace.wait(minutes=57)
    sign = "select ops.webhook_secrets_of(%s, 'webhook:crm', %s) as secret"
    for names in ([b"third", b"second", b"first"], [b"third", b"second"]):
        rows = await workspace.sql(sign, workspace.workspace, workspace.now)
        assert [bytes(row["secret"]) for row in rows] == names
        workspace.wait(minutes=1)
