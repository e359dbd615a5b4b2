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
from vestnik.settings import load_settings


def demo(
    check: Annotated[
        bool, typer.Option("--check", help="Play the four acts without a terminal, and exit with 0 or 1.")
    ] = False,
) -> None:
    """Run everything on emulated platforms: 40 channels, four acts, then posts keep flowing until Ctrl-C."""
    console = Console(force_terminal=False) if check else Console()
    if not console.is_terminal:
        console.width = 140
    settings = load_settings()
    # Its own database, beside the real one; any port that is free, for the real one may be running.
    settings = settings.model_copy(
        update={"data_dir": settings.data_dir / "demo", "database_url": None, "http_host": "127.0.0.1", "http_port": 0}
    )
    log.configure("error", settings.log_format)
    passed = False
    with suppress(KeyboardInterrupt, asyncio.CancelledError):
        passed = uvloop.run(play(settings, Screen(console, [act.title for act in ACTS]), stay=console.is_terminal))
        raise typer.Exit(0 if passed else 1)
