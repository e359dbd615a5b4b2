"""From push to send over two processes: one trace, received over a socket as a collector would."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from pathlib import Path

import aiohttp
import pytest
from observatory import collecting, service

from vestnik.autopost import measured
from vestnik.sandbox.server import Sandbox
from vestnik.settings import Settings
from vestnik.telemetry import tracing

SERVER, CLIENT = 2, 3


async def push(url: str, secret: str, text: str) -> str:
    headers = {"Authorization": f"Bearer {secret}"}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{url}/v1/push", json={"text": text}, headers=headers) as answer,
    ):
        assert answer.status == 202, await answer.text()
        return uuid.UUID((await answer.json())["trace_id"]).hex


async def test_a_push_and_its_sends_are_one_trace_over_two_processes(
    database: str, tmp_path: Path, sandbox: Sandbox, secret: str
) -> None:
    async with collecting() as collector:
        telegram = {"TELEGRAM_API_URL": sandbox.telegram_url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
        async with (
            service(database, tmp_path, "api", OTLP_URL=collector.url, **telegram) as api,
            service(database, tmp_path, "dispatcher", OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, **telegram),
        ):
            trace_id = await push(api.urls["API"], secret, "Nobody may read this in a trace.")
            spans = await collector.until("POST /v1/push", "enqueue", "claim", "send telegram", "settle")
        (root,) = [span for span in spans if span.name == "POST /v1/push"]
        others = [span for span in spans if span is not root]

        assert {span.trace_id for span in spans} == {trace_id}
        assert (root.parent_id, root.kind, root.attributes["vestnik.deliveries"]) == ("", SERVER, 2)
        assert {span.parent_id for span in others} == {root.span_id}
        assert Counter(span.name for span in others) == {"enqueue": 1, "claim": 2, "send telegram": 2, "settle": 2}
        assert len({span.span_id for span in spans}) == len(spans) and all(span.seconds >= 0 for span in spans)

        processes = {span.name: span.resource["service.instance.id"] for span in spans}
        assert processes["POST /v1/push"] == processes["enqueue"] != processes["send telegram"] == processes["settle"]
        assert {span.resource["service.name"] for span in spans} == {"vestnik"}
        sends = [span for span in spans if span.name == "send telegram"]
        assert {span.kind for span in sends} == {CLIENT}
        assert sorted(span.error for span in sends) == ["", "chat_not_found"]
        assert not any("Nobody may read" in body.decode("latin-1") for body in collector.raw)


async def test_a_collector_that_is_away_holds_up_nothing(
    database: str, tmp_path: Path, sandbox: Sandbox, secret: str
) -> None:
    """The post goes, the process ends well, and the log says once what is wrong, without the address."""
    settings = {"OTLP_URL": "http://127.0.0.1:9/key-in-a-path", "TELEGRAM_API_URL": sandbox.telegram_url}
    async with service(database, tmp_path, "api", "dispatcher", OTEL_BSP_SCHEDULE_DELAY="50", **settings) as running:
        await push(running.urls["API"], secret, "Hello")
    lines = [json.loads(line) for line in running.log.read_text().splitlines() if line.startswith("{")]
    actions = Counter(line["action"] for line in lines)
    assert actions["tracing.started"] == 1 and actions["tracing.export_failed"] == 1
    assert "key-in-a-path" not in running.log.read_text()


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of spans as they would be made."""
    made: list[str] = []
    monkeypatch.setattr(tracing, "_span", lambda trace_id, name, *rest, **more: made.append(name))
    return made


def test_without_a_place_no_span_is_made(spans: list[str]) -> None:
    trace_id = uuid.uuid4()
    assert not tracing.is_on() and not tracing.takes(trace_id)
    done = {"trace_id": trace_id, "enqueued": 1, "suppressed": 0, "failed": 0}
    measured.pushed(done, "shop", 202, 0)
    measured.enqueued("shop", [done], 0)
    assert spans == []


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_every_process_takes_the_same_share_of_traces(share: float) -> None:
    def tracer() -> tracing._Tracer:
        class Provider:
            def get_tracer(self, *name: str) -> None: ...

        return tracing._Tracer(Provider(), None, share)  # type: ignore[arg-type]

    one, other = tracer(), tracer()
    # As the database makes them: the time, then what is random, with fixed bits in between.
    ids = [
        uuid.UUID(int=((1_800_000_000_000 + n) << 80) | (7 << 76) | (2 << 62) | uuid.uuid4().int >> 66)
        for n in range(4000)
    ]
    assert [one.takes(each) for each in ids] == [other.takes(each) for each in ids]
    assert sum(map(one.takes, ids)) / len(ids) == pytest.approx(share, abs=0.05)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:4318"}, "http://a:4318"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:4318", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://b/x"},
            "http://b/x",
        ),
        ({"VESTNIK_OTLP_URL": "http://c:4318", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:4318"}, "http://c:4318"),
        ({"VESTNIK_OTLP_URL": "http://c:4318", "OTEL_SDK_DISABLED": "true"}, None),
        ({"VESTNIK_OTLP_URL": "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, None),
    ],
)
def test_where_traces_go(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: dict[str, str], url: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert Settings().traces_url == url
