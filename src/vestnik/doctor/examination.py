"""An examination: all checks at once, each with a limit of its own, so that what hangs holds up nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import psycopg
from psycopg_pool import PoolTimeout

from vestnik.doctor.findings import Check, Finding, Patient, fail, refused, skipped
from vestnik.errors import VestnikError

AT_ONCE = 4  # a doctor must not take the connections that the service needs
_OTHER_SCHEMA = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.UndefinedFunction,
    psycopg.errors.InvalidSchemaName,
)


async def examine(
    patient: Patient, checks: Sequence[Check], told: Callable[[Check], None] = lambda check: None
) -> list[Finding]:
    """In the order of the checks. ``told`` hears of each that has ended."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(check: Check) -> list[Finding]:
        async with room:
            found = await _look(patient, check)
        told(check)
        return [replace(each, check=check.name) for each in found]

    return [finding for found in await asyncio.gather(*map(one, checks)) for finding in found]


async def _look(patient: Patient, check: Check) -> Sequence[Finding]:
    if check.outside and patient.offline:
        return [skipped("nobody outside is asked (--offline)")]
    try:
        async with asyncio.timeout(check.patience):
            found = await check.look(patient)
    except TimeoutError:
        return [fail(f"no answer within {check.patience:g} s", "look at its machine, its load and its locks")]
    except psycopg.errors.InsufficientPrivilege:
        return [skipped("this role of the database may not look")]
    except _OTHER_SCHEMA:
        return [skipped("the schema is not that of this program, see machine.schema")]
    except (psycopg.OperationalError, PoolTimeout):
        return [fail("the database is away", "vestnik db status; see whether VESTNIK_DATABASE_URL is right")]
    except psycopg.Error as e:
        return [fail(f"the database refuses to tell: {_first_line(e)}", "vestnik migrate")]
    except VestnikError as e:
        return [refused(e, "see the message")]
    return [found] if isinstance(found, Finding) else found


def _first_line(error: psycopg.Error) -> str:
    return error.diag.message_primary or str(error).strip().splitlines()[0]
