"""The HTTP server: uvicorn, started and ended by the service."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import uvicorn
from fastapi import FastAPI

from vestnik.errors import ConfigError
from vestnik.settings import Settings


def listen(settings: Settings, what: str = "the API", setting: str = "VESTNIK_HTTP_PORT") -> list[socket.socket]:
    """On every address of the host. Before anything else begins: who cannot have it has not done any work yet."""
    host, port = settings.http_host, settings.http_port
    sockets: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in found:
            if family == socket.AF_INET6 and sockets and not socket.has_dualstack_ipv6():
                continue  # the name has an address of a kind that this machine has not
            taken = sockets[0].getsockname()[1] if sockets else port
            sockets.append(socket.create_server((str(address[0]), taken), family=family, backlog=2048))
    except OSError as e:
        for each in sockets:
            each.close()
        raise ConfigError(
            f"{what} cannot listen on {host}:{port}: {str(e.strerror).split(' (')[0]}",
            hint=f"is another Vestnik running? Choose another {setting}",
        ) from None
    return sockets


def http_server(settings: Settings, app: FastAPI, sockets: Sequence[socket.socket] | None = None) -> HttpServer:
    config = uvicorn.Config(
        app,
        host=settings.http_host,
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=10,
        server_header=False,
    )
    return HttpServer(config, list(sockets or listen(settings)))


class HttpServer(uvicorn.Server):
    """uvicorn without its own signal handlers, on sockets that listen already, and with an address as soon as it listens."""

    def __init__(self, config: uvicorn.Config, listening: list[socket.socket]) -> None:
        super().__init__(config)
        self._listening = listening

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        await super().serve(sockets or self._listening)

    def end(self) -> None:
        self.should_exit = True

    async def address(self, serving: asyncio.Task[None]) -> str:
        while not self.started:
            if serving.done():
                serving.result()
                raise ConfigError("the API ended before it listened")
            await asyncio.sleep(0.01)
        host, port = self.config.host, self._listening[0].getsockname()[1]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
