"""Secrets at rest."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from vestnik.db.pool import Pool, call
from vestnik.errors import ConfigError, NotFound
from vestnik.ops.secrets.box import SecretBox
from vestnik.ops.secrets.credentials import Credentials


def test_the_key_is_made_once_and_only_for_us(tmp_path: Path) -> None:
    sealed = SecretBox.open(tmp_path / "data", None).lock("token")
    assert SecretBox.open(tmp_path / "data", None).unlock(sealed) == "token"
    assert stat.S_IMODE((tmp_path / "data" / "secret.key").stat().st_mode) == 0o600
    assert [p.name for p in (tmp_path / "data").iterdir()] == ["secret.key"]


def test_many_who_make_it_at_once_get_one_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        boxes = list(threads.map(lambda _: SecretBox.open(tmp_path, None), range(32)))
    sealed = boxes[0].lock("token")
    assert {box.unlock(sealed) for box in boxes} == {"token"}


def test_a_key_of_the_settings_wins(tmp_path: Path) -> None:
    sealed = SecretBox.open(tmp_path, "any words will do").lock("token")
    assert SecretBox.open(tmp_path / "elsewhere", "any words will do").unlock(sealed) == "token"
    with pytest.raises(ConfigError, match="another key"):
        SecretBox.open(tmp_path, "other words").unlock(sealed)


async def test_a_token_is_stored_encrypted_and_found_again(pool: Pool, tmp_path: Path) -> None:
    await call(pool, "insert into core.workspaces (workspace_id, name) values ('w', 'W')")
    credentials = Credentials(pool, SecretBox.open(tmp_path, None))
    async with pool.connection() as connection:
        assert await credentials.store(connection, "w", "telegram", "bot", "123:SECRET")
        assert not await credentials.store(connection, "w", "telegram", "bot", "123:SECRET")
    assert await credentials.resolve("w", "telegram", "bot") == "123:SECRET"
    stored = await call(pool, "select secret from core.credential_bindings")
    assert b"SECRET" not in stored[0]["secret"]
    with pytest.raises(NotFound):
        await credentials.resolve("w", "max", "bot")


async def test_a_rotated_token_is_used_after_its_time(pool: Pool, tmp_path: Path) -> None:
    await call(pool, "insert into core.workspaces (workspace_id, name) values ('w', 'W')")
    now = 0.0
    writer = Credentials(pool, SecretBox.open(tmp_path, None))
    reader = Credentials(pool, SecretBox.open(tmp_path, None), clock=lambda: now)
    async with pool.connection() as connection:
        await writer.store(connection, "w", "telegram", "bot", "old")
        assert await reader.resolve("w", "telegram", "bot") == "old"
        await writer.store(connection, "w", "telegram", "bot", "new")
    now = 5.1
    assert await reader.resolve("w", "telegram", "bot") == "new"


async def test_another_key_is_noticed_at_the_start(pool: Pool, tmp_path: Path) -> None:
    await call(pool, "insert into core.workspaces (workspace_id, name) values ('w', 'W')")
    async with pool.connection() as connection:
        await Credentials(pool, SecretBox.open(tmp_path, "one")).store(connection, "w", "max", "bot", "token")
    await Credentials(pool, SecretBox.open(tmp_path, "one")).verify()
    with pytest.raises(ConfigError, match="another key: w/max/bot"):
        await Credentials(pool, SecretBox.open(tmp_path, "two")).verify()


async def test_of_many_credentials_those_that_cannot_be_read_are_named(pool: Pool, tmp_path: Path) -> None:
    """The first of them alone says nothing about the others."""
    await call(pool, "insert into core.workspaces (workspace_id, name) values ('w', 'W')")
    ours, theirs = (Credentials(pool, SecretBox.open(tmp_path, key)) for key in ("one", "two"))
    async with pool.connection() as connection:
        for name, credentials in (("a", ours), ("b", theirs), ("c", ours), ("d", theirs)):
            await credentials.store(connection, "w", "telegram", name, "token")
    with pytest.raises(ConfigError) as refusal:
        await ours.verify()
    assert str(refusal.value) == "encrypted with another key: w/telegram/b, w/telegram/d"


async def test_what_was_encrypted_with_another_key_is_not_replaced(pool: Pool, tmp_path: Path) -> None:
    """Only when it was taken away, as the hint says: the key of those who run would not be ours."""
    await call(pool, "insert into core.workspaces (workspace_id, name) values ('w', 'W')")
    ours, theirs = (Credentials(pool, SecretBox.open(tmp_path, key)) for key in ("one", "two"))
    async with pool.connection() as connection:
        await theirs.store(connection, "w", "telegram", "bot", "token")
        with pytest.raises(ConfigError, match="another key"):
            await ours.store(connection, "w", "telegram", "bot", "token")
        assert await theirs.resolve("w", "telegram", "bot") == "token"
        await connection.execute("delete from core.credential_bindings")
        assert await ours.store(connection, "w", "telegram", "bot", "token")
    await ours.verify()
