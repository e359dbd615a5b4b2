"""``vestnik apply FILE``: make a YAML declaration true."""

from __future__ import annotations

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
from vestnik.cli.operator import operator_name
from vestnik.cli.output import console, notes
from vestnik.cli.session import with_pool
from vestnik.db.pool import Pool
from vestnik.errors import ConfigError
from vestnik.ops.secrets.box import SecretBox
from vestnik.ops.secrets.credentials import Credentials
from vestnik.settings import environment, load_settings


def apply(
    file: Annotated[
        Path,
        typer.Argument(help="YAML; ${NAME} in it is read from the environment or .env.", exists=True, dir_okay=False),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")] = False,
) -> None:
    """Make workspaces what the file says: their channels, endpoints, sources, templates, limits and policies."""
    declaration = read_declaration(_load(file))
    settings = load_settings()
    key = settings.secret_key.get_secret_value() if settings.secret_key else None

    async def work(pool: Pool) -> Applied:
        credentials = Credentials(pool, SecretBox.open(settings.data_dir, key))
        return await make_true(pool, credentials, declaration, dry_run=dry_run, actor=operator_name(None))

    applied = with_pool(work)
    for change in applied.changes:
        _show(change)
    for channel, count in applied.moved.items():
        console.print(f"  {count} waiting in {escape(channel)} go at the new hours")
    for channel, reason in applied.resumed.items():
        console.print(f"  {escape(channel)} is no longer held back: {escape(reason)}")
    if not applied.changes:
        console.print("nothing to change")
    elif dry_run:
        console.print(f"[yellow]{len(applied.changes)} changes, none of them made[/] (--dry-run)")
    for warning in applied.warnings:
        notes.print(f"[yellow]! {escape(warning)}[/]")
    for name, secret in ({} if dry_run else applied.secrets).items():
        console.print(f"\nSecret of endpoint {escape(name)}, shown this once:")
        typer.echo(secret)
    for name, secret in ({} if dry_run else applied.signatures).items():
        console.print(f"\nSecret of {escape(name)}, shown this once:")
        typer.echo(secret)


def _load(file: Path) -> Any:
    try:
        document = yaml.safe_load(file.read_text())
    except OSError as e:
        raise ConfigError(f"{file}: {e.strerror}") from e
    except (yaml.YAMLError, UnicodeDecodeError) as e:
        raise ConfigError(f"{file}{_fault(e)}", hint="mind the indentation, the colons and the quotes") from e
    return _filled_in(document)


def _fault(error: Exception) -> str:
    """In one line, by the number of the line: the parser's own words are five and name no file."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    place = f" line {mark.line + 1}: " if mark else ": "
    return place + (problem or str(error).splitlines()[0])


def _filled_in(node: Any) -> Any:
    """After parsing, so that no value can change the structure."""
    if isinstance(node, dict):
        return {key: _filled_in(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_filled_in(value) for value in node]
    return re.sub(r"\$\{(\w+)\}", _from_environment, node) if isinstance(node, str) else node


def _from_environment(match: re.Match[str]) -> str:
    value = environment().get(match[1])
    if value is None:
        raise ConfigError(f"the file names ${{{match[1]}}}, which is neither in the environment nor in .env")
    return value


def _show(change: Change) -> None:
    if not change.before:
        console.print(f"[green]+ {escape(change.what)}[/]")
        return
    console.print(f"[yellow]~ {escape(change.what)}[/]")
    for column, value in change.after.items():
        before, after = ("(secret)", "(secret)") if column == "secret_hash" else (change.before[column], value)
        console.print(f"    {column}: [red]{escape(str(before))}[/] → [green]{escape(str(after))}[/]")
