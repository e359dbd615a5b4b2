"""Push ingest: gates, then the enqueue, for many requests at once.

While one batch of an endpoint is being written, what comes in meanwhile waits and is the next batch. A lone request
is a batch of one and waits for nobody.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import psycopg

from vestnik.autopost import measured
from vestnik.autopost.payload import screen
from vestnik.autopost.payloads.keeper import Keeper
from vestnik.db.pool import Pool, call
from vestnik.errors import InvalidPayload, VestnikError
from vestnik.log import get_log
from vestnik.telemetry.instruments import retry_after_seconds

BATCH = 128
KNOWN_FOR = 1.0  # seconds that a resolved endpoint is believed; a disabled one may still be let in for as long
log = get_log()


class UnknownSecret(VestnikError):
    pass


class TooLarge(VestnikError):
    def __init__(self, limit: int) -> None:
        super().__init__(f"the body is larger than the {limit} bytes that this endpoint takes")
        self.limit = limit


class TooFast(VestnikError):
    def __init__(self, retry_after: float) -> None:
        super().__init__("more requests than this endpoint takes in a second")
        self.retry_after = max(1, math.ceil(retry_after))


@dataclass(frozen=True, slots=True)
class Endpoint:
    workspace_id: str
    endpoint_id: str
    max_payload_bytes: int


@dataclass(slots=True, eq=False)
class _Waiting:
    body: str
    answer: asyncio.Future[dict[str, Any]]
    admitted: bool


@dataclass(slots=True)
class _Lane:
    """The requests of one endpoint that wait for the next batch, and the task that writes while there are any."""

    waiting: list[_Waiting] = field(default_factory=list)
    worker: asyncio.Task[None] | None = None


class Intake:
    def __init__(self, pool: Pool, kind: str = "webhook_push", keeper: Keeper | None = None) -> None:
        self._pool, self._kind, self._keeper = pool, kind, keeper
        self._kept_at: dict[tuple[str, str], int] = {}
        self._known: dict[str, tuple[float, Endpoint]] = {}
        self._lanes: dict[Endpoint, _Lane] = {}

    async def endpoint(self, secret: str) -> Endpoint:
        """The endpoint that a secret opens; raises UnknownSecret."""
        digest = secret_hash(secret)
        until, known = self._known.get(digest, (0.0, None))
        if known and time.monotonic() < until:
            return known
        found = await call(self._pool, "select * from autopost.resolve_endpoint(%s, %s)", (self._kind, digest))
        if not found:
            self._known.pop(digest, None)
            raise UnknownSecret("no enabled endpoint has this secret")
        endpoint = Endpoint(**found[0])
        self._known[digest] = (time.monotonic() + KNOWN_FOR, endpoint)
        return endpoint

    async def push(self, endpoint: Endpoint, body: bytes) -> dict[str, Any]:
        """What became of one request. Raises TooLarge, TooFast, InvalidPayload: none of them leaves a receipt."""
        if len(body) > endpoint.max_payload_bytes:
            await self.refused(endpoint, "ingress_payload_rejected", "too_large", raw=body)
            raise TooLarge(endpoint.max_payload_bytes)
        try:
            text = screen(body)
        except InvalidPayload as e:
            await self.admit(endpoint)
            await self.refused(endpoint, "ingress_payload_rejected", "invalid", raw=body, problems=e.problems)
            raise
        return await self.enqueue(endpoint, text)

    async def admit(self, endpoint: Endpoint) -> None:
        """The rate gate alone, for a request that must pass it before its body is taken. Raises TooFast."""
        if not await self._admitted(endpoint, 1):
            await self.refused(endpoint, "ingress_rate_limited", "rate")
            raise TooFast(await self._retry_after(endpoint))

    async def enqueue(self, endpoint: Endpoint, text: str, *, admitted: bool = False) -> dict[str, Any]:
        """A payload that was screened. Raises TooFast, InvalidPayload."""
        lane = self._lanes.setdefault(endpoint, _Lane())
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        lane.waiting.append(_Waiting(text, answer, admitted))
        if lane.worker is None:
            lane.worker = asyncio.create_task(self._write(endpoint, lane))
        return await answer

    async def refused(
        self,
        endpoint: Endpoint,
        action: str,
        reason: str,
        count: int = 1,
        *,
        raw: bytes | str | None = None,
        problems: Sequence[str] = (),
    ) -> None:
        payload_ref = None if raw is None else await self._kept(endpoint, reason, raw, problems)
        await call(
            self._pool,
            "select autopost.record_refusals(%s, %s, %s, %s, %s, p_payload_ref => %s)",
            (endpoint.workspace_id, endpoint.endpoint_id, action, reason, count, payload_ref),
        )
        measured.refused(endpoint.workspace_id, action, reason, count)

    async def _kept(self, endpoint: Endpoint, reason: str, raw: bytes | str, problems: Sequence[str]) -> str | None:
        """The first of those that share an event: one of an endpoint, reason and second."""
        second, name = int(time.time()), (endpoint.workspace_id + " " + endpoint.endpoint_id, reason)
        if self._keeper is None or self._kept_at.get(name) == second:
            return None
        self._kept_at[name] = second
        body = raw if isinstance(raw, str) else raw.decode("utf-8", "backslashreplace")
        told = {"kind": "rejected_push", "at": datetime.now(UTC).isoformat(), "workspace_id": endpoint.workspace_id}
        told |= {"endpoint_id": endpoint.endpoint_id, "reason": reason}
        return (
            await self._keeper.keep(endpoint.workspace_id, {**told, "problems": list(problems), "body": body})
        ).payload_ref

    async def _write(self, endpoint: Endpoint, lane: _Lane) -> None:
        try:
            while lane.waiting:
                batch, lane.waiting = lane.waiting[:BATCH], lane.waiting[BATCH:]
                await self._write_batch(endpoint, batch)
        finally:
            lane.worker = None
            self._lanes.pop(endpoint, None)

    async def _write_batch(self, endpoint: Endpoint, batch: list[_Waiting]) -> None:
        try:
            asking = [request for request in batch if not request.admitted]
            admitted = await self._admitted(endpoint, len(asking)) if asking else 0
            if turned_away := asking[admitted:]:
                await self._turn_away(endpoint, turned_away)
            if staying := [request for request in batch if request not in turned_away]:
                await self._enqueue(endpoint, staying)
        except BaseException as e:
            for request in batch:
                if not request.answer.done():
                    request.answer.set_exception(e)
            if not isinstance(e, Exception):
                raise

    async def _admitted(self, endpoint: Endpoint, count: int) -> int:
        query = "select autopost.ingress_admit(%s, %s, %s) as admitted"
        found = await call(self._pool, query, (endpoint.workspace_id, endpoint.endpoint_id, count))
        return int(found[0]["admitted"])

    async def _turn_away(self, endpoint: Endpoint, requests: list[_Waiting]) -> None:
        await self.refused(endpoint, "ingress_rate_limited", "rate", len(requests))
        wait = await self._retry_after(endpoint)
        for request in requests:
            if not request.answer.done():
                request.answer.set_exception(TooFast(wait))

    async def _retry_after(self, endpoint: Endpoint) -> float:
        query = "select extract(epoch from autopost.ingress_retry_after(%s, %s))::float8 as seconds"
        found = await call(self._pool, query, (endpoint.workspace_id, endpoint.endpoint_id))
        seconds = float(found[0]["seconds"] or 0)
        retry_after_seconds.observe(seconds)
        return seconds

    async def _enqueue(self, endpoint: Endpoint, requests: list[_Waiting]) -> None:
        began = time.time_ns()
        try:
            rows = await self._enqueue_batch(endpoint, [r.body for r in requests])
        except (
            psycopg.DataError,
            psycopg.errors.ProgramLimitExceeded,
            psycopg.errors.StatementTooComplex,
        ) as e:
            if len(requests) > 1:  # one of them cannot be stored; the others must not pay for it
                for request in requests:
                    await self._enqueue(endpoint, [request])
                return
            rows = [
                {
                    "item": 1,
                    "outcome": "invalid",
                    "problems": [f"payload: cannot be stored: {_first_line(e)}"],
                }
            ]
        measured.enqueued(endpoint.workspace_id, [row for row in rows if row["outcome"] == "accepted"], began)
        await self._answer(endpoint, requests, rows)

    async def _enqueue_batch(self, endpoint: Endpoint, bodies: list[str]) -> list[dict[str, Any]]:
        payloads = f"[{','.join(bodies)}]"
        return await call(
            self._pool,
            _ENQUEUE,
            (endpoint.workspace_id, endpoint.endpoint_id, self._kind, payloads, *[endpoint.workspace_id] * 2),
        )

    async def _answer(self, endpoint: Endpoint, requests: list[_Waiting], rows: list[dict[str, Any]]) -> None:
        # What is stored is stored, whatever becomes of the record of the others.
        self._tell(requests, [row for row in rows if row["outcome"] == "accepted"])
        for outcome, action, reason in (
            ("invalid", "ingress_payload_rejected", "invalid"),
            ("duplicate", "ingress_dedup_dropped", "seen_before"),
        ):
            if refused := [row for row in rows if row["outcome"] == outcome]:
                first = refused[0] if outcome == "invalid" else None
                raw = requests[first["item"] - 1].body if first else None
                problems = first["problems"] if first else ()
                await self.refused(endpoint, action, reason, len(refused), raw=raw, problems=problems)
                self._tell(requests, refused)

    def _tell(self, requests: list[_Waiting], rows: list[dict[str, Any]]) -> None:
        for row in rows:
            answer = requests[row["item"] - 1].answer
            if answer.done():  # who asked has gone; what was enqueued stays
                continue
            if row["outcome"] == "invalid":
                answer.set_exception(InvalidPayload(row["problems"]))
            else:
                answer.set_result(row)


# The wake-up travels with the batch, in its transaction: one per batch, and only when there is something to send.
_ENQUEUE = """
with done as materialized (
    select * from autopost.enqueue_batch(%s, %s, %s, array(select jsonb_array_elements(%s::jsonb)), p_gated => true)
), woken as materialized (
    select pg_notify('vestnik_wake', %s) from (select from done where enqueued > 0 limit 1) any_row
), asked as materialized (
    select pg_notify('vestnik_jobs', %s) from (select from done where media_pending > 0 limit 1) any_row
)
select done.* from done left join woken on true left join asked on true
"""


def secret_hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
