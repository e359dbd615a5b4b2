"""Locks on files. The kernel drops them when their holder dies, however it dies, so none can be stale."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vestnik.db.embedded.files import clear_about

_POLL = 0.02


def take(path: Path, *, shared: bool = False, timeout: float = 0.0) -> int | None:
    """The open file that holds the lock (close it to let go), or None when others kept it for ``timeout``."""
    deadline = time.monotonic() + timeout
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    with clear_about(path):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while not (got := _got(file, kind)) and time.monotonic() < deadline:
                time.sleep(_POLL)
        except BaseException:
            os.close(file)
            raise
    if not got:
        os.close(file)
    return file if got else None


def is_free(path: Path) -> bool:
    """Whether nobody holds the lock."""
    file = take(path)
    if file is None:
        return False
    os.close(file)
    return True


@contextmanager
def holding(path: Path, *, timeout: float, or_else: Exception) -> Iterator[None]:
    file = take(path, timeout=timeout)
    if file is None:
        raise or_else
    try:
        yield
    finally:
        os.close(file)


def _got(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
