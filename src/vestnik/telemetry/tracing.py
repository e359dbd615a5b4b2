"""Spans from push to send, exported by OTLP when the settings name a place for them.

The trace of a post is its own trace_id, and the span of its push is that id's second half: so every process, whenever it
touches the post, hangs its spans below that one, and nothing has to be handed on. Spans are made when they are over. Each
process takes or leaves a trace by the same rule, so a trace is whole or not there. No span holds a text of a post.

Without a place nothing here is imported or made: who has something to tell asks ``takes`` first.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any
from uuid import UUID

from vestnik import __version__
from vestnik.log import get_log

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

PATH = "/v1/traces"
LAST_WORDS = 3.0  # seconds that the export of the last spans may take at the end
QUIET = 60.0  # seconds between two lines of the log about an exporter that fails
_LOW = (1 << 64) - 1
_MIX = 0x9E3779B97F4A7C15  # spreads what is not random in an id over all bits
Attributes = Mapping[str, str | int | float | bool]
log = get_log()


class _Tracer:
    """The one of this process; ``share`` is how many of 2^64 are taken."""

    def __init__(self, provider: TracerProvider, ids: Any, share: float) -> None:
        self.provider, self.ids, self.bound = provider, ids, int(share * (1 << 64))
        self.tracer = provider.get_tracer("vestnik", __version__)

    def takes(self, trace_id: UUID) -> bool:
        return ((trace_id.int >> 64 ^ trace_id.int) * _MIX & _LOW) < self.bound


_tracer: _Tracer | None = None


def takes(trace_id: UUID | None) -> bool:
    """Whether spans of this trace are wanted: of none while nothing is exported."""
    return _tracer is not None and trace_id is not None and _tracer.takes(trace_id)


def is_on() -> bool:
    return _tracer is not None


def root(trace_id: UUID, name: str, began: int, attributes: Attributes, *, error: str | None = None) -> None:
    """The span that all others of its trace hang below; from ``began``, in nanoseconds of Unix time, until now."""
    _span(trace_id, name, began, time.time_ns(), attributes, error, is_root=True)


def child(
    trace_id: UUID, name: str, began: int, ended: int, attributes: Attributes, *, error: str | None = None
) -> None:
    _span(trace_id, name, began, ended, attributes, error, is_root=False)


def _span(
    trace_id: UUID, name: str, began: int, ended: int, attributes: Attributes, error: str | None, *, is_root: bool
) -> None:
    if _tracer is None:
        return
    from opentelemetry.context import Context
    from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags
    from opentelemetry.trace import set_span_in_context as within

    if is_root:
        _tracer.ids.asked = trace_id.int
        context, kind = Context(), SpanKind.SERVER
    else:
        parent = SpanContext(
            trace_id.int, trace_id.int & _LOW, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED)
        )
        context = within(NonRecordingSpan(parent), Context())
        kind = SpanKind.CLIENT if "vestnik.platform" in attributes else SpanKind.INTERNAL
    span = _tracer.tracer.start_span(name, context, kind, attributes, start_time=began)
    if error is not None:
        span.set_status(Status(StatusCode.ERROR, error))
    span.end(ended)


@asynccontextmanager
async def exporting(url: str | None, share: float) -> AsyncIterator[None]:
    """For as long as the block lasts, to ``url`` (the collector's base address, or the whole of it)."""
    global _tracer
    if url is None or share <= 0:
        yield
        return
    _tracer = _open(url, share)
    log.info("tracing.started", share=share)
    try:
        yield
    finally:
        closing, _tracer = _tracer, None
        await _end(closing.provider)


async def _end(provider: TracerProvider) -> None:
    """A collector that is away must not hold up the end: the thread ends with the process."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def close() -> None:
        provider.shutdown()
        with suppress(RuntimeError):  # nobody waits any more
            loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=close, daemon=True).start()
    with suppress(TimeoutError):
        async with asyncio.timeout(LAST_WORDS):
            await ended.wait()


def _open(url: str, share: float) -> _Tracer:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON

    class Ids(RandomIdGenerator):
        """The next root has the id that was asked for, and its span the second half of it."""

        asked: int = 0

        def generate_trace_id(self) -> int:
            return self.asked or super().generate_trace_id()

        def generate_span_id(self) -> int:
            asked, self.asked = self.asked, 0
            return asked & _LOW or super().generate_span_id()

    logging.getLogger("opentelemetry").handlers = [_OurForm()]
    logging.getLogger("opentelemetry").propagate = False
    instance = f"{socket.gethostname()}:{os.getpid()}"
    us = {"service.name": "vestnik", "service.version": __version__, "service.instance.id": instance}
    resource = Resource(us).merge(OTELResourceDetector().detect())  # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win
    ids = Ids()
    provider = TracerProvider(sampler=ALWAYS_ON, resource=resource, id_generator=ids, shutdown_on_exit=False)
    address = url if url.rstrip("/").endswith(PATH) else url.rstrip("/") + PATH
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=address)))
    return _Tracer(provider, ids, share)


class _OurForm(logging.Handler):
    """What the exporter complains of, once a minute: not its text, which may quote an address with a key in it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said = float("-inf")

    def emit(self, record: logging.LogRecord) -> None:
        if time.monotonic() - self._said >= QUIET:
            self._said = time.monotonic()
            log.warning("tracing.export_failed", part=record.name.rpartition(".")[2])
