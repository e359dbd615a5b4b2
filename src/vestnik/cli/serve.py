"""``vestnik up`` and ``vestnik run``: the service itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Annotated, Any

import typer
import uvloop

from vestnik import log
from vestnik.app import ROLES, Service, prepare, run
from vestnik.db.home import database, database_url
from vestnik.errors import ConfigError
from vestnik.settings import Settings, load_settings


def up() -> None:
    """Run everything in one process: database (unless VESTNIK_DATABASE_URL is set), API, dispatcher and jobs."""
    _run(_up(load_settings()))


def run_roles(
    roles: Annotated[list[str], typer.Argument(help=f"One or more of: {', '.join(ROLES)}.", metavar="ROLE…")],
) -> None:
    """Run some roles in this process, on a database that runs and is migrated."""
    if unknown := [role for role in roles if role not in ROLES]:
        raise ConfigError(f"there is no role {unknown[0]!r}", hint=f"roles: {', '.join(ROLES)}")
    settings = load_settings()
    log.configure(settings.log_level, settings.log_format)
    _run(run(settings, database_url(settings), roles, _say))


async def _up(settings: Settings) -> None:
    log.configure(settings.log_level, settings.log_format)
    async with database(settings) as url:
        await prepare(url)
        await run(settings, url, ROLES, _say)


def _say(service: Service) -> None:
    if service.http_url:
        typer.echo(f"API: {service.http_url}  (description: {service.http_url}/docs)", err=True)
    if service.metrics_url:
        typer.echo(f"Metrics: {service.metrics_url}", err=True)
    typer.echo("Ctrl-C stops it.", err=True)


def _run(work: Awaitable[Any]) -> None:
    async def main() -> None:
        await work

    try:
        uvloop.run(main())
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise typer.Exit(130) from None
