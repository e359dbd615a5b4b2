"""Passwords as argon2id hashes, made and checked aside, few at a time: each takes tens of megabytes and of milliseconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from vestnik.errors import TryLater

T = TypeVar("T")
AT_ONCE = 2
MOST_WAITING = 32
_hasher = PasswordHasher()
_threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="argon2")
_waiting = 0


async def hash_password(password: str) -> str:
    return await _aside(_hasher.hash, password)


async def is_password(hashed: str | None, password: str) -> bool:
    """As much work for an operator that is not there (``hashed`` None) as for a wrong password."""
    return await _aside(_fits, hashed, password)


def _fits(hashed: str | None, password: str) -> bool:
    nobodys = _nobodys()
    try:
        return _hasher.verify(hashed or nobodys, password.encode("utf-8", "surrogatepass")) and hashed is not None
    except (VerificationError, InvalidHashError):
        return False


@cache
def _nobodys() -> str:
    return _hasher.hash("")


async def _aside(work: Callable[..., T], *arguments: str | None) -> T:
    global _waiting
    if _waiting >= MOST_WAITING:
        raise TryLater("too many are signing in at once", after=2.0)
    _waiting += 1
    try:
        return await asyncio.get_running_loop().run_in_executor(_threads, work, *arguments)
    finally:
        _waiting -= 1
