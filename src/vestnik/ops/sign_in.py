"""Signing in: from a login and a password to an operator, and to a session that ends by itself."""

from __future__ import annotations

import hmac
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from vestnik.db.pool import Pool, call
from vestnik.errors import TryLater, VestnikError
from vestnik.ops.access import hash_of
from vestnik.ops.jobs.recurring import Recurring
from vestnik.ops.jobs.registry import JobContext, JobKind, Stats
from vestnik.ops.operators import LONGEST_PASSWORD, Operator
from vestnik.ops.passwords import is_password

SESSION = timedelta(hours=12)
# How many failures are free, and how long a gate is shut at most: for one login from one address, for an address, for a
# login from anywhere. The last must not let strangers shut an operator out for long.
_GATES = ((5, timedelta(minutes=15)), (20, timedelta(minutes=15)), (50, timedelta(minutes=1)))
_REMEMBERED = 60.0  # seconds that a password need not be checked again
_MOST_REMEMBERED = 1000


class WrongPassword(VestnikError):
    """No such operator, shut out, or another password: nobody is told which."""

    def __init__(self) -> None:
        super().__init__("no operator has this login and this password")


@dataclass(frozen=True, slots=True)
class Session:
    """The token is shown this once."""

    token: str
    expires_at: datetime
    operator: Operator


class SignIn:
    """One for a process. It remembers for a minute which passwords were right, for those who send them with each request."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._secret = secrets.token_bytes(32)
        self._right: OrderedDict[bytes, float] = OrderedDict()

    async def sign_in(self, login: str, password: str, address: str) -> Session:
        """Raises WrongPassword, TryLater."""
        known = await self._proved(login.strip().lower(), password, address)
        token, expires_at = "vsess_" + secrets.token_urlsafe(32), datetime.now(UTC) + SESSION
        # The password may have become another meanwhile, and its sessions ended.
        if not await call(self._pool, _BEGIN, (hash_of(token), expires_at, known.operator.login, known.hashed)):
            raise WrongPassword
        return Session(token, expires_at, known.operator)

    async def check(self, login: str, password: str, address: str) -> Operator:
        """Whose login and password these are. Raises WrongPassword, TryLater."""
        login = login.strip().lower()
        row = await self._row(login)
        if row and self._right.get(self._mark(login, password, row.hashed), 0.0) > time.monotonic():
            return row.operator
        proved = await self._proved(login, password, address)
        self._remember(self._mark(login, password, proved.hashed))
        return proved.operator

    async def _proved(self, login: str, password: str, address: str) -> _Known:
        row = await self._row(login)
        subjects = [hash_of(part) for part in (f"{login}\n{address}", f"address {address}", f"login {login}")]
        await self._pass_or_raise(subjects)
        if len(password) > LONGEST_PASSWORD or not await is_password(row.hashed if row else None, password) or not row:
            raise WrongPassword
        await call(self._pool, "select core.pass_gates(%s)", (subjects,))
        return row

    async def _row(self, login: str) -> _Known | None:
        if "\0" in login or len(login) > 64 or not login.isascii():
            return None
        query = (
            "select login, name, language, password_hash from core.operators where login = %s and disabled_at is null"
        )
        rows = await call(self._pool, query, (login,))
        if not rows:
            return None
        hashed = str(rows[0].pop("password_hash"))
        return _Known(Operator(**rows[0]), hashed)

    async def _pass_or_raise(self, subjects: list[str]) -> None:
        free, most = zip(*_GATES, strict=True)
        query = (
            "select extract(epoch from core.try_gates(%s, %s, %s, clock_timestamp()) - clock_timestamp())::float8 as s"
        )
        shut_for = (await call(self._pool, query, (subjects, list(free), list(most))))[0]["s"]
        if shut_for is not None:
            raise TryLater("too many wrong passwords", after=max(shut_for, 1.0))

    def _mark(self, login: str, password: str, hashed: str) -> bytes:
        """Of no use outside this process, and void as soon as the password is another."""
        text = "\n".join((login, hashed, password)).encode("utf-8", "surrogatepass")
        return hmac.new(self._secret, text, sha256).digest()

    def _remember(self, mark: bytes) -> None:
        self._right[mark] = time.monotonic() + _REMEMBERED
        self._right.move_to_end(mark)
        while len(self._right) > _MOST_REMEMBERED:
            self._right.popitem(last=False)


@dataclass(frozen=True, slots=True)
class _Known:
    operator: Operator
    hashed: str


async def operator_of_session(pool: Pool, token: str) -> Operator | None:
    """Notes its use, at most once a minute."""
    rows = await call(pool, _SESSION, (hash_of(token),))
    if not rows:
        return None
    if rows[0].pop("stale"):
        query = "update core.operator_sessions set last_used_at = now() where token_hash = %s"
        await call(pool, query, (hash_of(token),))
    return Operator(**rows[0])


def sign_in_pruning() -> Recurring:
    """Sessions that are over, and failures that nobody remembers."""

    async def prune(job: JobContext) -> Stats:
        done = 0
        while not job.should_stop:
            gone = (await call(job.pool, "select core.prune_sign_ins() as n"))[0]["n"]
            done += gone
            if not gone:
                break
        return {"rows": done}

    return Recurring(JobKind("operators.prune", prune, concurrency=1), every=timedelta(hours=1))


async def sign_out(pool: Pool, token: str) -> None:
    await call(pool, "delete from core.operator_sessions where token_hash = %s", (hash_of(token),))


_BEGIN = """
with still as materialized (
    select o.login, %s as token_hash, %s::timestamptz as expires_at from core.operators o
    where o.login = %s and o.password_hash = %s and o.disabled_at is null for no key update
)
insert into core.operator_sessions (token_hash, login, expires_at)
select token_hash, login, expires_at from still returning login
"""
_SESSION = """
select o.login, o.name, o.language, coalesce(s.last_used_at < now() - interval '1 minute', true) as stale
from core.operator_sessions s join core.operators o on o.login = s.login and o.disabled_at is null
where s.token_hash = %s and s.expires_at > now()
"""
