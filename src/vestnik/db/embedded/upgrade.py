"""Copies the product's database from a cluster of one PostgreSQL version to one of another."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import psycopg

from vestnik.db.embedded.cluster import Cluster
from vestnik.db.embedded.place import SUPERUSER
from vestnik.db.embedded.product import DATABASE
from vestnik.errors import EmbeddedServerError


def copy_database(old: Cluster, new: Cluster) -> None:
    """Dumps with the newer program and restores in one transaction; both servers run."""
    dump = [new.binaries.program("pg_dump"), "--format=custom", "--compress=0", *_connection(old)]
    restore = [
        *(new.binaries.program("pg_restore"), "--single-transaction", "--exit-on-error"),
        *_connection(new),
    ]
    with tempfile.TemporaryFile() as complaints:
        with subprocess.Popen(
            dump, env=_environment(old), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints
        ) as source:
            target = subprocess.run(restore, env=_environment(new), stdin=source.stdout, stderr=complaints, check=False)
        if source.returncode or target.returncode:
            complaints.seek(0)
            reason = complaints.read().decode(errors="replace").strip().splitlines() or ["no reason given"]
            raise EmbeddedServerError(
                f"the database could not be copied: {reason[0]}",
                hint=f"put that right and upgrade again; the old database is untouched in {old.folder}",
            )
    with psycopg.connect(new.url(SUPERUSER, DATABASE), autocommit=True) as connection:
        connection.execute("analyze")


def _connection(cluster: Cluster) -> list[str | Path]:
    return ["--host", cluster.where.socket, "--port", "5432", "--username", SUPERUSER, "--dbname", DATABASE]


def _environment(cluster: Cluster) -> dict[str, str]:
    # Not on the command line, which everybody can read.
    return {"PGPASSWORD": cluster.passwords[SUPERUSER], "LC_ALL": "C"}
