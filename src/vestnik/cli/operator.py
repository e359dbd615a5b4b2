"""Who does it, and why: what the events of an operation keep."""

from __future__ import annotations

import getpass
import sys
from typing import Annotated

import typer

from vestnik.errors import ConfigError

Operator = Annotated[
    str | None, typer.Option("--operator", help="Who does it, for the events; your user name if not given.")
]
Reason = Annotated[str | None, typer.Option("--reason", help="Why, for the events; asked for if not given.")]


def operator_name(given: str | None) -> str:
    if given:
        return given
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "cli"


def reason_of(given: str | None) -> str:
    """As given, or as a person at a terminal says it."""
    if given is None and sys.stdin.isatty():
        given = typer.prompt("Why? (kept in the events)", err=True)
    if not given or not given.strip():
        raise ConfigError("the events want a reason", hint="--reason 'the bot is back in the channel'")
    return given.strip()
