"""Files of the data folder: private, written whole or not at all, with errors that name the file."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from vestnik.errors import EmbeddedServerError


@contextmanager
def clear_about(path: Path) -> Iterator[None]:
    """Turns an error of the file system into one that says which file it is about and what to do."""
    try:
        yield
    except OSError as e:
        raise EmbeddedServerError(
            f"the data folder cannot be used: {e.filename or path}: {e.strerror or e}",
            hint="make it writable for this user, or set VESTNIK_DATA_DIR to another folder",
        ) from e


def write_private(path: Path, text: str) -> None:
    with clear_about(path):
        file, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        unfinished = Path(name)
        try:
            with os.fdopen(file, "w", encoding="utf-8") as opened:
                opened.write(text)
                opened.flush()
                os.fsync(opened.fileno())
            give_to_owner_of(path.parent, unfinished)
            unfinished.replace(path)
            _sync_folder(path.parent)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise


def give_to_owner_of(folder: Path, file: Path) -> None:
    """What root writes into an ordinary user's folder stays the user's: he has to go on with it."""
    if os.geteuid() == 0:
        owner = folder.stat()
        os.chown(file, owner.st_uid, owner.st_gid)


def _sync_folder(folder: Path) -> None:
    """Makes the new name as durable as the text behind it."""
    opened = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def remove_tree(folder: Path) -> None:
    with clear_about(folder):
        shutil.rmtree(folder)


def digest(path: Path) -> str:
    """A short name for a path, for places where the path itself is too long."""
    return sha256(os.fsencode(path)).hexdigest()[:12]
