"""``GET /metrics``, on the port of the API or on one of its own.

It tells how workspaces are called and how much they publish, so it is not for everybody: with a token for whoever knows it,
without one for this machine only, and then not through a proxy, which would make everybody look like this machine.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from fastapi import APIRouter, FastAPI, Request, Response
from starlette.exceptions import HTTPException

from vestnik.api import problems
from vestnik.api.payload_schema import Problem
from vestnik.autopost.backlog import Backlog
from vestnik.telemetry.exposition import CONTENT_TYPE, Exposition

_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via")
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The text format of Prometheus.", "content": {"text/plain": {"schema": {"type": "string"}}}},
    401: {"model": Problem, "description": "Not the token of VESTNIK_METRICS_TOKEN."},
    403: {"model": Problem, "description": "There is no such token, and the request came from elsewhere."},
}


@dataclass(frozen=True, slots=True)
class Gauges:
    """What the page is made of, and who may see it."""

    exposition: Exposition
    backlog: Backlog
    token: str | None = None

    async def page(self) -> bytes:
        return self.exposition.page(await self.backlog.families())


def metrics_routes(gauges: Gauges) -> APIRouter:
    router = APIRouter()

    @router.get(
        "/metrics",
        tags=["service"],
        summary="Counters, latencies and queues, for Prometheus",
        responses=_ANSWERS,
        response_class=Response,
    )
    async def metrics(request: Request) -> Response:
        _admit(request, gauges.token)
        return Response(await gauges.page(), media_type=CONTENT_TYPE)

    return router


def metrics_app(gauges: Gauges) -> FastAPI:
    """For a port of its own."""
    app = FastAPI(title="Vestnik metrics", docs_url=None, redoc_url=None, openapi_url=None)
    problems.install(app)
    app.include_router(metrics_routes(gauges))
    return app


def _admit(request: Request, token: str | None) -> None:
    if token is not None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not secrets.compare_digest(given.strip().encode(), token.encode()):
            raise HTTPException(401, "Send the token of VESTNIK_METRICS_TOKEN.", {"WWW-Authenticate": "Bearer"})
    elif not _is_here(request):
        raise HTTPException(403, "Only for this machine; set VESTNIK_METRICS_TOKEN, and send it as a bearer token.")


def _is_here(request: Request) -> bool:
    """Also by the name that it was asked under: a page that a browser of this machine shows has another."""
    if request.client is None or any(name in request.headers for name in _FORWARDED):
        return False
    return _is_loopback(_netloc(request.client.host)) and _is_loopback(request.headers.get("host", "localhost"))


def _netloc(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _is_loopback(netloc: str) -> bool:
    try:
        host = urlsplit(f"//{netloc}").hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
