"""The HTTP server: uvicorn, started and ended by the service."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, nullcontext
from socket import socket

import uvicorn
from fastapi import FastAPI

from vestnik.errors import ConfigError
from vestnik.settings import Settings


def http_server(settings: Settings, app: FastAPI) -> HttpServer:
    return HttpServer(
        uvicorn.Config(
            app,
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
