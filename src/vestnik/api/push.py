"""``POST /v1/push``: a post goes in, as JSON, or as a form with its files."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import psycopg
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from psycopg_pool import PoolTimeout
from starlette.requests import ClientDisconnect

from vestnik.api.form import is_form, parts
from vestnik.api.payload_schema import PUSH_DOCUMENTATION
from vestnik.api.problems import problem
from vestnik.autopost import measured
from vestnik.autopost.intake import Endpoint, Intake, TooFast, TooLarge, UnknownSecret
from vestnik.autopost.media.blobs import BlobStore, FileTooLarge
from vestnik.autopost.media.upload import UploadRefused, take
from vestnik.db.pool import Pool
from vestnik.errors import InvalidPayload, NotFound
from vestnik.log import about, get_log
from vestnik.storage import StorageError

log = get_log()


@dataclass(frozen=True, slots=True)
class Doorstep:
    """What a request is taken in with. ``max_request_bytes`` is above every endpoint's own limit of a payload."""

    pool: Pool
    intake: Intake
    blobs: BlobStore
    max_request_bytes: int
    media_max_bytes: int


@dataclass(slots=True)
class Taken:
    """What is known of a request once it is answered."""

    workspace_id: str = ""
    done: dict[str, Any] | None = None


def push_routes(doorstep: Doorstep) -> APIRouter:
    router, intake = APIRouter(), doorstep.intake

    @router.post("/v1/push", **PUSH_DOCUMENTATION)
    async def push(request: Request) -> Response:
        began, taken = time.time_ns(), Taken()
        answer = await answered(request, taken)
        measured.pushed(taken.done, taken.workspace_id, answer.status_code, began)
        return answer

    async def answered(request: Request, taken: Taken) -> Response:
        secret = _secret(request)
        if secret is None:
            return _unauthorized("Send the endpoint's secret: Authorization: Bearer … or X-Vestnik-Secret: …")
        try:
            endpoint = await intake.endpoint(secret)
            taken.workspace_id = endpoint.workspace_id
            about(workspace_id=endpoint.workspace_id)
            takes = _form if is_form(request.headers.get("content-type", "")) else _json
            taken.done = await takes(doorstep, endpoint, request)
            return _answer(taken.done)
        except (UnknownSecret, NotFound):  # NotFound: it was shut after we last looked
            return _unauthorized("No enabled endpoint has this secret.")
        except TooLarge as e:
            return problem(413, f"{e}.", max_payload_bytes=e.limit)
        except FileTooLarge as e:
            return problem(413, f"One of the files: {e}.", media_max_bytes=e.limit)
        except TooFast as e:
            return problem(429, f"{e}.", headers={"Retry-After": str(e.retry_after)})
        except UploadRefused as e:
            return problem(400, f"{e}.")
        except ClientDisconnect:
            return problem(400, "The connection ended before the body did.")
        except InvalidPayload as e:
            return problem(422, str(e), errors=e.problems)
        except (psycopg.OperationalError, PoolTimeout) as e:
            log.warning("push.database_away", error=str(e).strip())
            return problem(503, "The database is away; nothing was kept, send it again.", headers={"Retry-After": "2"})
        except StorageError as e:
            log.warning("push.object_store_failed", error=str(e))
            return problem(503, "The files cannot be stored now; no post was made, send it again.", headers=_SOON)

    return router


_SOON = {"Retry-After": "5"}


async def _json(doorstep: Doorstep, endpoint: Endpoint, request: Request) -> dict[str, Any]:
    limit = min(endpoint.max_payload_bytes, doorstep.max_request_bytes)
    body = await _read(request, limit)
    if body is None:
        await doorstep.intake.refused(endpoint, "ingress_payload_rejected", "too_large")
        raise TooLarge(limit)
    return await doorstep.intake.push(endpoint, body)


async def _form(doorstep: Doorstep, endpoint: Endpoint, request: Request) -> dict[str, Any]:
    """Every gate before the first byte of the body: who may not push uploads nothing."""
    intake = doorstep.intake
    await intake.admit(endpoint)
    try:
        payload = await take(
            doorstep.pool,
            doorstep.blobs,
            endpoint.workspace_id,
            parts(request.headers["content-type"], request.stream()),
            max_payload_bytes=min(endpoint.max_payload_bytes, doorstep.max_request_bytes),
            max_file_bytes=doorstep.media_max_bytes,
        )
    except (TooLarge, FileTooLarge):
        await intake.refused(endpoint, "ingress_payload_rejected", "too_large")
        raise
    except (InvalidPayload, UploadRefused, ClientDisconnect):
        await intake.refused(endpoint, "ingress_payload_rejected", "invalid")
        raise
    return await intake.enqueue(endpoint, payload, admitted=True)


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
    answer |= {key: done[key] for key in ("routed_by_tags", "warnings", "media_pending") if done[key]}
    return JSONResponse(answer, 202)


def _unauthorized(detail: str) -> JSONResponse:
    return problem(401, detail, headers={"WWW-Authenticate": "Bearer"})
