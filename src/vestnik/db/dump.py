"""``db/schema.sql``: the schema as one file, written from a freshly migrated database. ``make db-dump`` writes it anew."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import tempfile
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from vestnik.db.embedded import EmbeddedServer
from vestnik.db.embedded.binaries import NEWEST, find_binaries
from vestnik.db.migrate import migrate

SCHEMA = Path("db/schema.sql")
_HEADER = """\
-- The schema of Vestnik, written by `make db-dump` from the migrations and functions; do not edit.
-- The partitions of autopost.events are made by autopost.ensure_event_partitions().

"""
# What says something of the program that dumps, or of the moment, and nothing of the schema.
_PASSING = re.compile(r"^(--.*|\\(un)?restrict .*|SET .*|SELECT pg_catalog\.set_config.*)$")


def dump_schema(url: str) -> str:
    """As ``pg_dump`` sees it, without what changes from one run to the next."""
    target = conninfo_to_dict(url)
    password = str(target.pop("password", ""))
    done = subprocess.run(
        [
            str(find_binaries(NEWEST).program("pg_dump")),
            "--schema-only",
            "--no-owner",
            "--no-privileges",
            f"--dbname={make_conninfo('', **target)}",
        ],
        env=os.environ | {"PGPASSWORD": password},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in done.stdout.splitlines() if not _PASSING.match(line)]
    return _HEADER + re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        server = EmbeddedServer(Path(folder) / "data", durability=False)
        with server.running() as url:
            asyncio.run(migrate(url))
            SCHEMA.write_text(dump_schema(url))
        server.stop(force=True)


if __name__ == "__main__":
    main()
