"""Who the server runs as: PostgreSQL refuses to run as root, so root lends it an unprivileged user."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vestnik.errors import EmbeddedServerError

_CANDIDATES = ("postgres", "nobody")


@dataclass(frozen=True)
class Account:
    """The user of the server's processes and files; ``borrowed`` when it is not the user of this program."""

    uid: int
    gid: int
    borrowed: bool

    @property
    def for_subprocess(self) -> dict[str, Any]:
        return {"user": self.uid, "group": self.gid, "extra_groups": []} if self.borrowed else {}

    def give(self, path: Path) -> None:
        if self.borrowed:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def private_folder(self, folder: Path) -> None:
        """Makes the folder with mode 0700, or makes sure that nobody else made it."""
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            found = folder.lstat()
            if found.st_uid not in (self.uid, os.geteuid()) or found.st_mode != stat.S_IFDIR | 0o700:
                raise EmbeddedServerError(
                    f"{folder} is in the way: it is not a private folder of ours", hint=f"remove {folder}"
                ) from None
        self.give(folder)

    def reaches(self, path: Path) -> bool:
        """Whether the server may enter the folder, or run the program.

        Tried out rather than computed: modes, ACLs and every parent have a say.
        """
        if not self.borrowed:
            return True
        try:
            attempt = subprocess.run(
                ["/bin/sh", "-c", 'test -x "$0"', str(path)],
                stdin=subprocess.DEVNULL,
                cwd="/",
                env={},
                check=False,
                **self.for_subprocess,
            )
        except OSError as e:
            raise EmbeddedServerError(
                f"PostgreSQL does not run as root, and this root may not become another user: {e.strerror}",
                hint="run Vestnik as an ordinary user",
            ) from e
        return attempt.returncode == 0


def server_account(data: Path | None) -> Account:
    """The owner of an existing data directory, else this user, else (as root) the first of the usual ones."""
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid(), borrowed=False)
    if data is not None and data.exists() and (owner := data.stat()).st_uid != 0:
        return Account(owner.st_uid, owner.st_gid, borrowed=True)
    for name in _CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid, borrowed=True)
    raise EmbeddedServerError(
        f"PostgreSQL does not run as root, and there is none of the users {', '.join(_CANDIDATES)}",
        hint="run Vestnik as an ordinary user, or: useradd --system --no-create-home postgres",
    )
