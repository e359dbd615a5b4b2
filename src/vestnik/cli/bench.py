"""``vestnik bench NAME``: measure this program on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console

from vestnik.bench.report import show
from vestnik.bench.suite import BENCHMARKS, measure
from vestnik.log import configure


def bench(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(BENCHMARKS)}.")],
    runs: Annotated[int, typer.Option(min=1, help="How many times; the result is the median and the spread.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on one line.")] = False,
    minutes: Annotated[
        float | None, typer.Option(min=0.05, max=1440, help="How long the load lasts: for soak, 10 by itself.")
    ] = None,
    pg: Annotated[int, typer.Option("--pg", help="Version of the embedded PostgreSQL: 18 or 16.")] = 18,
    tiny: Annotated[
        bool, typer.Option("--tiny", help="As small as can be: shows that it works, measures nothing.")
    ] = False,
) -> None:
    """Measure the speed of Vestnik on a fresh server of its own, which is removed at the end."""
    configure("warning")
    with _progress() as say:
        result = measure(name, runs=runs, tiny=tiny, minutes=minutes, version=pg, say=say)
    show(result, as_json=as_json)


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """A line that says what is going on, where somebody looks; nothing in a pipe."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status("") as status:
        yield lambda what: status.update(what)
