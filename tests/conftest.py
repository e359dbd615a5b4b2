"""One real PostgreSQL for the whole run, shared by all workers; every test gets a fresh copy of the schema.

``VESTNIK_TEST_PG`` chooses the version of the server, 18 or 16.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from psycopg import AsyncConnection, sql
from psycopg.rows import DictRow, dict_row

from vestnik.db.embedded import EmbeddedServer, locks
from vestnik.db.embedded.place import ROLE
from vestnik.db.embedded.product import create_database
from vestnik.db.migrate import SEARCH_PATH, migrate
from vestnik.db.pool import Pool, make_pool
from vestnik.errors import VestnikError

TEMPLATE = "vestnik_template"
_FOLDER = "VESTNIK_TEST_FOLDER"
_PREFIX = "vestnik-test-"
_RUN = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """The first process of the run makes the folder, the workers inherit its name."""
    if hasattr(config, "workerinput"):
        return
    for base in {Path("/dev/shm"), Path(tempfile.gettempdir())}:
        for abandoned in base.glob(f"{_PREFIX}*/run.lock"):
            with suppress(OSError, VestnikError):
                if locks.is_free(abandoned):
                    _remove(abandoned.parent)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_fastest_place()))
    # As root the server runs as another user, who has to pass through.
    folder.chmod(0o711)
    run = locks.take(folder / "run.lock")
    assert run is not None
    config.stash[_RUN] = run
    os.environ[_FOLDER] = str(folder)


def pytest_unconfigure(config: pytest.Config) -> None:
    if _RUN in config.stash:
        _remove(Path(os.environ.pop(_FOLDER)))
        os.close(config.stash[_RUN])


@pytest.fixture(scope="session")
def pg_version() -> int:
    return int(os.environ.get("VESTNIK_TEST_PG", "18"))


@pytest.fixture(scope="session")
def run_folder() -> Path:
    """A folder of this run that the server can reach, on memory where there is enough of it."""
    return Path(os.environ[_FOLDER])


@pytest.fixture(scope="session")
def server(run_folder: Path, pg_version: int) -> Iterator[EmbeddedServer]:
    """The server that all workers share. Tests that stop or kill it take ``own_server``."""
    server = EmbeddedServer(run_folder / "shared", pg_version, durability=False)
    with server.running():
        yield server


@pytest.fixture(scope="session")
def template(server: EmbeddedServer) -> str:
    """The database that every test's own is copied from: migrated once by the first worker that gets here."""
    with psycopg.connect(server.superuser_url, autocommit=True) as admin:
        admin.execute("select pg_advisory_lock(1)")
        if admin.execute("select 1 from pg_database where datname = %s", (TEMPLATE,)).fetchone() is None:
            unfinished = f"{TEMPLATE}_new"
            admin.execute(sql.SQL("drop database if exists {}").format(sql.Identifier(unfinished)))
            create_database(admin, unfinished)
            asyncio.run(migrate(_address(server, unfinished)))
            # The settings of a database are not copied with it; those of the role hold in every copy.
            path = sql.SQL(", ").join(map(sql.Identifier, SEARCH_PATH))
            admin.execute(sql.SQL("alter role {} set search_path = {}").format(sql.Identifier(ROLE), path))
            names = map(sql.Identifier, (unfinished, TEMPLATE))
            admin.execute(sql.SQL("alter database {} rename to {}").format(*names))
    return TEMPLATE


@pytest.fixture
def database(server: EmbeddedServer, template: str) -> Iterator[str]:
    """The address of a database of this test's own, with the whole schema in it."""
    yield from _copy_of(template, server)


@pytest.fixture(scope="session")
def worker_database(server: EmbeddedServer, template: str) -> Iterator[str]:
    """A database that the tests of one worker share: for those that look at nothing outside their own workspace."""
    yield from _copy_of(template, server)


@pytest.fixture
def empty_database(server: EmbeddedServer) -> Iterator[str]:
    """The address of a database of this test's own, with nothing in it."""
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(server.superuser_url, autocommit=True) as admin:
        create_database(admin, name)
        yield _address(server, name)
        admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.fixture
async def db(database: str) -> AsyncIterator[AsyncConnection[DictRow]]:
    async with await AsyncConnection.connect(database, autocommit=True, row_factory=dict_row) as connection:
        yield connection


@pytest.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    async with make_pool(database, max_size=20) as pool:
        yield pool


@pytest.fixture
def own_folder(run_folder: Path) -> Iterator[Path]:
    """An empty data folder of this test's own."""
    folder = run_folder / f"own-{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    folder.chmod(0o755)
    yield folder
    _remove(folder)


@pytest.fixture
def own_server(own_folder: Path, pg_version: int) -> Iterator[EmbeddedServer]:
    """A running server of this test's own, to be stopped and killed; its database is empty."""
    server = EmbeddedServer(own_folder, pg_version, durability=False)
    with server.running():
        yield server


def _copy_of(template: str, server: EmbeddedServer) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(server.superuser_url, autocommit=True) as admin:
        # Without fsync, copying files costs a third of writing the copy through the log.
        admin.execute(
            sql.SQL("create database {} owner {} template {} strategy file_copy").format(
                *map(sql.Identifier, (name, ROLE, template))
            )
        )
        yield _address(server, name)
        admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def _address(server: EmbeddedServer, database: str) -> str:
    return server.url.replace("/vestnik?", f"/{database}?")


def _fastest_place() -> Path | None:
    """Memory, where a copy of the schema takes 10 ms instead of 300."""
    memory = Path("/dev/shm")
    enough = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2 << 30
    return memory if enough else None


def _remove(folder: Path) -> None:
    for location in folder.rglob("postgres/location"):
        # One that a test has broken on purpose may be beyond stopping.
        with suppress(VestnikError):
            EmbeddedServer(location.parent.parent).stop(force=True)
    shutil.rmtree(folder)
