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
from vestnik.api import archive, jobs, keys, operations, operators, payloads, problems, sign_in, unknown, workspace
from vestnik.api.access import Doorkeeper
from vestnik.api.adapters import adapter_routes
from vestnik.api.alerts import alert_routes
from vestnik.api.bodies import declared_schemas
from vestnik.api.body_size import BodySize
from vestnik.api.configuration import configuration_routes
from vestnik.api.docs_page import docs_page
from vestnik.api.doctor import doctor_routes
from vestnik.api.metrics import Gauges, metrics_routes
from vestnik.api.payload_schema import Problem, payload_schemas
from vestnik.api.planning import planning_routes
from vestnik.api.push import Doorstep, push_routes
from vestnik.api.retention import retention_routes
from vestnik.api.sources import source_routes
from vestnik.autopost.adapter_calls import Caller as AdapterCaller
from vestnik.autopost.alerting import AlertDesk
from vestnik.autopost.intake import Intake
from vestnik.autopost.media.blobs import BlobStore
from vestnik.autopost.payloads.keeper import Keeper
from vestnik.autopost.payloads.verbs import PayloadDesk
from vestnik.autopost.sources.pull import Puller
from vestnik.db.pool import Pool, call
from vestnik.download import Downloader
from vestnik.ops.secrets.credentials import Credentials

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
    credentials: Credentials | None = None,
    desk: AlertDesk | None = None,
    media_max_bytes: int = 512 * 1024 * 1024,
    max_request_bytes: int = 8 * 1024 * 1024,
    api_rps: float = 50.0,
    downloader: Downloader | None = None,
    send_deadline: float = 35.0,
    gauges: Gauges | None = None,
    keeper: Keeper | None = None,
    payload_desk: PayloadDesk | None = None,
) -> FastAPI:
    """``pool`` is open, and stays the caller's to close."""
    app = FastAPI(
        title="Vestnik",
        version=__version__,
        description="Publish once, arrive in every channel.",
        docs_url=None,  # the framework's own page fetches its parts from elsewhere
        redoc_url=None,
    )
    app.state.pool = pool
    app.state.doorkeeper = Doorkeeper(pool, api_rps)
    app.add_middleware(BodySize, limit=max_request_bytes, except_paths=frozenset({"/v1/push"}))
    problems.install(app)
    app.include_router(
        push_routes(Doorstep(pool, Intake(pool, keeper=keeper), blobs, max_request_bytes, media_max_bytes))
    )
    app.include_router(workspace.router)
    app.include_router(operations.router)
    app.include_router(planning_routes(adapters))
    app.include_router(retention_routes(blobs.store))
    app.include_router(doctor_routes(adapters))
    app.include_router(adapter_routes(AdapterCaller(pool, adapters, blobs, downloader, media_max_bytes, send_deadline)))
    for each in (archive, jobs, keys, operators, unknown):
        app.include_router(each.router)
    app.include_router(operators.service_router)
    app.include_router(sign_in.router)
    if puller is not None:
        app.include_router(source_routes(adapters, puller))
    if payload_desk is not None:
        app.state.payload_desk = payload_desk
        app.include_router(payloads.router)
    if desk is not None:
        app.include_router(alert_routes(desk))
    if credentials is not None:  # last: the id of a channel takes the rest of a path
        app.include_router(configuration_routes(credentials))

    if gauges is not None:
        app.include_router(metrics_routes(gauges))

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
        components.setdefault("schemas", {}).update(payload_schemas() | declared_schemas())
        components.setdefault("securitySchemes", {})["endpointSecret"] = {
            "type": "http",
            "scheme": "bearer",
            "description": "The secret of a push endpoint.",
        }
        _problems_by_their_type(schema)
        return schema

    app.openapi = openapi  # type: ignore[method-assign]


def _problems_by_their_type(schema: dict[str, Any]) -> None:
    """The framework takes every answer for plain JSON, and says of a refused parameter what is not so here."""
    for verbs in schema["paths"].values():
        for operation in verbs.values():
            for answer in operation["responses"].values():
                content = answer.get("content", {})
                if content.get("application/json", {}).get("schema") in (_PROBLEM, _THEIRS):
                    content["application/problem+json"] = {"schema": _PROBLEM}
                    del content["application/json"]
    for name in ("HTTPValidationError", "ValidationError"):
        schema["components"]["schemas"].pop(name, None)


_PROBLEM = {"$ref": f"#/components/schemas/{Problem.__name__}"}
_THEIRS = {"$ref": "#/components/schemas/HTTPValidationError"}
