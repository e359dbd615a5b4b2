"""The sandbox as one web application: the platforms, the admin API, the pages."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

from vestnik.sandbox import admin, admin_site, feeds, files, max, page, telegram
from vestnik.sandbox.state import State
from vestnik.sandbox.wire import CLOSING, STATE


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A running sandbox: where it is, and what it knows."""

    url: str
    state: State
    runner: web.AppRunner

    @property
    def telegram_url(self) -> str:
        return f"{self.url}/telegram"

    @property
    def max_url(self) -> str:
        return f"{self.url}/max"

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self.runner.server.connections) if self.runner.server else 0


def create_app(state: State | None = None) -> web.Application:
    app = web.Application(client_max_size=1024 * 1024)
    app[STATE] = state or State()
    app[CLOSING] = asyncio.Event()
    for part in (telegram, max, admin, admin_site, files, feeds, page):
        app.add_routes(part.routes())
    return app


@asynccontextmanager
async def serve(
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    state: State | None = None,
    ssl_context: ssl.SSLContext | None = None,
) -> AsyncIterator[Sandbox]:
    """Run the sandbox; port 0 takes any free one."""
    state = state or State()
    # A caller that gives up must end the handler that keeps it waiting.
    app = create_app(state)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, ssl_context=ssl_context)
        await site.start()
        taken = runner.addresses[0][1]
        shown = f"[{host}]" if ":" in host else host
        yield Sandbox(f"{'https' if ssl_context else 'http'}://{shown}:{taken}", state, runner)
    finally:
        app[CLOSING].set()
        await runner.cleanup()
