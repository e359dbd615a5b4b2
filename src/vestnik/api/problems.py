"""HTTP errors as problem details (RFC 9457): every refusal says what was wrong and what to do, and nothing of ours."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from vestnik.errors import InvalidPayload, NotFound
from vestnik.log import get_log

log = get_log()


def problem(status: int, detail: str, *, headers: Mapping[str, str] | None = None, **extensions: Any) -> JSONResponse:
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    return JSONResponse(body | extensions, status, headers, media_type="application/problem+json")


def install(app: FastAPI) -> None:
    """Every error that leaves this application has this one form."""

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> JSONResponse:
        return problem(error.status_code, str(error.detail), headers=error.headers)

    @app.exception_handler(RequestValidationError)
    async def _validation(request: Request, error: RequestValidationError) -> JSONResponse:
        faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
        return problem(422, "; ".join(faults), errors=faults)

    @app.exception_handler(NotFound)
    async def _not_found(request: Request, error: NotFound) -> JSONResponse:
        return problem(404, f"{error}.")

    @app.exception_handler(InvalidPayload)
    async def _invalid(request: Request, error: InvalidPayload) -> JSONResponse:
        return problem(422, str(error), errors=error.problems)

    @app.exception_handler(Exception)
    async def _unforeseen(request: Request, error: Exception) -> JSONResponse:
        log.error("http.failed", path=request.url.path, exc_info=error)
        return problem(500, "Something went wrong on our side; it is in the log.")
