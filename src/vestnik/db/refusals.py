"""The one place where refusals of the SQL functions become errors of the domain.

VP001   InvalidPayload   detail: a JSON array of the problems
VM001   IllegalMove
VN001   NotFound
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from vestnik.errors import IllegalMove, InvalidPayload, NotFound, VestnikError

# What a call meets because of the rows that it touches, not because the database is away. Who goes round the workspaces
# logs it and goes on: the others must not pay for it.
OF_THE_ROWS = (
    psycopg.DataError,
    psycopg.IntegrityError,
    psycopg.InternalError,
    psycopg.errors.LockNotAvailable,
    psycopg.errors.QueryCanceled,
    psycopg.errors.ProgramLimitExceeded,
    psycopg.errors.StatementTooComplex,
    VestnikError,
)


@contextmanager
def refusals_as_errors() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as e:
        if (refusal := refusal_in(e)) is not None:
            raise refusal from e
        raise


def refusal_in(error: psycopg.Error) -> VestnikError | None:
    message = error.diag.message_primary or str(error)
    match error.sqlstate:
        case "VP001":
            return InvalidPayload(_problems(error.diag.message_detail) or [message])
        case "VM001":
            return IllegalMove(message)
        case "VN001":
            return NotFound(message)
    return None


def _problems(detail: str | None) -> list[str]:
    try:
        found = json.loads(detail or "[]")
    except ValueError:
        return [detail] if detail else []
    return [str(problem) for problem in found] if isinstance(found, list) else [str(found)]
