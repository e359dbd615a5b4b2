"""``vestnik apply FILE``: make a YAML declaration true."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.markup import escape

from vestnik.autopost.apply import Applied
from vestnik.autopost.apply import apply as make_true
from vestnik.autopost.declaration import read_declaration
from vestnik.autopost.rows import Change
from vestnik.cli.output import console
from vestnik.cli.session import with_pool
from vestnik.db.pool import Pool
from vestnik.errors import ConfigError
from vestnik.ops.secrets.box import SecretBox
from vestnik.ops.secrets.credentials import Credentials
from vestnik.settings import load_settings


def apply(
    file: Annotated[
        Path,
        typer.Argument(help="YAML; ${NAME} in it is read from the environment.", exists=True, dir_okay=False),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")] = False,
) -> None:
    """Make workspaces what the file says: their channels, endpoints, sources, templates, limits and policies."""
    declaration = read_declaration(_load(file))
    settings = load_settings()
    key = settings.secret_key.get_secret_value() if settings.secret_key else None

    async def work(pool: Pool) -> Applied:
        credentials = Credentials(pool, SecretBox.open(settings.data_dir, key))
        return await make_true(pool, credentials, declaration, dry_run=dry_run)

    applied = with_pool(work)
    for change in applied.changes:
        _show(change)
    for channel, count in applied.moved.items():
        console.print(f"  {count} waiting in {escape(channel)} go at the new hours")
    if not applied.changes:
        console.print("nothing to change")
    elif dry_run:
        console.print(f"[yellow]{len(applied.changes)} changes, none of them made[/] (--dry-run)")
    for name, secret in ({} if dry_run else applied.secrets).items():
        console.print(f"\nSecret of endpoint {escape(name)}, shown this once:")
        typer.echo(secret)


def _load(file: Path) -> Any:
    try:
        document = yaml.safe_load(file.read_text())
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as e:
        raise ConfigError(f"{file}: {e}") from e
    return _filled_in(document)


def _filled_in(node: Any) -> Any:
    """After parsing, so that no value can change the structure."""
    if isinstance(node, dict):
        return {key: _filled_in(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_filled_in(value) for value in node]
    return re.sub(r"\$\{(\w+)\}", _from_environment, node) if isinstance(node, str) else node


def _from_environment(match: re.Match[str]) -> str:
    value = os.environ.get(match[1])
    if value is None:
        raise ConfigError(f"the file names ${{{match[1]}}}, which is not in the environment")
    return value


def _show(change: Change) -> None:
    if not change.before:
        console.print(f"[green]+ {escape(change.what)}[/]")
        return
    console.print(f"[yellow]~ {escape(change.what)}[/]")
    for column, value in change.after.items():
        before, after = ("(secret)", "(secret)") if column == "secret_hash" else (change.before[column], value)
        console.print(f"    {column}: [red]{escape(str(before))}[/] → [green]{escape(str(after))}[/]")
