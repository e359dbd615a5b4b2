"""The embedded server as the rest of Vestnik sees it.

It belongs to ``vestnik db start``, or to the programs that use it: the first one starts it, others attach,
the last one to leave stops it. A program that is killed leaves by that alone: its lock goes with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vestnik.db.embedded import locks
from vestnik.db.embedded.account import server_account
from vestnik.db.embedded.binaries import NEWEST, find_binaries
from vestnik.db.embedded.cluster import Cluster, State
from vestnik.db.embedded.files import remove_tree, write_private
from vestnik.db.embedded.place import ROLE, SUPERUSER, Location, Place
from vestnik.db.embedded.product import DATABASE, furnish
from vestnik.db.embedded.upgrade import copy_database
from vestnik.errors import EmbeddedServerError


@dataclass(frozen=True)
class Status:
    """``kept``: left running by ``vestnik db start``. ``in_use``: a program holds it."""

    running: bool
    kept: bool
    in_use: bool
    folder: Path | None
    version: int | None


class EmbeddedServer:
    """A PostgreSQL in ``data_dir``. Nothing is written and nothing runs before the first start.

    ``durability=False`` gives up safety for speed. It is for tests only.
    """

    start_timeout = 120.0
    stop_timeout = 60.0

    def __init__(self, data_dir: Path, version: int = NEWEST, *, durability: bool = True) -> None:
        self.version = version
        self._place = Place(data_dir)
        self._durability = durability

    @property
    def url(self) -> str:
        """The address of the product's database, for the product's role."""
        return self._existing().url(ROLE, DATABASE)

    @property
    def superuser_url(self) -> str:
        return self._existing().url(SUPERUSER, "postgres")

    @contextmanager
    def running(self) -> Iterator[str]:
        """The server for as long as the block lasts; yields the address of the product's database."""
        with self._starting_or_stopping():
            self._ensure_running()
            use = locks.take(self._place.users_lock, shared=True)
            assert use is not None  # the only ones that take it alone do so under the lock that we hold
        try:
            yield self.url
        finally:
            with self._starting_or_stopping():
                os.close(use)
                if not self._place.keep.exists() and locks.is_free(self._place.users_lock):
                    self._stop()

    def start(self) -> bool:
        """Leaves the server running, whoever started it. True when it did not run yet."""
        with self._starting_or_stopping():
            started = self._ensure_running()
            write_private(self._place.keep, "")
            return started

    def stop(self, *, force: bool = False) -> bool:
        """Stops the server, whoever started it, but not under a program that uses it, unless ``force``."""
        if self._place.location() is None:
            return False
        with self._starting_or_stopping():
            if not force and not locks.is_free(self._place.users_lock):
                raise EmbeddedServerError(
                    "a program uses the embedded server", hint="stop that first, or: vestnik db stop --force"
                )
            return self._stop()

    def revive(self) -> bool:
        """Starts a server again that was killed; one that was told to stop stays so. True when it did."""
        with self._starting_or_stopping():
            if not self._existing().was_killed():
                return False
            kept = self._place.keep.exists()
            self._ensure_running()
            if kept:
                write_private(self._place.keep, "")
            return True

    def status(self) -> Status:
        where = self._place.location()
        if where is None:
            return Status(False, False, False, None, None)
        with self._starting_or_stopping():
            cluster = self._cluster(where)
            running = cluster.state() is not State.ABSENT
            in_use = not locks.is_free(self._place.users_lock)
            kept = running and self._place.keep.exists()
            return Status(running, kept, in_use, where.cluster, cluster.major())

    def upgrade(self) -> Path | None:
        """Brings the database to this version of PostgreSQL by dump and restore.

        Returns the folder of the old cluster, which is kept, or None when there was nothing to do.
        """
        with self._starting_or_stopping():
            old = self._existing()
            if (found := old.major()) == self.version:
                return None
            if found > self.version:
                raise EmbeddedServerError(f"PostgreSQL {found} is newer than {self.version}")
            old = self._cluster(old.where, found)
            if old.state() is not State.ABSENT:
                raise EmbeddedServerError("the embedded server is running", hint="vestnik db stop")
            new = self._unfinished()
            try:
                with self._serving(old), self._serving(new):
                    copy_database(old, new)
            except BaseException:
                remove_tree(new.folder)
                raise
            self._place.publish(new.folder)
            return old.folder

    @contextmanager
    def _starting_or_stopping(self) -> Iterator[None]:
        """One program at a time. The other locks are looked at only under this one, so no look disturbs."""
        self._place.prepare()
        too_long = EmbeddedServerError(
            f"another program has been starting or stopping the server in {self._place.root} for too long"
        )
        timeout = self.start_timeout + self.stop_timeout
        with locks.holding(self._place.start_lock, timeout=timeout, or_else=too_long):
            yield

    def _ensure_running(self) -> bool:
        cluster = self._cluster(self._place.location() or self._create())
        if (found := cluster.major()) != self.version:
            raise EmbeddedServerError(
                f"the database in {self._place.data_dir} is of PostgreSQL {found}, "
                f"this program comes with {self.version}",
                hint="vestnik db upgrade",
            )
        started = cluster.state() is State.ABSENT
        if started:
            cluster.make_way()
            # The socket's folder depends on this program's environment, so it is written down anew.
            cluster = self._cluster(self._place.settle(cluster.folder))
            self._place.keep.unlink(missing_ok=True)
            cluster.spawn(durability=self._durability)
        self._finish_start(cluster)
        return started

    def _finish_start(self, cluster: Cluster) -> None:
        cluster.wait_until_ready(self.start_timeout)
        furnish(cluster.url(SUPERUSER, "postgres"), cluster.passwords[ROLE])

    def _create(self) -> Location:
        return self._place.publish(self._unfinished().folder)

    def _unfinished(self) -> Cluster:
        where = self._place.unfinished_cluster(self.version, server_account(None))
        cluster = self._cluster(where)
        cluster.initialise(durability=self._durability)
        return cluster

    @contextmanager
    def _serving(self, cluster: Cluster) -> Iterator[None]:
        cluster.make_way()
        cluster.spawn(durability=self._durability)
        try:
            self._finish_start(cluster)
            yield
        finally:
            cluster.stop(self.stop_timeout)

    def _stop(self) -> bool:
        self._place.keep.unlink(missing_ok=True)
        cluster = self._existing()
        if cluster.wait_until_gone():
            return False
        cluster.stop(self.stop_timeout)
        return True

    def _existing(self) -> Cluster:
        where = self._place.location()
        if where is None:
            raise EmbeddedServerError(
                f"there is no database in {self._place.data_dir} yet",
                hint="make one with vestnik migrate or vestnik up, or set VESTNIK_DATA_DIR to where it is",
            )
        return self._cluster(where)

    def _cluster(self, where: Location, version: int | None = None) -> Cluster:
        account = server_account(where.cluster / "data")
        binaries = find_binaries(version or self.version)
        if not account.reaches(binaries.program("postgres")):
            binaries = binaries.copied_to(self._place.outside(account))
        return Cluster(where, binaries, account, self._place.passwords())
