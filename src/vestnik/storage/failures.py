"""What goes wrong in a store, in words of our own: those of the library quote addresses and answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from obstore import exceptions

from vestnik.errors import VestnikError


class StorageError(VestnikError):
    """The store did not do it. ``permanent``: neither trying again nor an operator will make it work.

    A wrong key, a full disk, a bucket that was never made are not permanent: once they are put right, what waits goes on.
    """

    permanent = False


class ObjectNotFound(StorageError):
    """The store is there, the object is not."""

    permanent = True

    def __init__(self, path: str) -> None:
        super().__init__(f"the object store has no {path}")


class BadPath(StorageError):
    permanent = True


@contextmanager
def told_clearly(path: str) -> Iterator[None]:
    """Errors of the library become ours, and a traceback of ours does not go on with theirs."""
    try:
        yield
    except FileNotFoundError as e:
        failure: StorageError = _bucket_missing() if "NoSuchBucket" in str(e) else ObjectNotFound(path)
    except ValueError:
        failure = BadPath(f"not a path of an object: {path!r}")
    except (exceptions.BaseError, OSError) as e:
        failure = _told(e)
    else:
        return
    raise failure from None


def _told(e: Exception) -> StorageError:
    said = str(e)
    if isinstance(e, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError):
        return StorageError("the object store refuses the access", hint="check KEY, SECRET and their rights")
    if "NoSuchBucket" in said:
        return _bucket_missing()
    system = re.search(r"([A-Z][\w' -]{3,80}) \(os error \d+\)", said)
    if system:
        return StorageError(f"the object store failed: {system[1]}")
    status = re.search(r"non-2xx status code: (\d{3})", said)
    if status:
        return StorageError(f"the object store answered {status[1]}")
    return StorageError("the object store cannot be reached, or broke off")


def _bucket_missing() -> StorageError:
    return StorageError("the bucket of the object store does not exist", hint="create it")
