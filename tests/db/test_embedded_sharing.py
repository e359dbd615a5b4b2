"""Several programs on one data folder: the first starts the server, the last one to leave stops it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vestnik.db.embedded import EmbeddedServer
from vestnik.errors import EmbeddedServerError

Ask = Callable[[str, str], Any]
Hold = Callable[..., Any]

BIRTH = "select pg_postmaster_start_time()"


@pytest.fixture
def watcher(own_folder: Path, pg_version: int) -> EmbeddedServer:
    """Looks at the server without using it."""
    return EmbeddedServer(own_folder, pg_version, durability=False)


def test_the_second_attaches_and_does_not_stop_it(hold: Hold, ask: Ask, watcher: EmbeddedServer) -> None:
    first = hold()
    url = first.line()
    second = hold()
    assert second.line() == url
    birth = ask(url, BIRTH)
    second.finish()
    assert ask(url, BIRTH) == birth
    first.finish()
    assert not watcher.status().running


def test_the_first_does_not_stop_it_under_the_second(hold: Hold, ask: Ask, watcher: EmbeddedServer) -> None:
    first, second = hold(), hold()
    url = first.line()
    assert second.line() == url
    birth = ask(url, BIRTH)
    first.finish()
    assert ask(url, BIRTH) == birth
    second.finish()
    assert not watcher.status().running


def test_many_at_once_start_one(hold: Hold, ask: Ask, watcher: EmbeddedServer) -> None:
    programs = [hold() for _ in range(4)]
    (url,) = {program.line() for program in programs}
    assert ask(url, "select 1") == 1
    for program in programs:
        program.finish()
    assert not watcher.status().running


def test_a_killed_program_leaves_it_to_the_next(hold: Hold, ask: Ask, watcher: EmbeddedServer) -> None:
    first = hold()
    url = first.line()
    birth = ask(url, BIRTH)
    first.kill()
    assert ask(url, BIRTH) == birth, "the server does not depend on the program"
    assert not watcher.status().in_use
    with watcher.running():
        assert ask(url, BIRTH) == birth
    assert not watcher.status().running


def test_db_start_keeps_it_through_programs(hold: Hold, ask: Ask, watcher: EmbeddedServer) -> None:
    assert watcher.start()
    assert not watcher.start()
    program = hold()
    url = program.line()
    program.finish()
    assert ask(url, "select 1") == 1
    assert watcher.status().kept
    assert watcher.stop()
    assert not watcher.stop()


def test_db_start_takes_over_what_a_program_started(hold: Hold, ask: Ask, watcher: EmbeddedServer) -> None:
    program = hold()
    url = program.line()
    assert not watcher.start()
    program.finish()
    assert ask(url, "select 1") == 1
    assert watcher.stop()


def test_being_kept_ends_with_the_server(
    hold: Hold, watcher: EmbeddedServer, kill_everything: Callable[[EmbeddedServer], int]
) -> None:
    watcher.start()
    kill_everything(watcher)
    program = hold()
    program.line()
    program.finish()
    assert not watcher.status().running


def test_stop_spares_a_server_in_use(hold: Hold, ask: Ask, watcher: EmbeddedServer) -> None:
    program = hold()
    url = program.line()
    with pytest.raises(EmbeddedServerError, match="uses the embedded server") as caught:
        watcher.stop()
    assert "--force" in (caught.value.hint or "")
    assert ask(url, "select 1") == 1
    assert watcher.stop(force=True)
    assert not watcher.status().running
    program.finish()
