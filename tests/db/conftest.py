"""Programs beside the test, as separate processes: killed, limited, or run by other users."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import vestnik
from vestnik.db.embedded import EmbeddedServer

SOURCE = Path(vestnik.__file__).parent.parent

HOLD = """
import sys
from pathlib import Path
from vestnik.db.embedded import EmbeddedServer
from vestnik.errors import VestnikError
try:
    with EmbeddedServer(Path(sys.argv[1]), int(sys.argv[2]), durability=False).running() as url:
        print(url, flush=True)
        sys.stdin.read()
except VestnikError as e:
    print(f"{type(e).__name__}: {e} | {e.hint}", flush=True)
"""


class Program:
    """A Python program that says what it has to say in lines, and lives until its input ends."""

    def __init__(self, code: str, *arguments: object, **how: Any) -> None:
        environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
        environment |= how.pop("env", {})
        before = how.pop("before", [])
        self._process = subprocess.Popen(
            [*before, sys.executable, "-W", "error", "-c", code, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            env=environment,
            text=True,
            **how,
        )

    def line(self) -> str:
        assert self._process.stdout is not None
        return str(self._process.stdout.readline()).strip()

    def finish(self) -> None:
        """A normal exit."""
        self._process.communicate(timeout=60)
        assert self._process.returncode == 0

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def run() -> Iterator[Callable[..., Program]]:
    started: list[Program] = []

    def start(code: str, *arguments: object, **how: Any) -> Program:
        started.append(Program(code, *arguments, **how))
        return started[-1]

    yield start
    for program in started:
        program.kill()


@pytest.fixture
def hold(run: Callable[..., Program], own_folder: Path, pg_version: int) -> Callable[..., Program]:
    """Starts a program that uses the server in ``own_folder``; its line is the address, or an error."""

    def start(folder: Path = own_folder, **how: Any) -> Program:
        return run(HOLD, folder, pg_version, **how)

    return start


@pytest.fixture
def as_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")


@pytest.fixture
def as_nobody(own_folder: Path) -> dict[str, Any]:
    """How to run a program as an ordinary user to whom ``own_folder`` belongs."""
    if os.geteuid() != 0:
        return {}
    shutil.chown(own_folder, "nobody")
    user = ["setpriv", "--reuid=nobody", "--regid=65534", "--clear-groups"]
    # For a Python in a folder that others cannot enter: the right to read, but none to write.
    reading = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]
    for before in (user, user + reading):
        tried = subprocess.run([*before, sys.executable, "-c", "import psycopg"], capture_output=True, check=False)
        if tried.returncode == 0:
            return {"before": before}
    pytest.skip("no ordinary user can run this Python")


def pids_of(server: EmbeddedServer) -> list[int]:
    """Every process of the server that it tells of itself, the first of all in front."""
    with psycopg.connect(server.superuser_url, autocommit=True) as admin:
        row = admin.execute("select split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::int").fetchone()
        assert row is not None
        others = admin.execute("select pid from pg_stat_activity where pid <> pg_backend_pid()").fetchall()
    return [row[0], *(pid for (pid,) in others)]


@pytest.fixture
def kill_everything() -> Callable[[EmbeddedServer], int]:
    """``kill -9`` for all processes of a server; returns the id that the first one had."""

    def kill(server: EmbeddedServer) -> int:
        pids = pids_of(server)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return pids[0]

    return kill


def query(url: str, text: str) -> Any:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(text).fetchone()
        return row[0] if row is not None else None


@pytest.fixture
def ask() -> Callable[[str, str], Any]:
    """One value from a fresh connection."""
    return query
