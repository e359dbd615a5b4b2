"""``vestnik``: parse, call a verb, render. Errors are one line, with the way out."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

import psycopg
import typer

from vestnik.cli.leaving import leave
from vestnik.errors import InvalidPayload, VestnikError

app = typer.Typer(
    name="vestnik",
    help="Publish once, arrive in every channel.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    add_completion=False,
)


def main() -> None:
    try:
        _run()
    except SystemExit as e:
        leave(e)


def _run() -> None:
    _refuse_unreadable(sys.argv[1:])
    assemble(sys.argv[1:2])
    try:
        app()
    except InvalidPayload as e:
        _complain("the payload is not right", *e.problems)
    except VestnikError as e:
        _complain(str(e), *([f"try: {e.hint}"] if e.hint else []))
    except psycopg.errors.ForeignKeyViolation as e:
        _complain(_detail(e), "vestnik apply FILE creates workspaces and channels")
    except psycopg.errors.UniqueViolation as e:
        _complain(_detail(e))
    except psycopg.DataError as e:
        _complain(f"the database cannot store this: {str(e).splitlines()[0]}")
    except psycopg.errors.QueryCanceled as e:
        _complain(f"the database took too long: {str(e).strip().splitlines()[0]}")
    except psycopg.OperationalError as e:
        _complain(f"the database is away: {str(e).strip().splitlines()[0]}", "try: vestnik db status")
    except RecursionError:
        _complain("what was given is nested too deep")


def _refuse_unreadable(arguments: list[str]) -> None:
    """Bytes that are no text stand as half characters here, and nothing further on can take those."""
    for number, argument in enumerate(arguments, 1):
        if any("\ud800" <= c <= "\udfff" for c in argument):
            _complain(f"argument {number} is not text in UTF-8")


def _complain(line: str, *more: str) -> None:
    for text in (f"vestnik: {line}", *(f"  {text}" for text in more)):
        print(text, file=sys.stderr)
    sys.exit(1)


def _detail(error: psycopg.Error) -> str:
    return error.diag.message_detail or error.diag.message_primary or str(error)


# In the order in which one meets them: name, module, attribute.
_COMMANDS = (
    ("demo", "demo", "demo"),
    ("up", "serve", "up"),
    ("run", "serve", "run_roles"),
    ("migrate", "database", "migrate_command"),
    ("apply", "apply", "apply"),
    ("push", "publish", "push"),
    ("preview", "preview", "preview"),
    ("forecast", "forecast", "forecast"),
    ("planned", "plan", "planned"),
    ("cancel", "plan", "cancel"),
    ("reschedule", "plan", "reschedule"),
    ("replace", "plan", "replace"),
    ("conflicts", "plan", "conflicts"),
    ("queue", "look", "queue"),
    ("events", "look", "events"),
    ("why", "look", "why"),
    ("findings", "findings", "findings"),
    ("requeue", "operate", "requeue"),
    ("pause", "operate", "pause"),
    ("resume", "operate", "resume"),
    ("disable", "operate", "disable"),
    ("disable-group", "operate", "disable_group"),
    ("enable-group", "operate", "enable_group"),
    ("rotate-auth", "operate", "rotate_auth"),
    ("release-stuck", "operate", "release_stuck"),
    ("doctor", "doctor", "doctor"),
    ("health", "alerts", "show_health"),
    ("changes", "operators", "changes"),
    ("sandbox", "sandbox", "sandbox"),
    ("bench", "bench", "bench"),
)
_GROUPS = (
    ("db", "database", "app"),
    ("endpoint", "doors", "endpoints"),
    ("apikey", "doors", "apikeys"),
    ("operator", "operators", "app"),
    ("unknown", "unknown", "app"),
    ("sources", "sources", "app"),
    ("jobs", "jobs", "app"),
    ("alerts", "alerts", "app"),
    ("webhooks", "alerts", "webhooks"),
    ("retention", "retention", "app"),
    ("payloads", "payloads", "app"),
)


def assemble(first: Sequence[str] = ()) -> None:
    """Only the command that is asked for is loaded, so that a short one starts quickly; the help loads all."""
    names = {name for name, *_ in (*_COMMANDS, *_GROUPS)}
    asked = set(first) & names or names
    for name, module, attribute in _COMMANDS:
        if name in asked:
            app.command(name)(getattr(import_module(f"vestnik.cli.{module}"), attribute))
    for name, module, attribute in _GROUPS:
        if name in asked:
            app.add_typer(getattr(import_module(f"vestnik.cli.{module}"), attribute), name=name)
    if len(asked) == 1:
        app.callback()(lambda: None)  # one command alone would otherwise become the program itself
