"""What the demo shows: a table that fills while the acts are played; in a pipe, one line per act and the table once."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text


@dataclass(slots=True)
class Line:
    title: str
    state: str = "waiting"
    note: str = ""
    began: float = 0.0
    took: float | None = None


@dataclass(slots=True)
class Screen:
    console: Console
    titles: list[str]
    lines: list[Line] = field(init=False)
    headline: str = "starting"
    footer: str = ""
    _live: Live | None = None

    def __post_init__(self) -> None:
        self.lines = [Line(title) for title in self.titles]

    def __enter__(self) -> Screen:
        if self.console.is_terminal:
            self._live = Live(console=self.console, get_renderable=self._render, refresh_per_second=10)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()
            self._live = None
        else:
            self.console.print(self._table())

    def say(self, headline: str) -> None:
        self.headline = headline

    def begin(self, n: int) -> None:
        line = self.lines[n]
        line.state, line.began = "playing", time.monotonic()

    def note(self, n: int, note: str) -> None:
        self.lines[n].note = note

    def end(self, n: int, *, passed: bool, note: str) -> None:
        line = self.lines[n]
        line.state, line.note = "passed" if passed else "failed", note
        line.took = time.monotonic() - line.began
        if not self._live:
            self.console.print(f"{line.state}: {line.title}: {note}")

    def _render(self) -> RenderableType:
        status: RenderableType = Spinner("dots", Text(self.headline, style="dim")) if self.headline else Text()
        return Group(self._table(), Text(), status, *([Text.from_markup(self.footer)] if self.footer else []))

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold", expand=False)
        table.add_column("what is shown", no_wrap=True)
        table.add_column("result", no_wrap=True)
        table.add_column("time", justify="right", no_wrap=True)
        table.add_column("what was seen")
        colours = {"waiting": "dim", "playing": "cyan", "passed": "green", "failed": "bold red"}
        for line in self.lines:
            took = line.took if line.took is not None else time.monotonic() - line.began if line.began else None
            seconds = "" if took is None else f"{took:.1f} s"
            table.add_row(line.title, f"[{colours[line.state]}]{line.state}[/]", seconds, Text(line.note))
        return table
