"""A database of each engine to read from: its address, and a hand of its owner in it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pymysql

MARIADBD = shutil.which("mariadbd") or shutil.which("mysqld")


@dataclass
class Database:
    engine: str
    dsn: str
    connection: Any

    def run(self, statement: str, *rows: tuple[Any, ...]) -> None:
        """One statement, or the same one for many rows; ``?`` is a place."""
        cursor = self.connection.cursor()
        statement = statement if self.engine == "sqlite" else statement.replace("?", "%s")
        if rows:
            cursor.executemany(statement, rows)
        else:
            cursor.execute(statement)
        self.connection.commit()


@contextmanager
def sqlite_file(folder: Path) -> Iterator[Database]:
    file = folder / "shop.db"
    with closing(sqlite3.connect(file)) as connection:
        yield Database("sqlite", f"sqlite://{file}", connection)


@contextmanager
def postgres_database(url: str) -> Iterator[Database]:
    with psycopg.connect(url) as connection:
        yield Database("postgresql", url, connection)


@contextmanager
def mariadb_server(folder: Path) -> Iterator[str]:
    """The socket of a server of its own, whose root needs no password."""
    data, socket = folder / "data", folder / "sock"
    shutil.rmtree(folder, ignore_errors=True)
    data.mkdir(parents=True)
    quiet = ["--no-defaults", f"--datadir={data}"]
    if os.geteuid() == 0:  # it does not run as root
        quiet.append("--user=mysql")
        for place in (folder, data):
            shutil.chown(place, "mysql")
    install = shutil.which("mariadb-install-db") or "mysql_install_db"
    subprocess.run([install, *quiet, "--auth-root-authentication-method=normal"], check=True, capture_output=True)
    server = subprocess.Popen(
        [MARIADBD or "mariadbd", *quiet, f"--socket={socket}", "--skip-networking", f"--pid-file={folder}/pid"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(server, socket)
        yield str(socket)
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(folder)


@contextmanager
def mariadb_database(socket: str, name: str) -> Iterator[Database]:
    with closing(pymysql.connect(unix_socket=socket, user="root")) as admin:
        admin.cursor().execute(f"create database {name} character set utf8mb4")
        with closing(pymysql.connect(unix_socket=socket, user="root", database=name, charset="utf8mb4")) as connection:
            yield Database("mysql", f"mysql://root@localhost/{name}?unix_socket={socket}", connection)
        admin.cursor().execute(f"drop database {name}")


def _wait_for(server: subprocess.Popen[bytes], socket: Path) -> None:
    for _ in range(600):
        assert server.poll() is None, "mariadbd has ended"
        if socket.exists():
            return
        with suppress(subprocess.TimeoutExpired):
            server.wait(0.05)
    raise AssertionError("mariadbd does not answer")
