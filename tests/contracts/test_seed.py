"""db/seed.sql gives a fresh schema the demo's channels, and may be run again."""

from __future__ import annotations

from pathlib import Path

from psycopg import AsyncConnection
from psycopg.rows import DictRow
from psycopg.types.json import Jsonb

SEED = (Path(__file__).parents[2] / "db" / "seed.sql").read_text()


async def test_the_seed_can_be_loaded_twice_and_published_into(db: AsyncConnection[DictRow]) -> None:
    for _ in range(2):
        await db.execute(SEED.encode())
    found = await db.execute(
        "select * from autopost.enqueue_messages_and_deliveries('demo', 'main', 'webhook_push', %s)",
        (Jsonb({"text": "Hello #all"}),),
    )
    row = await found.fetchone()
    assert row is not None
    assert (row["enqueued"], row["failed"]) == (40, 0)
