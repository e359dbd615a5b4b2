"""A server that was killed comes back, and no stranger is harmed or taken for it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import pq

from vestnik.db.embedded import EmbeddedServer, processes
from vestnik.errors import EmbeddedServerError

Ask = Callable[[str, str], Any]
Kill = Callable[[EmbeddedServer], int]

FIRST_PROCESS = "select split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::int"
SOCKETS = "select trim('\"' from current_setting('unix_socket_directories'))"


@pytest.fixture
def stranger(own_server: EmbeddedServer, own_folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A harmless process of the user that the server runs as, so that PostgreSQL takes its id seriously."""
    owner = data_of(own_folder).stat()
    how: dict[str, Any] = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}
    process = subprocess.Popen(["sleep", "600"], cwd="/", **(how if os.geteuid() == 0 else {}))
    yield process
    process.kill()
    process.wait()


def test_comes_back_with_its_data_after_everything_was_killed(
    own_folder: Path, pg_version: int, ask: Ask, kill_everything: Kill
) -> None:
    server = EmbeddedServer(own_folder, pg_version)
    with server.running() as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("create table kept as select 42 as answer")
        kill_everything(server)
        with server.running():
            assert ask(url, "select answer from kept") == 42


def test_a_reused_process_id_neither_stops_the_start_nor_gets_hurt(
    own_server: EmbeddedServer,
    own_folder: Path,
    ask: Ask,
    kill_everything: Kill,
    stranger: subprocess.Popen[bytes],
) -> None:
    old = kill_everything(own_server)
    write_pid(own_folder, old, stranger.pid)
    with own_server.running() as url:
        assert ask(url, "select 1") == 1
    own_server.stop(force=True)
    assert stranger.poll() is None


def test_the_server_of_another_folder_is_a_stranger_too(
    server: EmbeddedServer, own_server: EmbeddedServer, own_folder: Path, ask: Ask, kill_everything: Kill
) -> None:
    other = ask(server.superuser_url, FIRST_PROCESS)
    write_pid(own_folder, kill_everything(own_server), other)
    with own_server.running() as url:
        assert ask(url, "select 1") == 1
    own_server.stop(force=True)
    assert ask(server.superuser_url, FIRST_PROCESS) == other


def test_a_signal_never_reaches_a_stranger(own_folder: Path, stranger: subprocess.Popen[bytes]) -> None:
    processes.send(stranger.pid, signal.SIGKILL, data_of(own_folder), "vestnik")
    with pytest.raises(subprocess.TimeoutExpired):
        stranger.wait(0.1)


def test_on_a_system_without_proc(
    own_server: EmbeddedServer,
    own_folder: Path,
    ask: Ask,
    kill_everything: Kill,
    stranger: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if shutil.which("ps") is None:
        pytest.skip("needs ps")
    monkeypatch.setattr("vestnik.db.embedded.processes._PROC", own_folder / "no-proc")
    write_pid(own_folder, kill_everything(own_server), stranger.pid)
    with own_server.running() as url:
        assert ask(url, "select 1") == 1
    assert own_server.stop(force=True)
    assert stranger.poll() is None


def test_stopping_a_server_that_died_leaves_the_new_owner_of_its_id_alone(
    own_server: EmbeddedServer, own_folder: Path, kill_everything: Kill, stranger: subprocess.Popen[bytes]
) -> None:
    write_pid(own_folder, kill_everything(own_server), stranger.pid)
    own_server.stop(force=True)
    assert stranger.poll() is None


def test_a_backend_that_outlives_its_server_is_sent_away(own_server: EmbeddedServer, ask: Ask) -> None:
    connection = pq.PGconn.connect(own_server.url.encode())
    connection.send_query(b"do $$ begin loop end loop; end $$")
    orphan = connection.backend_pid
    running = f"select true from pg_stat_activity where pid = {orphan} and state = 'active'"
    while not ask(own_server.superuser_url, running):
        pass
    os.kill(ask(own_server.superuser_url, FIRST_PROCESS), signal.SIGKILL)
    with own_server.running() as url:
        assert ask(url, "select 1") == 1
    assert not is_alive(orphan)
    connection.finish()


def test_stop_also_sends_orphans_away(own_server: EmbeddedServer, ask: Ask) -> None:
    connection = pq.PGconn.connect(own_server.url.encode())
    connection.send_query(b"do $$ begin loop end loop; end $$")
    os.kill(ask(own_server.superuser_url, FIRST_PROCESS), signal.SIGKILL)
    assert own_server.stop(force=True)
    assert not is_alive(connection.backend_pid)
    connection.finish()


def test_a_server_that_cannot_be_reached_is_named_and_can_be_stopped(own_server: EmbeddedServer, ask: Ask) -> None:
    socket = Path(ask(own_server.superuser_url, SOCKETS))
    (socket / ".s.PGSQL.5432").unlink()
    with pytest.raises(EmbeddedServerError, match=r"process \d+") as caught:
        own_server.start()
    assert caught.value.hint == "vestnik db stop --force"
    assert own_server.stop(force=True)
    with own_server.running() as url:
        assert ask(url, "select 1") == 1


def is_alive(pid: int) -> bool:
    """A dead one that nobody has waited for yet does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def data_of(folder: Path) -> Path:
    (found,) = folder.glob("postgres/pg*/data")
    return found


def write_pid(folder: Path, old: int, new: int) -> None:
    file = data_of(folder) / "postmaster.pid"
    text = file.read_text()
    assert text.startswith(f"{old}\n")
    file.write_text(text.replace(str(old), str(new), 1))
