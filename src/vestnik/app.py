"""The service: its roles, in one process or in several, from the settings to a clean stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from socket import socket

from vestnik.api.app import create_app
from vestnik.api.metrics import Gauges, metrics_app
from vestnik.api.server import http_server, listen
from vestnik.autopost.backlog import Backlog
from vestnik.autopost.dispatcher import Dispatcher
from vestnik.autopost.housekeeping import ensure_event_partitions, keep_partitions_ahead
from vestnik.autopost.payloads.equipment import open_desk
from vestnik.db.migrate import check, migrate
from vestnik.db.pool import Pool, make_pool
from vestnik.equipment import Equipment, equipment
from vestnik.errors import ConfigError
from vestnik.log import get_log
from vestnik.ops.jobs.recurring import put_recurring
from vestnik.ops.jobs.runner import Runner
from vestnik.ops.jobs.scheduler import Scheduler
from vestnik.settings import Settings
from vestnik.telemetry import instruments
from vestnik.telemetry.exposition import Exposition
from vestnik.telemetry.tracing import exporting

ROLES = ("api", "dispatcher", "jobs")
HTTP_PATIENCE = 3.0
log = get_log()


@dataclass(frozen=True, slots=True)
class Service:
    """What runs, and how to end it."""

    tasks: Sequence[asyncio.Task[None]]
    stop: Callable[[], None]
    http_url: str | None
    metrics_url: str | None = None  # where they have a port of their own

    async def ended(self) -> None:
        """Returns when every role has ended; one that fails ends the others, and its error is raised."""
        done, _ = await asyncio.wait(self.tasks, return_when=asyncio.FIRST_COMPLETED)
        self.stop()
        await asyncio.wait(self.tasks)
        for task in done:
            task.result()
        for task in self.tasks:
            task.result()


async def prepare(url: str) -> list[str]:
    """Schema and event partitions, ready for work."""
    done = await migrate(url)
    async with make_pool(url, max_size=1) as pool:
        await ensure_event_partitions(pool)
    return done


@asynccontextmanager
async def service(settings: Settings, url: str, roles: Sequence[str] = ROLES) -> AsyncIterator[Service]:
    """The roles, running on a database whose schema is the one that this program knows."""
    for role in roles:
        if role not in ROLES:
            raise ConfigError(f"there is no role {role!r}", hint=f"roles: {', '.join(ROLES)}")
    with ExitStack() as sockets:
        listening = [sockets.enter_context(each) for each in (listen(settings) if "api" in roles else ())]
        watched = [sockets.enter_context(each) for each in _listen_for_metrics(settings)]
        await check(url)
        async with (
            exporting(settings.traces_url, settings.trace_share),
            _roles(settings, url, roles, listening, watched) as running,
        ):
            yield running


@asynccontextmanager
async def _roles(
    settings: Settings, url: str, roles: Sequence[str], listening: Sequence[socket], watched: Sequence[socket]
) -> AsyncIterator[Service]:
    async with (
        make_pool(url, min_size=2, max_size=16) as pool,
        # Who asks over HTTP must hear soon that the database is away, not when others give up.
        make_pool(url, max_size=16, checkout_timeout=HTTP_PATIENCE, name="vestnik api") as http_pool,
        _kept_up(keep_partitions_ahead(pool), "partitions"),
        equipment(settings, pool) as tools,
    ):
        gauges = _gauges(settings, pool, http_pool)
        running = await _start(settings, url, pool, http_pool, tools, roles, listening, None if watched else gauges)
        try:
            if watched:
                running = await _with_metrics(settings, running, gauges, watched)
            yield running
        finally:
            running.stop()
            await asyncio.gather(*running.tasks, return_exceptions=True)


@asynccontextmanager
async def _kept_up(work: Coroutine[None, None, None], name: str) -> AsyncIterator[None]:
    keeping = asyncio.create_task(work, name=name)
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.wait([keeping])


async def run(settings: Settings, url: str, roles: Sequence[str], started: Callable[[Service], None]) -> None:
    """Until a signal asks for the end."""
    async with service(settings, url, roles) as running:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, running.stop)
        started(running)
        await running.ended()


async def _start(
    settings: Settings,
    url: str,
    pool: Pool,
    http_pool: Pool,
    tools: Equipment,
    roles: Sequence[str],
    listening: Sequence[socket],
    gauges: Gauges | None,
) -> Service:
    tasks: list[asyncio.Task[None]] = []
    stops: list[Callable[[], None]] = []
    http_url = None
    if "dispatcher" in roles:
        dispatcher = Dispatcher(
            url,
            pool,
            tools.adapters,
            concurrency=settings.send_concurrency,
            poll=settings.dispatch_poll,
            deadline=settings.http_timeout + 5,
            keeper=tools.keeper,
        )
        stops.append(dispatcher.stop)
        tasks.append(asyncio.create_task(dispatcher.run(), name="dispatcher"))
    if "jobs" in roles:
        await put_recurring(pool, tools.recurring())
        runner = Runner(url, pool, tools.job_kinds(), concurrency=settings.job_concurrency, poll=settings.dispatch_poll)
        scheduler = Scheduler(pool)
        stops += [runner.stop, scheduler.stop]
        tasks.append(asyncio.create_task(runner.run(), name="jobs"))
        tasks.append(asyncio.create_task(scheduler.run(), name="scheduler"))
    if "api" in roles:
        app = create_app(
            http_pool,
            tools.adapters,
            blobs=tools.blobs,
            puller=tools.puller,
            credentials=tools.credentials,
            desk=tools.desk,
            media_max_bytes=settings.media_max_bytes,
            max_request_bytes=settings.max_request_bytes,
            api_rps=settings.api_rps,
            downloader=tools.downloader,
            send_deadline=settings.http_timeout + 5,
            gauges=gauges,
            keeper=tools.keeper,
            payload_desk=open_desk(settings, http_pool, tools.keeper.vault),
        )
        server = http_server(settings, app, listening)
        stops.append(server.end)
        tasks.append(asyncio.create_task(server.serve(), name="api"))
        http_url = await server.address(tasks[-1])

    def stop() -> None:
        for each in stops:
            each()

    return Service(tasks, stop, http_url)


def _gauges(settings: Settings, pool: Pool, http_pool: Pool) -> Gauges:
    token = settings.metrics_token.get_secret_value() if settings.metrics_token else ""
    instruments.workspaces.most = settings.metrics_workspaces
    return Gauges(Exposition({"work": pool, "api": http_pool}), Backlog(http_pool), token or None)


def _at_the_metrics(settings: Settings) -> Settings:
    return settings.model_copy(update={"http_host": settings.metrics_host, "http_port": settings.metrics_port})


def _listen_for_metrics(settings: Settings) -> Sequence[socket]:
    if settings.metrics_port is None:
        return ()
    return listen(_at_the_metrics(settings), "/metrics", "VESTNIK_METRICS_PORT")


async def _with_metrics(settings: Settings, running: Service, gauges: Gauges, listening: Sequence[socket]) -> Service:
    """On a port of their own: then not on the API's."""
    server = http_server(_at_the_metrics(settings), metrics_app(gauges), listening)
    serving = asyncio.create_task(server.serve(), name="metrics")

    def stop() -> None:
        running.stop()
        server.end()

    url = f"{await server.address(serving)}/metrics"
    return Service([*running.tasks, serving], stop, running.http_url, url)
