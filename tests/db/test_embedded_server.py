"""What a started server is like: private, unprivileged, found again, in Cyrillic."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from vestnik.db.embedded import EmbeddedServer
from vestnik.errors import EmbeddedServerError

Ask = Callable[[str, str], Any]

SOCKETS = "select trim('\"' from current_setting('unix_socket_directories'))"

SPEAK = """
import json, sys
from pathlib import Path
import psycopg
from vestnik.db.embedded import EmbeddedServer
with EmbeddedServer(Path(sys.argv[1]), int(sys.argv[2]), durability=False).running() as url:
    with psycopg.connect(url) as connection:
        print(json.dumps(connection.execute(
            "select lower('ЖЁ'), upper('щы'), 'ЁЛКА' ~* 'ёлка', initcap('москва'),"
            " (select string_agg(w, '' order by w) from unnest(array['я', 'a', 'Б', 'б']) as w),"
            " (select tsvector_to_array(to_tsvector('simple', 'Привет МИР')))"
        ).fetchone()))
"""


def test_role_owns_its_database_and_is_not_superuser(own_server: EmbeddedServer, ask: Ask) -> None:
    facts = "select format('%s %s %s', rolname, rolsuper, datdba = pg_roles.oid) from pg_roles, pg_database"
    where = "where rolname = current_user and datname = current_database()"
    assert ask(own_server.url, f"{facts} {where}") == "vestnik f t"
    assert ask(own_server.url, "select current_database()") == "vestnik"


def test_nobody_gets_in_without_the_password(own_server: EmbeddedServer) -> None:
    for url in (own_server.url, own_server.superuser_url):
        before, _, after = url.partition("@")
        guess = before.rpartition(":")[0] + ":guess@" + after
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(guess)


def test_socket_and_secrets_are_private_and_there_is_no_tcp(
    own_server: EmbeddedServer, own_folder: Path, ask: Ask
) -> None:
    assert ask(own_server.superuser_url, "show listen_addresses") == ""
    socket = Path(ask(own_server.superuser_url, SOCKETS))
    assert stat.S_IMODE(socket.stat().st_mode) == 0o700
    assert stat.S_IMODE((own_folder / "postgres" / "passwords").stat().st_mode) == 0o600
    assert stat.S_IMODE(own_folder.stat().st_mode) == 0o755, "a parent's mode was touched"


def test_data_survives_a_restart(own_folder: Path, pg_version: int, ask: Ask) -> None:
    server = EmbeddedServer(own_folder, pg_version, durability=False)
    with server.running() as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create table kept as select 42 as answer")
    assert not server.status().running
    with server.running() as url:
        assert ask(url, "select answer from kept") == 42


def test_default_is_durable(own_folder: Path, pg_version: int, ask: Ask) -> None:
    with EmbeddedServer(own_folder, pg_version).running() as url:
        settings = "select string_agg(current_setting(name), ' ' order by name) from unnest("
        names = "array['fsync', 'full_page_writes', 'synchronous_commit']) as name"
        assert ask(url, settings + names) == "on on on"


def test_people_can_change_settings(own_folder: Path, pg_version: int, ask: Ask) -> None:
    server = EmbeddedServer(own_folder, pg_version, durability=False)
    with server.running(), psycopg.connect(server.superuser_url, autocommit=True) as admin:
        admin.execute("alter system set max_connections = 57")
    with server.running() as url:
        assert ask(url, "show max_connections") == "57"


def test_a_folder_too_long_for_a_socket(own_folder: Path, pg_version: int, ask: Ask) -> None:
    server = EmbeddedServer(own_folder / ("long-" * 20), pg_version, durability=False)
    with server.running() as url:
        assert ask(url, "select 1") == 1
        socket = Path(ask(server.superuser_url, SOCKETS))
        assert stat.S_IMODE(socket.stat().st_mode) == 0o700
        assert not socket.is_relative_to(own_folder)
    assert not socket.exists()


def test_a_folder_with_an_awkward_name(own_folder: Path, pg_version: int, ask: Ask) -> None:
    with EmbeddedServer(own_folder / """a b,c'd"e$f%g""", pg_version, durability=False).running() as url:
        assert ask(url, "select 1") == 1


