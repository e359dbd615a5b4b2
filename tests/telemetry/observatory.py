"""Processes of the service that are watched from outside: their metrics, their traces, their logs."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_SAYS = re.compile(r"^(API|Metrics): (http\S+)", re.M)


@dataclass(frozen=True)
class Span:
    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: int
    error: str
    seconds: float
    attributes: dict[str, Any]
    resource: dict[str, Any]


@dataclass
class Collector:
    """An OpenTelemetry collector, as far as it takes traces."""

    url: str = ""
    spans: list[Span] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    _came: asyncio.Event = field(default_factory=asyncio.Event)

    async def take(self, request: web.Request) -> web.Response:
        assert request.content_type == "application/x-protobuf"
        body = await request.read()
        self.raw.append(body)
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = _attributes(group.resource.attributes)
            self.spans += [_span(span, resource) for scope in group.scope_spans for span in scope.spans]
        self._came.set()
        return web.Response(body=b"", content_type="application/x-protobuf")

    async def until(self, *names: str) -> list[Span]:
        async with asyncio.timeout(30):
            while not set(names) <= {span.name for span in self.spans}:
                self._came.clear()
                await self._came.wait()
        return self.spans


def _span(span: Any, resource: dict[str, Any]) -> Span:
    taken = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
    ids = (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
    return Span(*ids, span.name, span.kind, span.status.message, taken, _attributes(span.attributes), resource)


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    collector, app = Collector(), web.Application()
    app.router.add_post("/v1/traces", collector.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield collector
    finally:
        await runner.cleanup()


@dataclass
class Watched:
    """A running process, and where it is read."""

    log: Path
    urls: dict[str, str]


@asynccontextmanager
async def service(database: str, folder: Path, *roles: str, **settings: str) -> AsyncIterator[Watched]:
    """``vestnik run ROLE…`` until the block ends, and it ends well."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("VESTNIK_", "OTEL_"))}
    ours = {
        "DATABASE_URL": database,
        "DATA_DIR": str(folder / "data"),
        "HTTP_PORT": "0",
        "LOG_FORMAT": "json",
    } | settings
    environment = kept | {name if name.startswith("OTEL_") else f"VESTNIK_{name}": v for name, v in ours.items()}
    log = folder / f"{'-'.join(roles)}.log"
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "vestnik", "run", *roles), env=environment, cwd=folder, stderr=out
        )
    try:
        async with asyncio.timeout(60):
            while "Ctrl-C" not in log.read_text():
                assert process.returncode is None, log.read_text()
                await asyncio.sleep(0.02)
        yield Watched(log, dict(_SAYS.findall(log.read_text())))
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            ended = await process.wait()
    assert ended == 0, log.read_text()
