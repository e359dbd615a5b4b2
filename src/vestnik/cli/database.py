"""``vestnik db …``: the embedded server by hand; and ``vestnik migrate``."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from dataclasses import asdict
from typing import Annotated

import typer
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from vestnik.db.embedded import EmbeddedServer, Status
from vestnik.db.embedded.binaries import NEWEST, find_binaries
from vestnik.db.home import database, database_url
from vestnik.db.migrate import migrate
from vestnik.errors import ConfigError, DatabaseError, EmbeddedServerError
from vestnik.settings import Settings, load_settings

app = typer.Typer(help="The embedded database: start it, stop it, look into it.", no_args_is_help=True)


@app.command()
def start() -> None:
    """Start the embedded server and leave it running until `vestnik db stop`."""
    server = _embedded(load_settings())
    typer.echo("started" if server.start() else "was running, and will stay so until `vestnik db stop`")


@app.command()
def stop(
    force: Annotated[bool, typer.Option("--force", help="Also under programs that use it.")] = False,
) -> None:
    """Stop the embedded server."""
    typer.echo("stopped" if _embedded(load_settings()).stop(force=force) else "was not running")


@app.command()
def status(as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False) -> None:
    """Say whether the embedded server runs, and where it keeps its data."""
    found = _embedded(load_settings()).status()
    typer.echo(json.dumps(asdict(found), default=str) if as_json else _in_words(found))


@app.command()
def url() -> None:
    """Print the address of the database in use."""
    settings = load_settings()
    typer.echo(database_url(settings))
    if settings.database_url is None and not _embedded(settings).status().running:
        typer.echo("the embedded server is not running: vestnik db start", err=True)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def psql(context: typer.Context) -> None:
    """Open psql on the database in use. What follows goes to psql: vestnik db psql -c 'select 1'."""
    settings = load_settings()
    if settings.database_url is None and not _embedded(settings).status().running:
        raise EmbeddedServerError("the embedded server is not running", hint="vestnik db start")
    target = conninfo_to_dict(database_url(settings))
    # Its password goes into the environment, because everybody can read a command line.
    environment = dict(os.environ)
    if password := target.pop("password", None):
        environment["PGPASSWORD"] = str(password)
    program = _psql()
    os.execve(program, [program, "--dbname", make_conninfo("", **target), *context.args], environment)


@app.command()
def upgrade() -> None:
    """Bring the embedded database to this program's version of PostgreSQL; the old one is kept."""
    old = _embedded(load_settings()).upgrade()
    typer.echo("nothing to do" if old is None else f"upgraded; the old database is kept in {old}")


def migrate_command() -> None:
    """Bring the schema of the database to the one of this program."""
    done = asyncio.run(_migrate(load_settings()))
    for name in done:
        typer.echo(f"applied {name}")
    if not done:
        typer.echo("nothing to do")


async def _migrate(settings: Settings) -> list[str]:
    async with database(settings) as url:
        return await migrate(url)


def _embedded(settings: Settings) -> EmbeddedServer:
    if settings.database_url is not None:
        raise ConfigError(
            "VESTNIK_DATABASE_URL is set, so there is no embedded server to act on",
            hint="unset it to use the embedded server",
        )
    return EmbeddedServer(settings.data_dir)


def _in_words(found: Status) -> str:
    if found.folder is None:
        return "there is no embedded database yet"
    if not found.running:
        return f"PostgreSQL {found.version} in {found.folder}: not running"
    whose = "until `vestnik db stop`" if found.kept else "for as long as programs use it"
    return f"PostgreSQL {found.version} in {found.folder}: running {whose}"


def _psql() -> str:
    try:
        return str(find_binaries(NEWEST).program("psql"))
    except EmbeddedServerError as e:
        if (found := shutil.which("psql")) is not None:
            return found
        raise DatabaseError("there is no psql on this machine", hint="install postgresql-client") from e
