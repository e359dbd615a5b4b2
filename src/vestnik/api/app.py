"""The web application: mounts each capability's routes, with one form for every error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
from fastapi import FastAPI, Response
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
from psycopg_pool import PoolTimeout

from vestnik import __version__
from vestnik.adapters.contract import Adapter
from vestnik.api import problems, workspace
from vestnik.api.docs_page import docs_page
from vestnik.api.payload_schema import payload_schemas
from vestnik.api.planning import planning_routes
from vestnik.api.push import Doorstep, push_routes
from vestnik.api.sources import source_routes
from vestnik.autopost.intake import Intake
from vestnik.autopost.media.blobs import BlobStore
from vestnik.autopost.sources.pull import Puller
from vestnik.db.pool import Pool, call

_NOTHING_FROM_ELSEWHERE = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
}


def create_app(
    pool: Pool,
    adapters: Mapping[str, Adapter],
    *,
    blobs: BlobStore,
    puller: Puller | None = None,
    media_max_bytes: int = 512 * 1024 * 1024,
    max_request_bytes: int = 8 * 1024 * 1024,
) -> FastAPI:
    """``pool`` is open, and stays the caller's to close. ``adapters`` are asked for plans only: nothing is sent here."""
    app = FastAPI(
        title="Vestnik",
        version=__version__,
        description="Publish once, arrive in every channel.",
        docs_url=None,  # the framework's own page fetches its parts from elsewhere
        redoc_url=None,
    )
    app.state.pool = pool
    problems.install(app)
    app.include_router(push_routes(Doorstep(pool, Intake(pool), blobs, max_request_bytes, media_max_bytes)))
    app.include_router(workspace.router)
    app.include_router(planning_routes(adapters))
    if puller is not None:
        app.include_router(source_routes(adapters, puller))

    @app.get("/api/health", tags=["service"], summary="Is the service able to work?")
    async def health() -> Response:
        try:
            await call(pool, "select 1")
        except (psycopg.Error, PoolTimeout):
            return JSONResponse({"status": "failing", "database": "away", "version": __version__}, 503)
        return JSONResponse({"status": "ok", "database": "ok", "version": __version__})

    _describe_by_hand(app)

    @app.get("/", include_in_schema=False)
    async def root() -> Response:
        return RedirectResponse("/docs")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(docs_page(app.openapi()), headers=_NOTHING_FROM_ELSEWHERE)

    return app


def _describe_by_hand(app: FastAPI) -> None:
    """The endpoint secret and the payload are read by hand, to keep the hot path bare, so they are described by hand."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        schema = generate()
        components = schema.setdefault("components", {})
        components.setdefault("schemas", {}).update(payload_schemas())
        components["securitySchemes"] = {
            "endpointSecret": {
                "type": "http",
                "scheme": "bearer",
                "description": "The secret of a push endpoint.",
            },
            "apiKey": {"type": "http", "scheme": "bearer", "description": "An API key of the workspace."},
        }
        return schema

    app.openapi = openapi  # type: ignore[method-assign]
