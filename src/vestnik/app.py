"""The service: its roles, in one process or in several, from the settings to a clean stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from socket import socket

import uvicorn

from vestnik.adapters import registry
from vestnik.adapters.contract import Adapter, AdapterContext
from vestnik.api.app import create_app
from vestnik.autopost.dispatcher import Dispatcher
from vestnik.autopost.housekeeping import ensure_event_partitions, keep_partitions_ahead
from vestnik.db.migrate import check, migrate
from vestnik.db.pool import Pool, make_pool
from vestnik.errors import ConfigError
from vestnik.log import get_log
from vestnik.ops.secrets.box import SecretBox
from vestnik.ops.secrets.credentials import Credentials
from vestnik.settings import Settings

ROLES = ("api", "dispatcher")
log = get_log()


@dataclass(frozen=True, slots=True)
class Service:
    """What runs, and how to end it."""

    tasks: Sequence[asyncio.Task[None]]
    stop: Callable[[], None]
    http_url: str | None

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
    await check(url)
    async with make_pool(url, min_size=2, max_size=16) as pool, _partitions_kept_ahead(pool):
        credentials = Credentials(pool, SecretBox.open(settings.data_dir, _secret_key(settings)))
        await credentials.verify()
        adapters = load_adapters(settings, credentials)
        try:
            running = await _start(settings, url, pool, adapters, roles)
            try:
                yield running
            finally:
                running.stop()
                await asyncio.gather(*running.tasks, return_exceptions=True)
        finally:
            for adapter in adapters.values():
                await adapter.close()


@asynccontextmanager
async def _partitions_kept_ahead(pool: Pool) -> AsyncIterator[None]:
    keeping = asyncio.create_task(keep_partitions_ahead(pool), name="partitions")
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


def load_adapters(settings: Settings, credentials: Credentials) -> dict[str, Adapter]:
    return registry.load(
        AdapterContext(
            secret=credentials.resolve,
            base_urls={"telegram": settings.telegram_api_url, "max": settings.max_api_url},
            ca_files={"max": settings.max_ca_file} if settings.max_ca_file else {},
            timeout=settings.http_timeout,
            connections=settings.send_concurrency,
        )
    )


def _secret_key(settings: Settings) -> str | None:
    return settings.secret_key.get_secret_value() if settings.secret_key else None


async def _start(
    settings: Settings, url: str, pool: Pool, adapters: Mapping[str, Adapter], roles: Sequence[str]
) -> Service:
    tasks: list[asyncio.Task[None]] = []
    stops: list[Callable[[], None]] = []
    http_url = None
    if "dispatcher" in roles:
        dispatcher = Dispatcher(
            url,
            pool,
            adapters,
            concurrency=settings.send_concurrency,
            poll=settings.dispatch_poll,
            deadline=settings.http_timeout + 5,
        )
        stops.append(dispatcher.stop)
        tasks.append(asyncio.create_task(dispatcher.run(), name="dispatcher"))
    if "api" in roles:
        server = http_server(settings, pool)
        stops.append(server.end)
        tasks.append(asyncio.create_task(server.serve(), name="api"))
        http_url = await server.address(tasks[-1])

    def stop() -> None:
        for each in stops:
            each()

    return Service(tasks, stop, http_url)


def http_server(settings: Settings, pool: Pool) -> HttpServer:
    return HttpServer(
        uvicorn.Config(
            create_app(pool, max_request_bytes=settings.max_request_bytes),
            host=settings.http_host,
            port=settings.http_port,
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=10,
            server_header=False,
        )
    )


class HttpServer(uvicorn.Server):
    """uvicorn without its own signal handlers, and with an address as soon as it listens."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()

    def end(self) -> None:
        self.should_exit = True

    async def address(self, serving: asyncio.Task[None]) -> str:
        while not self.started:
            if serving.done():
                serving.result()
                raise ConfigError(f"the API cannot listen on {self.config.host}:{self.config.port}")
            await asyncio.sleep(0.01)
        port = self.servers[0].sockets[0].getsockname()[1]
        host = f"[{self.config.host}]" if ":" in self.config.host else self.config.host
        return f"http://{host}:{port}"

    async def startup(self, sockets: list[socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except SystemExit:
            # uvicorn ends the process when the port is taken; the whole service is ours to end, and to explain.
            raise ConfigError(
                f"the API cannot listen on {self.config.host}:{self.config.port}",
                hint="is another Vestnik running? Choose another VESTNIK_HTTP_PORT",
            ) from None
