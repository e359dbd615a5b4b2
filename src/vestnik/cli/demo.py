"""``vestnik demo``: the whole service on emulated platforms, without a single key."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Annotated

import typer
import uvloop
from rich.console import Console

from vestnik import log
from vestnik.demo.acts import ACTS
from vestnik.demo.play import play
from vestnik.demo.screen import Screen
from vestnik.settings import Settings, load_settings


def demo(
    check: Annotated[
        bool, typer.Option("--check", help="Play the eight acts without a terminal, and exit with 0 or 1.")
    ] = False,
) -> None:
    """Run everything on emulated platforms: 40 channels, eight acts, then posts keep flowing until Ctrl-C."""
    console = Console(force_terminal=False) if check else Console()
    given = load_settings()
    # As shipped, and apart from the real one: its own database, keys and files, any port that is free.
    shipped = {name: field.default for name, field in Settings.model_fields.items()}
    own = {"data_dir": given.data_dir / "demo", "http_port": 0, "log_format": given.log_format}
    settings = given.model_copy(update=shipped | own)
    log.configure("error", settings.log_format)
    screen = Screen(console, [act.title for act in ACTS])
    with suppress(KeyboardInterrupt, asyncio.CancelledError):
        uvloop.run(play(settings, screen, stay=console.is_terminal))
    raise typer.Exit(screen.verdict())
