"""Where the embedded server keeps its things: ``postgres/`` in the data folder.

    postgres/passwords      of the two roles, mode 0600
    postgres/location       which cluster is the current one, and where its socket is
    postgres/pg18/          the cluster; the server's user owns data/, log/ and socket/ in it, nothing else
    postgres/pg18/life.lock held by every process of the server itself, to its last one
    postgres/start.lock     held while somebody starts or stops the server
    postgres/users.lock     shared by the programs that use it; the last to leave stops it
    postgres/keep           left by ``vestnik db start``: the server outlives the programs that use it

A server that runs as another user cannot always reach the data folder (a home of mode 0700). Its cluster then
lives in ``/var/lib/vestnik-…`` and ``location`` says so; no folder is opened up for it.
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path

from vestnik.db.embedded.account import Account
from vestnik.db.embedded.files import clear_about, digest, remove_tree, write_private
from vestnik.errors import EmbeddedServerError

SUPERUSER = "postgres"
ROLE = "vestnik"
_OUTSIDE = Path("/var/lib")
# A socket's path has 104 bytes on macOS and 108 on Linux, with the closing NUL.
_LONGEST_SOCKET_FOLDER = 103 - len("/.s.PGSQL.5432")


@dataclass(frozen=True)
class Location:
    cluster: Path
    socket: Path


class Place:
    def __init__(self, data_dir: Path) -> None:
        # Resolved, because one folder must not have two names: the outside one is derived from it.
        self.data_dir = data_dir.resolve()
        self.root = self.data_dir / "postgres"
        self.start_lock = self.root / "start.lock"
        self.users_lock = self.root / "users.lock"
        self.keep = self.root / "keep"
        self._location = self.root / "location"
        self._passwords = self.root / "passwords"

    def prepare(self) -> None:
        """Makes the folder, and finds out at once whether it can be written to."""
        with clear_about(self.root):
            if not self.root.exists():
                self.root.mkdir(parents=True, exist_ok=True)
                # The server's user passes through; what is private in here has a mode of its own.
                self.root.chmod(0o711)
            with tempfile.TemporaryFile(dir=self.root):
                pass

    def passwords(self) -> dict[str, str]:
        """Made once. Without them nobody gets into the cluster, so they are on disk before it is."""
        with clear_about(self._passwords):
            if not self._passwords.exists():
                if self._location.exists():
                    raise EmbeddedServerError(
                        f"{self._passwords} is missing, and without it nobody gets into the database",
                        hint="restore it from a backup",
                    )
                made = {role: secrets.token_hex(24) for role in (SUPERUSER, ROLE)}
                write_private(self._passwords, json.dumps(made))
            return dict(json.loads(self._passwords.read_text("utf-8")))

    def location(self) -> Location | None:
        with clear_about(self._location):
            try:
                found = json.loads(self._location.read_text("utf-8"))
            except FileNotFoundError:
                return None
            except ValueError as e:
                raise EmbeddedServerError(f"{self._location} is damaged: {e}", hint="restore it from a backup") from e
        where = Location(self.root / found["cluster"], Path(found["socket"]))
        if not where.cluster.exists():
            raise EmbeddedServerError(
                f"the database of {self.data_dir} is gone: there is no {where.cluster}",
                hint=f"restore it, or remove {self.root} to begin with an empty one",
            )
        if not self._is_inside(where.cluster):
            self._refuse_cluster_of_another(where.cluster.parent / "home")
        return where

    def settle(self, cluster: Path) -> Location:
        """Makes ``cluster`` the current one, in one step."""
        inside = self._is_inside(cluster)
        if not inside:
            write_private(cluster.parent / "home", str(self.data_dir))
        socket = self._socket_folder(cluster)
        shown = cluster.relative_to(self.root) if inside else cluster
        write_private(self._location, json.dumps({"cluster": str(shown), "socket": str(socket)}))
        return Location(cluster, socket)

    def unfinished_cluster(self, version: int, account: Account) -> Location:
        """An empty folder to make a cluster in. It counts only once it is published."""
        self._refuse_to_forget_a_cluster()
        parent = self.root if account.reaches(self.root) else self.outside(account)
        folder = parent / f"pg{version}.new"
        if folder.exists():
            remove_tree(folder)
        with clear_about(folder):
            folder.mkdir()
            folder.chmod(0o711)
        return Location(folder, self._socket_folder(folder))

    def publish(self, unfinished: Path) -> Location:
        """Gives the finished cluster a name that is not taken, and makes it the current one."""
        name = unfinished.with_suffix("")
        count = 1
        while (target := name if count == 1 else name.with_name(f"{name.name}-{count}")).exists():
            count += 1
        with clear_about(unfinished):
            unfinished.rename(target)
        return self.settle(target)

    def outside(self, account: Account) -> Path:
        """A folder of ours outside the data folder, for what the server's user could not reach there."""
        folder = _OUTSIDE / f"vestnik-{digest(self.data_dir)}"
        hint = "set VESTNIK_DATA_DIR to a folder that everybody may enter, such as /srv/vestnik"
        try:
            folder.mkdir(exist_ok=True)
            folder.chmod(0o711)
        except OSError as e:
            raise EmbeddedServerError(
                f"the server's user cannot enter {self.data_dir}, and {folder} cannot be made: {e.strerror}",
                hint=hint,
            ) from e
        if not account.reaches(folder):
            raise EmbeddedServerError(f"the server's user can enter neither {self.data_dir} nor {folder}", hint=hint)
        return folder

    def _refuse_to_forget_a_cluster(self) -> None:
        """An empty database in place of a full one that is only out of sight would look like a loss."""
        if self._location.exists():
            return
        for found in self.root.glob("pg*/data/PG_VERSION"):
            if not found.parent.parent.name.endswith(".new"):
                raise EmbeddedServerError(
                    f"{self._location} is missing, but there is a database in {found.parent.parent}",
                    hint=f"restore it from a backup, or move {found.parent.parent} away to begin anew",
                )

    def _is_inside(self, cluster: Path) -> bool:
        return cluster.is_relative_to(self.root)

    def _refuse_cluster_of_another(self, home: Path) -> None:
        """A copied data folder points at the original's cluster outside; a moved one at its own."""
        with clear_about(home):
            owner = Path(home.read_text("utf-8"))
        if owner == self.data_dir:
            return
        if (owner / "postgres" / "location").exists():
            raise EmbeddedServerError(
                f"{self.data_dir} is a copy: its database {home.parent} belongs to {owner}",
                hint=f"work in {owner}, or remove {self.root} to begin with an empty database here",
            )
        write_private(home, str(self.data_dir))

    def _socket_folder(self, cluster: Path) -> Path:
        near = cluster / "socket"
        # A comma would part the address in two.
        if len(os.fsencode(near)) <= _LONGEST_SOCKET_FOLDER and "," not in str(near):
            return near
        return Path(tempfile.gettempdir()) / f"vestnik-{digest(cluster)}"
