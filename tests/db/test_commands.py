"""``vestnik db …`` and ``vestnik migrate`` as a person types them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from vestnik.cli.database import app, migrate_command
from vestnik.db.embedded import EmbeddedServer
from vestnik.errors import ConfigError, EmbeddedServerError

Ask = Callable[[str, str], Any]


@pytest.fixture
def vestnik_db(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Runs one command on a data folder of its own; returns what it printed, raises what it raised."""
    monkeypatch.setenv("VESTNIK_DATA_DIR", str(own_folder))
    monkeypatch.delenv("VESTNIK_DATABASE_URL", raising=False)

    def type_in(*words: str) -> str:
        result = CliRunner().invoke(app, words)
        if result.exception is not None:
            raise result.exception
        return result.output

    return type_in


def test_a_day_of_the_server(vestnik_db: Callable[..., str], ask: Ask) -> None:
    assert "no embedded database yet" in vestnik_db("status")
    assert vestnik_db("start") == "started\n"
    assert vestnik_db("start").startswith("was running")
    url = vestnik_db("url").strip()
    assert ask(url, "select current_user") == "vestnik"
    status = json.loads(vestnik_db("status", "--json"))
    assert (status["running"], status["kept"], status["version"]) == (True, True, 18)
    assert "running until" in vestnik_db("status")
    assert vestnik_db("stop") == "stopped\n"
    assert vestnik_db("stop") == "was not running\n"
    assert "not running" in vestnik_db("status")
    assert vestnik_db("url").splitlines() == [url, "the embedded server is not running: vestnik db start"]


def test_url_of_a_chosen_database(vestnik_db: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VESTNIK_DATABASE_URL", "postgresql://somewhere/else")
    assert vestnik_db("url") == "postgresql://somewhere/else\n"
    with pytest.raises(ConfigError, match="VESTNIK_DATABASE_URL is set"):
        vestnik_db("start")


def test_psql_is_at_home_without_a_password_on_its_command_line(
    vestnik_db: Callable[..., str], own_server: EmbeddedServer
) -> None:
    code = "from vestnik.cli.database import app; app()"
    title = r"\! tr '\0' ' ' < /proc/$PPID/cmdline"
    done = subprocess.run(
        [sys.executable, "-c", code, "psql", "-At", "-c", "select current_user", "-c", title],
        capture_output=True,
        text=True,
        check=True,
    )
    user, _, command_line = done.stdout.partition("\n")
    assert user == "vestnik"
    assert "/bin/psql --dbname" in command_line
    password = own_server.url.partition("@")[0].rpartition(":")[2]
    assert password not in command_line


def test_psql_without_a_server_says_how_to_start_it(vestnik_db: Callable[..., str]) -> None:
    with pytest.raises(EmbeddedServerError) as caught:
        vestnik_db("psql")
    assert caught.value.hint == "vestnik db start"


def test_upgrade_without_need(vestnik_db: Callable[..., str]) -> None:
    vestnik_db("start")
    assert vestnik_db("upgrade") == "nothing to do\n"


def test_migrate_says_what_it_did(vestnik_db: Callable[..., str]) -> None:
    migrate = typer.Typer()
    migrate.command()(migrate_command)
    runner = CliRunner()
    assert "applied 0001_" in runner.invoke(migrate, []).output
    assert runner.invoke(migrate, []).output == "nothing to do\n"
    assert "not running" in vestnik_db("status"), "what was started for the command ended with it"
