"""The rival of the push API: the same HTTP server, framework and connection pool, and one INSERT for each request.

``python -m vestnik.bench.bare_server``, with the settings of the service in its environment.
"""

from __future__ import annotations

import asyncio
import signal
import sys

import uvloop
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from vestnik.api.server import http_server
from vestnik.db.pool import Pool, call, make_pool
from vestnik.settings import load_settings

TABLE = """
create table public.bare_pushes (
    push_id     bigint      generated always as identity primary key,
    received_at timestamptz not null default now(),
    payload     jsonb       not null
)
"""


def bare_app(pool: Pool) -> FastAPI:
    app = FastAPI()

    @app.post("/v1/push")
    async def push(request: Request) -> Response:
        body = (await request.body()).decode()
        rows = await call(pool, "insert into public.bare_pushes (payload) values (%s) returning push_id", (body,))
        return JSONResponse({"outcome": "accepted", "push_id": rows[0]["push_id"]}, 202)

    return app


async def main() -> None:
    settings = load_settings()
    assert settings.database_url is not None
    async with make_pool(settings.database_url, min_size=2, max_size=16) as pool:
        server = http_server(settings, bare_app(pool))
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, server.end)
        serving = asyncio.create_task(server.serve())
        print(await server.address(serving), file=sys.stderr, flush=True)
        await serving


if __name__ == "__main__":
    uvloop.run(main())