@pytest.mark.parametrize("version", [18, 16])
@pytest.mark.parametrize("locale", [{"LC_ALL": "C"}, {"LANG": "POSIX"}, {"LANG": "xx_XX.KOI8-R"}])
def test_cyrillic_is_the_same_under_any_locale(
    own_folder: Path, version: int, locale: dict[str, str], run: Callable[..., Any]
) -> None:
    said = json.loads(run(SPEAK, own_folder, version, env=locale).line())
    assert said == ["жё", "ЩЫ", True, "Москва", "aБбя", ["мир", "привет"]]


def test_an_unfinished_cluster_is_made_anew(own_folder: Path, pg_version: int, ask: Ask) -> None:
    leftover = own_folder / "postgres" / f"pg{pg_version}.new" / "data"
    leftover.mkdir(parents=True)
    (leftover / "PG_VERSION").write_text("12")
    with EmbeddedServer(own_folder, pg_version, durability=False).running() as url:
        assert ask(url, "select 1") == 1


def test_a_start_that_fails_says_why(own_folder: Path, pg_version: int) -> None:
    server = EmbeddedServer(own_folder, pg_version, durability=False)
    with server.running(), psycopg.connect(server.superuser_url, autocommit=True) as admin:
        admin.execute("alter system set shared_preload_libraries = 'nonsense'")
    with pytest.raises(EmbeddedServerError, match="nonsense"):
        server.start()


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("location", None, "missing, but there is a database in"),
        ("location", "{", "damaged"),
        ("passwords", None, "nobody gets into"),
    ],
)
def test_an_existing_database_is_never_replaced_by_an_empty_one(
    own_folder: Path, pg_version: int, name: str, text: str | None, complaint: str
) -> None:
    server = EmbeddedServer(own_folder, pg_version, durability=False)
    with server.running():
        pass
    file = own_folder / "postgres" / name
    whole = file.read_text()
    file.unlink()
    if text is not None:
        file.write_text(text)
    with pytest.raises(EmbeddedServerError, match=complaint):
        server.start()
    file.write_text(whole)
    assert server.start()


def test_one_folder_by_two_names_is_one_server(own_folder: Path, pg_version: int, ask: Ask) -> None:
    other = own_folder / "link"
    (own_folder / "data").mkdir()
    other.symlink_to(own_folder / "data")
    with EmbeddedServer(own_folder / "data", pg_version, durability=False).running() as url:
        with EmbeddedServer(other, pg_version, durability=False).running() as same:
            assert same == url
        assert ask(url, "select 1") == 1


def test_the_address_of_nothing(own_folder: Path) -> None:
    with pytest.raises(EmbeddedServerError, match="no database") as caught:
        _ = EmbeddedServer(own_folder).url
    assert "vestnik migrate" in (caught.value.hint or "")
    assert list(own_folder.iterdir()) == []


def test_a_version_that_the_wheel_lacks(own_folder: Path) -> None:
    with pytest.raises(EmbeddedServerError, match="no embedded PostgreSQL 17"):
        EmbeddedServer(own_folder, 17).start()


def test_another_server_at_our_socket_is_not_taken_for_ours(
    own_server: EmbeddedServer, own_folder: Path, pg_version: int
) -> None:
    copy = own_folder / "copy" / "postgres"
    copy.mkdir(parents=True)
    for name in ("location", "passwords"):
        (copy / name).write_text((own_folder / "postgres" / name).read_text())
    (copy / f"pg{pg_version}" / "data").mkdir(parents=True)
    (copy / f"pg{pg_version}" / "data" / "PG_VERSION").write_text(str(pg_version))
    with pytest.raises(EmbeddedServerError, match="another server answers"):
        EmbeddedServer(copy.parent, pg_version).start()
