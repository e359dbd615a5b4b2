"""``python -m vestnik.bench NAME``: the same as ``vestnik bench NAME``."""

import sys

import typer

from vestnik.cli.bench import bench
from vestnik.errors import VestnikError

if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(bench)
    try:
        app()
    except VestnikError as e:
        sys.exit(f"error: {e}" + (f" ({e.hint})" if e.hint else ""))
