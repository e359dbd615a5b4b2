"""A primary and its synchronous standby, from the wheel's own programs, on free ports of the loopback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from vestnik.db.embedded.account import Account, server_account
from vestnik.db.embedded.binaries import Binaries, find_binaries
from vestnik.db.embedded.product import create_database

SETTINGS = {
    "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off", "full_page_writes": "off",
    "shared_buffers": "32MB", "max_connections": "60", "hot_standby": "on", "wal_level": "replica", "max_wal_senders": "4",
    "wal_receiver_status_interval": "1s", "wal_retrieve_retry_interval": "200ms",
}  # fmt: skip


@dataclass
class Pair:
    folder: Path
    version: int
    ports: tuple[int, int] = field(default_factory=lambda: (_free_port(), _free_port()))
    account: Account = field(default_factory=lambda: server_account(None))
    servers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        """What a service is given: both, and whichever of them takes writes."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        return f"postgresql://vestnik@{hosts}/vestnik?target_session_attrs=read-write"

    def start(self) -> None:
        self.account.give(self.folder)
        primary, standby = self.folder / "primary", self.folder / "standby"
        options = ("-D", primary, "-U", "postgres", "--auth", "trust", "--no-locale", "--encoding", "UTF8", "--no-sync")
        self._program("initdb", *options)
        with (primary / "pg_hba.conf").open("a") as rules:
            rules.write("host replication all 127.0.0.1/32 trust\n")
        self._run_server(primary, self.ports[0])
        with psycopg.connect(self._admin(0), autocommit=True) as connection:
            connection.execute("create role vestnik login")
            create_database(connection, "vestnik")
            connection.execute("alter database vestnik set vestnik.embedded = 'on'")
        self._program(
            *("pg_basebackup", "-D", standby, "-R", "--no-sync", "-c", "fast", "-X", "stream"),
            *("-d", f"host=127.0.0.1 port={self.ports[0]} user=postgres application_name=standby"),
        )
        self._run_server(standby, self.ports[1])
        with psycopg.connect(self._admin(0), autocommit=True) as connection:
            connection.execute("alter system set synchronous_standby_names = 'standby'")
            connection.execute("select pg_reload_conf()")
            _until(lambda: _sync_state(connection) == "sync")

    def kill_primary(self) -> None:
        """At once and for good: with all its processes, as when its machine is gone."""
        _kill(self.servers[0])

    def cut_off_standby(self) -> None:
        """It hears nothing any more, as if the network were slow: now a commit must wait for it."""
        os.kill(self._receiver(), signal.SIGSTOP)

    def commits_wait(self) -> bool:
        with psycopg.connect(self._admin(0), autocommit=True) as connection:
            row = connection.execute("select count(*) from pg_stat_activity where wait_event = 'SyncRep'").fetchone()
            return row is not None and row[0] > 0

    def promote(self) -> None:
        os.kill(self._receiver(), signal.SIGCONT)
        with psycopg.connect(self._admin(1), autocommit=True) as connection:
            assert connection.execute("select pg_promote(true, 30)").fetchone() == (True,)

    def _receiver(self) -> int:
        with psycopg.connect(self._admin(1), autocommit=True) as connection:
            row = connection.execute("select pid from pg_stat_wal_receiver").fetchone()
            assert row is not None
            return int(row[0])

    def end(self) -> None:
        for server in self.servers:
            if server.poll() is None:
                _kill(server)

    def _run_server(self, data: Path, port: int) -> None:
        settings = [
            part for key, value in (SETTINGS | {"port": str(port)}).items() for part in ("-c", f"{key}={value}")
        ]
        with (self.folder / f"{data.name}.log").open("wb") as log:
            server = subprocess.Popen(
                [self._binaries().program("postgres"), "-D", data, *settings],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=_ENVIRONMENT,
                **self.account.for_subprocess,
            )
        self.servers.append(server)
        _until(lambda: _answers(port))

    def _program(self, name: str, *arguments: str | Path) -> None:
        done = subprocess.run(
            [self._binaries().program(name), *arguments],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=_ENVIRONMENT,
            check=False,
            **self.account.for_subprocess,
        )
        assert done.returncode == 0, done.stderr

    def _binaries(self) -> Binaries:
        """Where the server's user can reach them."""
        found = find_binaries(self.version)
        return found if self.account.reaches(found.program("postgres")) else found.copied_to(self.folder)

    def _admin(self, which: int) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.ports[which]}/postgres"


_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(port: int) -> bool:
    try:
        psycopg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres", connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def _sync_state(connection: psycopg.Connection) -> str | None:
    row = connection.execute("select sync_state from pg_stat_replication").fetchone()
    return row[0] if row else None


def _until(true: object, seconds: float = 30) -> None:
    assert callable(true)
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)


def _kill(server: subprocess.Popen[bytes]) -> None:
    """With its backends, which have sessions of their own and would notice only a moment later."""
    backends = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    for pid in (server.pid, *map(int, backends)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    server.wait()
