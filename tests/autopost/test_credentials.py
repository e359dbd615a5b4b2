"""A send that never began for want of its token: the channel waits or is paused, and nobody takes it for one that is lost."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from crowd import until
from psycopg import OperationalError

from queue_audit import violations
from vestnik.adapters import telegram
from vestnik.adapters.contract import AdapterContext, ResolveSecret
from vestnik.autopost.dispatcher import Dispatcher
from vestnik.db.pool import Pool
from vestnik.ops.secrets.box import SecretBox
from vestnik.ops.secrets.credentials import Credentials

NOBODY = {"telegram": "http://127.0.0.1:1"}


async def after_a_send(autopost: Any, database: str, pool: Pool, secret: ResolveSecret) -> Any:
    """The one delivery of a channel that would rather miss a post than show it twice."""
    autopost.now = datetime.now(UTC)
    await autopost.channel("a", on_unknown="hold")
    await autopost.push("post")
    adapter = telegram.create(AdapterContext(secret, NOBODY))
    dispatcher = Dispatcher(database, pool, {"telegram": adapter})
    running = asyncio.create_task(dispatcher.run())
    await until(pool, "select 1 from autopost.deliveries where last_error is not null")
    dispatcher.stop()
    await running
    await adapter.close()
    (row,) = await autopost.deliveries()
    assert await violations(autopost.connection, "w") == []
    return row


async def test_a_post_whose_token_cannot_be_had_is_tried_again_and_not_held(
    autopost: Any, database: str, pool: Pool
) -> None:
    async def away(*where: str) -> str:
        raise OperationalError("the database is away")

    row = await after_a_send(autopost, database, pool, away)
    assert (row["status"], row["held_at"], row["last_error"]["code"]) == ("retry", None, "credential_unavailable")
    assert row["last_error"]["outcome"] == "not_sent"
    assert (await autopost.channel_row("a"))["error_streak"] == 0


async def test_a_token_of_another_key_pauses_its_channel_and_leaves_no_traceback(
    autopost: Any, database: str, pool: Pool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with pool.connection() as connection:
        theirs = Credentials(pool, SecretBox.open(tmp_path, "another key"))
        await theirs.store(connection, "w", "telegram", "bot", "1:TOKEN")
    ours = Credentials(pool, SecretBox.open(tmp_path, "our key"))
    row = await after_a_send(autopost, database, pool, ours.resolve)
    assert (row["status"], row["last_error"]["code"]) == ("failed_permanent", "credential_unreadable")
    assert (await autopost.channel_row("a"))["paused_until"] is not None
    assert "Traceback" not in "".join(capsys.readouterr())
