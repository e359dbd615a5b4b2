"""Which database a program gets, and what becomes of it afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vestnik.db import home
from vestnik.db.embedded import EmbeddedServer
from vestnik.db.home import database, database_url
from vestnik.errors import EmbeddedServerError
from vestnik.settings import Settings

Ask = Callable[[str, str], Any]
Kill = Callable[[EmbeddedServer], int]


def settings(**given: Any) -> Settings:
    return Settings(_env_file=None, **given)


async def test_the_setting_wins_and_nothing_is_started(own_folder: Path) -> None:
    chosen = settings(database_url="postgresql://somewhere/else", data_dir=own_folder)
    async with database(chosen) as url:
        assert url == database_url(chosen) == "postgresql://somewhere/else"
    assert list(own_folder.iterdir()) == []


async def test_the_embedded_one_lives_as_long_as_it_is_needed(own_folder: Path, ask: Ask) -> None:
    chosen = settings(data_dir=own_folder)
    with pytest.raises(EmbeddedServerError):
        database_url(chosen)
    async with database(chosen) as url:
        assert ask(url, "select 1") == 1
        assert url == database_url(chosen)
    assert not EmbeddedServer(own_folder).status().running


async def test_a_kept_one_stays(own_folder: Path) -> None:
    server = EmbeddedServer(own_folder, durability=False)
    server.start()
    async with database(settings(data_dir=own_folder)):
        pass
    assert server.status().running


async def test_a_killed_one_is_started_again_for_who_uses_it(
    own_folder: Path, ask: Ask, kill_everything: Kill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home, "LOOK_EVERY", 0.05)
    server = EmbeddedServer(own_folder)
    async with database(settings(data_dir=own_folder)) as url:
        await asyncio.to_thread(kill_everything, server)
        async with asyncio.timeout(60):
            while not (await asyncio.to_thread(server.status)).running:
                await asyncio.sleep(0.05)
        assert ask(url, "select 1") == 1
    assert not server.status().running


async def test_a_stopped_one_stays_so(own_folder: Path) -> None:
    server = EmbeddedServer(own_folder)
    async with database(settings(data_dir=own_folder)):
        assert not server.revive(), "it runs"
        server.stop(force=True)
        assert not server.revive()
        assert not server.status().running


async def test_a_kept_one_is_still_kept_when_it_is_back(own_folder: Path, kill_everything: Kill) -> None:
    server = EmbeddedServer(own_folder)
    server.start()
    kill_everything(server)
    assert server.revive()
    assert server.status().kept


async def test_a_program_cancelled_in_the_start_leaves_nothing_running(own_folder: Path) -> None:
    async def program() -> None:
        async with database(settings(data_dir=own_folder)):
            pytest.fail("it was to be cancelled before")

    running = asyncio.ensure_future(program())
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    found = EmbeddedServer(own_folder).status()
    assert found.folder is not None, "the start was under way"
    assert not found.running


async def test_a_start_that_fails_is_told_once(own_folder: Path) -> None:
    own_folder.joinpath("postgres").write_text("in the way")
    with pytest.raises(EmbeddedServerError, match="cannot be used"):
        async with database(settings(data_dir=own_folder)):
            pytest.fail("there is no folder")
