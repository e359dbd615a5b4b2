"""The web application: mounts each capability's routes, with one form for every error."""

from __future__ import annotations

from typing import Any

import psycopg
from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse
from psycopg_pool import PoolTimeout

from vestnik import __version__
from vestnik.api import problems, workspace
from vestnik.api.push import push_routes
from vestnik.autopost.intake import Intake
from vestnik.db.pool import Pool, call


def create_app(pool: Pool, *, max_request_bytes: int = 8 * 1024 * 1024) -> FastAPI:
    """``pool`` is open, and stays the caller's to close."""
    app = FastAPI(
        title="Vestnik",
        version=__version__,
        description="Publish once, arrive in every channel.",
        docs_url="/docs",
        redoc_url=None,
    )
    app.state.pool = pool
    problems.install(app)
    app.include_router(push_routes(Intake(pool), max_request_bytes))
    app.include_router(workspace.router)

    @app.get("/api/health", tags=["service"], summary="Is the service able to work?")
    async def health() -> Response:
        try:
            await call(pool, "select 1")
        except (psycopg.Error, PoolTimeout):
            return JSONResponse({"status": "failing", "database": "away", "version": __version__}, 503)
        return JSONResponse({"status": "ok", "database": "ok", "version": __version__})

    _describe_security(app)
    return app


def _describe_security(app: FastAPI) -> None:
    """The endpoint secret is read by hand, to keep the hot path bare, so its scheme is described by hand."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        schema = generate()
        schema.setdefault("components", {})["securitySchemes"] = {
            "endpointSecret": {
                "type": "http",
                "scheme": "bearer",
                "description": "The secret of a push endpoint.",
            },
            "apiKey": {"type": "http", "scheme": "bearer", "description": "An API key of the workspace."},
        }
        return schema

    app.openapi = openapi  # type: ignore[method-assign]
