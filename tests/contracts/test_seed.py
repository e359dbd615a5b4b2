"""db/seed.sql gives a fresh schema the demo's channels, and may be run again."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import DictRow
from psycopg.types.json import Jsonb

from vestnik.db.embedded.binaries import find_binaries

SEED = Path(__file__).parents[2] / "db" / "seed.sql"


async def test_the_seed_can_be_loaded_twice_and_published_into(
    database: str, db: AsyncConnection[DictRow], pg_version: int
) -> None:
    psql = find_binaries(pg_version).program("psql")
    loaded = []
    for _ in range(2):
        subprocess.run([psql, database, "-v", "ON_ERROR_STOP=1", "-q", "-f", SEED], check=True, capture_output=True)
        loaded.append(
            [await count(db, table) for table in ("channels", "pull_sources", "messages", "deliveries", "events")]
        )
    assert loaded == [[40, 1, 1, 2, 2]] * 2
    found = await db.execute(
        "select * from autopost.enqueue_messages_and_deliveries('demo', 'main', 'webhook_push', %s)",
        (Jsonb({"text": "Hello #all"}),),
    )
    row = await found.fetchone()
    assert row is not None
    assert (row["enqueued"], row["failed"]) == (40, 0)


async def count(db: AsyncConnection[DictRow], table: str) -> int:
    found = await db.execute(
        psycopg.sql.SQL("select count(*) as n from autopost.{}").format(psycopg.sql.Identifier(table))
    )
    row = await found.fetchone()
    assert row is not None
    return int(row["n"])
