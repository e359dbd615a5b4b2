"""``POST /v1/push``: a post goes in."""

from __future__ import annotations

from typing import Any

import psycopg
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from psycopg_pool import PoolTimeout
from starlette.requests import ClientDisconnect

from vestnik.api.payload_schema import PUSH_DOCUMENTATION
from vestnik.api.problems import problem
from vestnik.autopost.intake import Intake, TooFast, TooLarge, UnknownSecret
from vestnik.errors import InvalidPayload, NotFound
from vestnik.log import get_log

log = get_log()


def push_routes(intake: Intake, max_request_bytes: int) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/push", **PUSH_DOCUMENTATION)
    async def push(request: Request) -> Response:
        secret = _secret(request)
        if secret is None:
            return _unauthorized("Send the endpoint's secret: Authorization: Bearer … or X-Vestnik-Secret: …")
        try:
            endpoint = await intake.endpoint(secret)
            body = await _read(request, min(endpoint.max_payload_bytes, max_request_bytes))
            if body is None:
                await intake.refused(endpoint, "ingress_payload_rejected", "too_large")
                raise TooLarge(min(endpoint.max_payload_bytes, max_request_bytes))
            return _answer(await intake.push(endpoint, body))
        except (UnknownSecret, NotFound):  # NotFound: it was shut after we last looked
            return _unauthorized("No enabled endpoint has this secret.")
        except TooLarge as e:
            return problem(413, f"{e}.", max_payload_bytes=e.limit)
        except TooFast as e:
            return problem(429, f"{e}.", headers={"Retry-After": str(e.retry_after)})
        except ClientDisconnect:
            return problem(400, "The connection ended before the body did.")
        except InvalidPayload as e:
            return problem(422, str(e), errors=e.problems)
        except (psycopg.OperationalError, PoolTimeout) as e:
            log.warning("push.database_away", error=str(e).strip())
            return problem(503, "The database is away; nothing was kept, send it again.", headers={"Retry-After": "2"})

    return router


def _secret(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return request.headers.get("x-vestnik-secret") or None


async def _read(request: Request, limit: int) -> bytes | None:
    """The body, or None once it is known to be larger than the limit: no more of it is kept than that."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        return None
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limit:
            return None
    return bytes(body)


def _answer(done: dict[str, Any]) -> JSONResponse:
    if done["outcome"] == "duplicate":
        return JSONResponse({"outcome": "duplicate"}, 200)
    answer = {"outcome": "accepted"}
    answer |= {key: str(done[key]) for key in ("message_id", "trace_id", "run_id")}
    answer |= {key: done[key] for key in ("enqueued", "suppressed", "failed")}
    answer |= {key: done[key] for key in ("routed_by_tags", "warnings") if done[key]}
    return JSONResponse(answer, 202)


def _unauthorized(detail: str) -> JSONResponse:
    return problem(401, detail, headers={"WWW-Authenticate": "Bearer"})
