"""One PostgreSQL cluster on disk, and the server that runs on it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from urllib.parse import quote

import psycopg

from vestnik.db.embedded import locks, processes
from vestnik.db.embedded.account import Account
from vestnik.db.embedded.binaries import Binaries
from vestnik.db.embedded.configuration import server_configuration
from vestnik.db.embedded.files import clear_about, digest
from vestnik.db.embedded.place import SUPERUSER, Location
from vestnik.errors import EmbeddedServerError

_POLL = 0.03
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}
_ORPHANS_LEAVE_WITHIN = 5.0
_SOCKET = ".s.PGSQL.5432"


class State(Enum):
    ABSENT = "nobody answers"
    BUSY = "a server is there, but lets nobody in yet"
    READY = "our server answers"


@dataclass(frozen=True)
class Cluster:
    where: Location
    binaries: Binaries
    account: Account
    passwords: dict[str, str]

    @property
    def folder(self) -> Path:
        return self.where.cluster

    @property
    def data(self) -> Path:
        return self.folder.resolve() / "data"

    @property
    def life_lock(self) -> Path:
        return self.folder / "life.lock"

    @property
    def name(self) -> str:
        return f"vestnik-{digest(self.data)}"

    def url(self, role: str, database: str) -> str:
        socket = quote(str(self.where.socket), safe="")
        return f"postgresql://{role}:{self.passwords[role]}@/{database}?host={socket}&port=5432"

    def major(self) -> int:
        with clear_about(self.data):
            return int((self.data / "PG_VERSION").read_text("ascii"))

    def initialise(self, *, durability: bool) -> None:
        password = self.folder / "password"
        with clear_about(self.folder):
            try:
                self.account.private_folder(self.data)
                password.touch(mode=0o600)
                password.write_text(self.passwords[SUPERUSER], "ascii")
                self.account.give(password)
                self._run_initdb(password, () if durability else ("--no-sync",))
            finally:
                password.unlink(missing_ok=True)

    def _run_initdb(self, password: Path, more: tuple[str, ...]) -> None:
        # No locale of the environment gets in: the product's database brings its own.
        done = subprocess.run(
            [
                *(self.binaries.program("initdb"), "-D", self.data, "-U", SUPERUSER),
                *("--pwfile", password, "--auth", "scram-sha-256", "--no-locale", "--encoding", "UTF8"),
                *("--data-checksums", "--no-instructions", *more),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            cwd=self.folder,
            env=_ENVIRONMENT,
            check=False,
            **self.account.for_subprocess,
        )
        if done.returncode != 0:
            raise EmbeddedServerError(f"initdb failed in {self.folder}: {_telling_line(done.stderr)}")

    def spawn(self, *, durability: bool) -> None:
        """Starts the server in the background. All its processes inherit the life lock and so hold it."""
        log = self.folder / "log"
        with clear_about(self.folder):
            if not log.exists():
                self.account.private_folder(log)
            self.account.private_folder(self.where.socket)
            text = server_configuration(
                name=self.name, data=self.data, socket=self.where.socket, log=log, durability=durability
            )
            self._configuration.write_text(text, "utf-8")
            self._configuration.chmod(0o644)
            output = os.open(self._start_log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        life = locks.take(self.life_lock)
        try:
            if life is None:
                raise EmbeddedServerError(f"processes of an earlier server still run on {self.data}")
            server = (self.binaries.program("postgres"), "-c", f"config_file={self._configuration}")
            # The shell goes away at once, so that the server is nobody's child and nobody has to wait for it.
            subprocess.run(
                ["/bin/sh", "-c", '"$@" &', "sh", *server, "-D", self.data],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.folder,
                env=_ENVIRONMENT,
                pass_fds=(life,),
                start_new_session=True,
                check=True,
                **self.account.for_subprocess,
            )
        finally:
            os.close(output)
            if life is not None:
                os.close(life)

    def state(self) -> State:
        return self._ask()[0]

    def _ask(self) -> tuple[State, str]:
        """Asks the server who it is; the process id in its folder is not evidence."""
        superuser = self.url(SUPERUSER, "postgres")
        try:
            with psycopg.connect(superuser, connect_timeout=5, autocommit=True) as connection:
                row = connection.execute("select current_setting('data_directory')").fetchone()
        except psycopg.OperationalError as e:
            if "password authentication failed" in str(e):
                raise EmbeddedServerError(
                    f"the server at {self.where.socket} does not know the password of {self.folder}"
                ) from e
            return State.BUSY if "FATAL" in str(e) else State.ABSENT, str(e).strip()
        if row is None or Path(row[0]).resolve() != self.data:
            raise EmbeddedServerError(
                f"another server answers at {self.where.socket}", hint="stop it, or remove that folder"
            )
        return State.READY, ""

    def wait_until_ready(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while True:
            state, why = self._ask()
            if state is State.READY:
                return
            if state is State.ABSENT and locks.is_free(self.life_lock):
                raise EmbeddedServerError(f"the embedded server ended at its start: {self._last_words()}")
            if time.monotonic() > deadline:
                raise EmbeddedServerError(
                    f"the embedded server was not ready within {timeout:g} s: {why}",
                    hint=f"start it again, it may still be recovering; its log is in {self.folder / 'log'}",
                )
            time.sleep(_POLL)

    def stop(self, timeout: float) -> None:
        """A fast shutdown, and an immediate one (the next start recovers) if that takes too long."""
        if self.postmaster() is None:
            self._send_away_orphans()
            return
        for number, patience in ((signal.SIGINT, timeout), (signal.SIGQUIT, 10.0)):
            if (pid := self.postmaster()) is not None:
                processes.send(pid, number, self.data, self.name)
            if self.wait_until_gone(patience):
                self._remove_far_socket()
                return
        raise EmbeddedServerError(f"the embedded server on {self.data} does not stop")

    def _remove_far_socket(self) -> None:
        if not self.where.socket.is_relative_to(self.folder):
            with suppress(OSError):
                self.where.socket.rmdir()

    def postmaster(self) -> int | None:
        """The first process of the server, if the id that it left is still that of one of ours."""
        try:
            pid = int((self.data / "postmaster.pid").read_text("utf-8").split("\n", 1)[0])
        except (OSError, ValueError):
            return None
        return pid if processes.belongs(pid, self.data, self.name) else None

    def was_killed(self) -> bool:
        """A server that stops takes its id away with it."""
        return self.postmaster() is None and (self.data / "postmaster.pid").exists()

    def wait_until_gone(self, timeout: float = 0.0) -> bool:
        """Whether no process of this cluster is left."""
        deadline = time.monotonic() + timeout
        while not (locks.is_free(self.life_lock) and not processes.processes_of(self.data, self.name)):
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL)
        return True

    def make_way(self) -> None:
        """Clears what a killed server left, so that PostgreSQL does not stumble over it.

        Called only when nobody answers and nobody else starts or stops. Backends whose first process was
        killed are sent away; a process id left behind may be a stranger's by now.
        """
        if not self.wait_until_gone():
            if (pid := self.postmaster()) is not None:
                raise EmbeddedServerError(
                    f"a server runs on {self.data} (process {pid}), but not at {self.where.socket}",
                    hint="vestnik db stop --force",
                )
            self._send_away_orphans()
        # PostgreSQL would believe the ids in these as long as anything, even a zombie, has them.
        with clear_about(self.data):
            (self.data / "postmaster.pid").unlink(missing_ok=True)
            for name in (_SOCKET, f"{_SOCKET}.lock"):
                (self.where.socket / name).unlink(missing_ok=True)

    def _send_away_orphans(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in processes.processes_of(self.data, self.name):
                processes.send(pid, number, self.data, self.name)
            if self.wait_until_gone(_ORPHANS_LEAVE_WITHIN):
                return
        raise EmbeddedServerError(f"processes of an earlier server still run on {self.data}")

    @property
    def _configuration(self) -> Path:
        return self.folder / "postgresql.conf"

    @property
    def _start_log(self) -> Path:
        return self.folder / "start.log"

    def _last_words(self) -> str:
        logs = [self._start_log, *(self.folder / "log").glob("*.log")]
        for log in sorted(logs, key=lambda log: log.stat().st_mtime, reverse=True):
            if words := _telling_line(log.read_text("utf-8", errors="replace")):
                return f"{words} ({log})"
        return f"it left no word in {self.folder / 'log'}"


def _telling_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if "FATAL" in line or "PANIC" in line or "error:" in line]
    return (telling or lines or [""])[-1]
