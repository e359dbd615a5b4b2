"""HTTP errors as problem details (RFC 9457): every refusal says what was wrong and what to do, and nothing of ours."""

from __future__ import annotations

import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import psycopg
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from psycopg_pool import PoolTimeout
from starlette.exceptions import HTTPException

from vestnik.errors import ConfigError, Conflict, IllegalMove, InvalidPayload, NotFound, TryLater
from vestnik.log import get_log
from vestnik.ops.sign_in import WrongPassword

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

    @app.exception_handler(ConfigError)
    async def _config(request: Request, error: ConfigError) -> JSONResponse:
        return problem(422, f"{error}.", errors=[str(error)])

    @app.exception_handler(Conflict)
    @app.exception_handler(IllegalMove)
    async def _conflict(request: Request, error: Exception) -> JSONResponse:
        return problem(409, f"{error}.")

    @app.exception_handler(WrongPassword)
    async def _wrong_password(request: Request, error: WrongPassword) -> JSONResponse:
        return problem(401, f"{error}.", headers={"WWW-Authenticate": "Bearer"})

    @app.exception_handler(TryLater)
    async def _later(request: Request, error: TryLater) -> JSONResponse:
        return problem(429, f"{error}.", headers={"Retry-After": str(max(math.ceil(error.after), 1))})

    _of_the_database(app)

    @app.exception_handler(Exception)
    async def _unforeseen(request: Request, error: Exception) -> JSONResponse:
        log.error("http.failed", path=request.url.path, exc_info=error)
        return problem(500, "Something went wrong on our side; it is in the log.")


def _of_the_database(app: FastAPI) -> None:
    """What the database says of a request that asks too much of it, or at a bad moment."""

    @app.exception_handler(psycopg.DataError)
    @app.exception_handler(UnicodeEncodeError)
    async def _not_storable(request: Request, error: Exception) -> JSONResponse:
        return problem(422, "The database cannot store what was given: a NUL, half a character, or a number too large.")

    @app.exception_handler(psycopg.errors.ForeignKeyViolation)
    async def _missing(request: Request, error: Exception) -> JSONResponse:
        return problem(404, "Something that is named does not exist.")

    @app.exception_handler(psycopg.errors.UniqueViolation)
    async def _taken(request: Request, error: Exception) -> JSONResponse:
        return problem(409, "There is something of this name already.")

    @app.exception_handler(psycopg.errors.CheckViolation)
    @app.exception_handler(psycopg.errors.NotNullViolation)
    async def _out_of_bounds(request: Request, error: Exception) -> JSONResponse:
        return problem(422, "A value is out of its bounds.")

    @app.exception_handler(psycopg.OperationalError)
    @app.exception_handler(PoolTimeout)
    async def _away(request: Request, error: Exception) -> JSONResponse:
        log.warning("http.database_away", path=request.url.path, error=type(error).__name__)
        return problem(503, "The database is away, or took too long; ask again.", headers={"Retry-After": "2"})
