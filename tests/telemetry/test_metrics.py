"""``/metrics``: what is counted on a post's way, what waits in the database, and who may read it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from observatory import service
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from vestnik.api.metrics import Gauges, metrics_app
from vestnik.autopost import backlog
from vestnik.autopost.backlog import Backlog
from vestnik.db.pool import Pool, call
from vestnik.sandbox.server import Sandbox
from vestnik.telemetry.exposition import Exposition

Samples = dict[tuple[str, tuple[str, ...]], float]


def samples(page: str) -> Samples:
    """By name and the values of the labels, in the order of their names."""
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def of_families(families: list[Metric]) -> Samples:
    return samples(Exposition().page(families).decode())


async def read(url: str, **headers: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as http, http.get(url, headers=headers) as answer:
        return answer.status, await answer.text()


async def test_a_posts_way_is_counted_and_read_on_a_port_of_its_own(
    database: str, pool: Pool, tmp_path: Path, sandbox: Sandbox, secret: str
) -> None:
    settings = {"METRICS_PORT": "0", "METRICS_TOKEN": "a-token", "TELEGRAM_API_URL": sandbox.telegram_url}
    async with service(database, tmp_path, "api", "dispatcher", **settings) as running:
        url = f"{running.urls['API']}/v1/push"
        async with aiohttp.ClientSession() as http:
            for text, door in (("One", secret), ("One", secret), ("", secret), ("Two", "nobody's")):
                headers = {"Authorization": f"Bearer {door}"}
                async with http.post(url, json={"text": text}, headers=headers):
                    pass
        while await call(pool, "select 1 from autopost.deliveries where status in ('queued', 'claimed', 'sending')"):
            await asyncio.sleep(0.02)
        assert (await read(running.urls["Metrics"]))[0] == 401
        assert (await read(f"{running.urls['API']}/metrics"))[0] == 404
        assert (await read(f"{running.urls['API']}/docs"))[0] == 200, "as the service is put together"
        status, page = await read(running.urls["Metrics"], Authorization="Bearer a-token")
        while not (found := samples(page)).get(("vestnik_sends_total", ("telegram", "sent", "shop"))):
            status, page = await read(running.urls["Metrics"], Authorization="Bearer a-token")
    assert status == 200
    assert found["vestnik_pushes_total", ("accepted", "", "shop")] == 1
    assert found["vestnik_pushes_total", ("duplicate", "seen_before", "shop")] == 1
    assert found["vestnik_pushes_total", ("refused", "invalid", "shop")] == 1
    assert found["vestnik_pushes_total", ("refused", "unauthorized", "")] == 1
    assert found["vestnik_enqueued_deliveries_total", ("enqueued", "shop")] == 2
    assert found["vestnik_sends_total", ("telegram", "sent", "shop")] == 1
    assert found["vestnik_sends_total", ("telegram", "failed_permanent", "shop")] == 1
    assert found["vestnik_adapter_call_seconds_count", ("telegram", "ok")] == 1
    assert found["vestnik_adapter_call_seconds_count", ("telegram", "error")] == 1
    assert found["vestnik_enqueue_to_sent_seconds_count", ("telegram",)] == 1
    assert 0 < found["vestnik_enqueue_to_sent_seconds_sum", ("telegram",)] < 60
    assert found["vestnik_push_seconds_count", ("accepted",)] == 1
    assert found["vestnik_scrape_database_up", ()] == 1
    assert found["vestnik_pool_connections_max", ("work",)] == 16


async def test_what_waits_is_read_from_the_database(pool: Pool, secret: str) -> None:
    await call(pool, "update autopost.channels set paused_until = 'infinity' where channel_id = 'odd'")
    await call(
        pool, "select autopost.enqueue_messages_and_deliveries('shop', null, 'webhook_push', '{\"text\": \"a\"}')"
    )
    await call(
        pool, "update autopost.deliveries set not_before = now() - interval '90 seconds' where channel_id = 'odd'"
    )
    await call(pool, "update autopost.deliveries set not_before = now() + interval '1 day' where channel_id = 'good'")
    await call(pool, "update autopost.channels set rate_rps = 1, next_allowed_at = now() + interval '30 s'")
    await call(
        pool, "insert into ops.jobs (workspace_id, job_id, kind, status) values ('*', core.uuid7(now()), 'x', 'dead')"
    )
    await call(pool, "select ops.put_alert('shop', 'a.b', '', 'critical', 'x', '{}')")
    found = of_families(await Backlog(pool).families())
    assert found["vestnik_queue_deliveries", ("queued", "shop")] == 2
    assert found["vestnik_queue_oldest_seconds", ("queued", "shop")] == pytest.approx(90, abs=30), (
        "what is planned is not late"
    )
    assert found["vestnik_channels", ("paused", "shop")] == found["vestnik_channels", ("open", "shop")] == 1
    assert found["vestnik_rate_gate_wait_seconds", ("channel", "shop")] == pytest.approx(30, abs=15)
    assert found["vestnik_jobs", ("dead", "*")] == 1
    assert (
        found["vestnik_alerts_on", ("critical", "shop")]
        == found["vestnik_alerts_raised_total", ("critical", "shop")]
        == 1
    )


async def test_the_database_is_asked_seldom_and_what_is_known_is_shown_when_it_fails(
    pool: Pool, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    watch = Backlog(pool, clock=lambda: now)
    assert of_families(await watch.families())["vestnik_channels", ("open", "shop")] == 2
    await call(pool, "update autopost.channels set enabled = false")
    assert of_families(await watch.families())["vestnik_channels", ("open", "shop")] == 2, "a moment ago it was so"
    now += backlog.KNOWN_FOR
    assert of_families(await watch.families())["vestnik_channels", ("disabled", "shop")] == 2

    monkeypatch.setattr(backlog, "_QUERIES", ("select 1 / 0",))
    now += backlog.KNOWN_FOR
    found = of_families(await watch.families())
    assert found["vestnik_channels", ("disabled", "shop")] == 2
    assert found["vestnik_scrape_database_up", ()] == 0
    assert found["vestnik_scrape_database_age_seconds", ()] == backlog.KNOWN_FOR


async def test_a_look_that_takes_long_is_cut_off(pool: Pool, secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "LIMIT", 0.05)
    monkeypatch.setattr(backlog, "_QUERIES", ("select pg_sleep(60)",))
    found = of_families(await Backlog(pool).families())
    assert found["vestnik_scrape_database_up", ()] == 0
    assert ("vestnik_scrape_database_age_seconds", ()) not in found, "nothing was ever read"


async def test_workspaces_beyond_the_bound_are_one(pool: Pool, secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "workspaces", lambda name: name if name == "shop" else "other")
    await call(
        pool, "insert into core.workspaces (workspace_id, name) select 'w' || n, '' from generate_series(1, 3) n"
    )
    await call(
        pool,
        "insert into autopost.channels (workspace_id, channel_id, platform, target_id, auth_ref, rate_group)"
        " select 'w' || n, 'c', 'max', '1', 'b', 'b' from generate_series(1, 3) n",
    )
    found = of_families(await Backlog(pool).families())
    assert found["vestnik_channels", ("open", "shop")] == 2 and found["vestnik_channels", ("open", "other")] == 3


@pytest.mark.parametrize("query", [backlog._DELIVERIES, backlog._JOBS])
async def test_a_look_reads_no_table_as_a_whole(pool: Pool, secret: str, query: str) -> None:
    await call(
        pool,
        "insert into ops.jobs (workspace_id, job_id, kind, status)"
        " select 'shop', gen_random_uuid(), 'x', 'done' from generate_series(1, 5000)",
    )
    await call(
        pool, "select autopost.enqueue_messages_and_deliveries('shop', null, 'webhook_push', '{\"text\": \"a\"}')"
    )
    await call(
        pool,
        "insert into autopost.deliveries (workspace_id, delivery_id, message_id, channel_id, content_hash, status, created_at)"
        " select 'shop', gen_random_uuid(), m.message_id, 'good', n::text, 'sent', now()"
        " from autopost.messages m, generate_series(1, 5000) n",
    )
    await call(pool, "analyze autopost.deliveries, ops.jobs")
    plan: Any = await call(pool, f"explain {query}")
    told = "\n".join(row["QUERY PLAN"] for row in plan)
    assert "Seq Scan on deliveries" not in told and "Seq Scan on jobs" not in told, told


@pytest.mark.parametrize(
    ("token", "peer", "headers", "status"),
    [
        (None, "127.0.0.1", {}, 200),
        (None, "::1", {}, 200),
        (None, "10.0.0.5", {}, 403),
        (None, "127.0.0.1", {"X-Forwarded-For": "127.0.0.1"}, 403),
        (None, "127.0.0.1", {"Forwarded": "for=127.0.0.1"}, 403),
        (None, "127.0.0.1", {"Host": "localhost:9090"}, 200),
        (None, "::1", {"Host": "[::1]:9090"}, 200),
        (None, "127.0.0.1", {"Host": "a-page-in-a-browser.example"}, 403),
        (None, "127.0.0.1", {"Host": "[broken"}, 403),
        ("t", "127.0.0.1", {}, 401),
        ("t", "127.0.0.1", {"Authorization": "Bearer wrong"}, 401),
        ("t", "127.0.0.1", {"Authorization": "Basic t"}, 401),
        ("t", "10.0.0.5", {"Authorization": "Bearer t"}, 200),
    ],
)
async def test_who_may_read(token: str | None, peer: str, headers: dict[str, str], status: int) -> None:
    class Nothing:
        async def families(self) -> list[Metric]:
            return []

    app = metrics_app(Gauges(Exposition(), Nothing(), token))  # type: ignore[arg-type]
    said = await asked(app, peer, headers)
    assert said["status"] == status
    assert (b"vestnik_build_info" in said["body"]) == (status == 200)
    kind = dict(said["headers"])[b"content-type"]
    assert kind.startswith(b"text/plain" if status == 200 else b"application/problem+json")


async def asked(app: Any, peer: str, headers: dict[str, str]) -> dict[str, Any]:
    """A request as the server hands it over: from wherever the test says."""
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/metrics",
        "root_path": "",
    }
    scope |= {"raw_path": b"/metrics", "query_string": b"", "client": (peer, 5000), "server": ("here", 80)}
    scope |= {"headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()]}
    said: dict[str, Any] = {"body": b""}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            said.update(status=message["status"], headers=message["headers"])
        else:
            said["body"] += message.get("body", b"")

    await app(scope, receive, send)
    return said
