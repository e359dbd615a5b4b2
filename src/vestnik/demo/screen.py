"""What the demo shows: a table that fills while the acts are played; in a pipe, one line per act."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

LONGEST_NOTE = 46  # of an act that passed: it fits beside its title in 80 columns
ROOM_FOR_TIMES = 90
_COLOURS = {"waiting": "dim", "playing": "cyan", "passed": "green", "failed": "bold red"}


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
    farewell: str = ""
    _live: Live | None = None

    def __post_init__(self) -> None:
        self.lines = [Line(title) for title in self.titles]

    def __enter__(self) -> Screen:
        if self.console.is_terminal:
            self._live = Live(console=self.console, get_renderable=self._render, refresh_per_second=10)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is None:
            return
        self.headline, self.footer = "", self.farewell
        self._live.transient = not any(line.began for line in self.lines)
        self._live.stop()
        self._live = None
        for line in self.lines:
            if line.state == "failed":
                self._print(line)

    def verdict(self) -> int:
        """The exit code: 0 when every act has passed, 1 when one has failed, 130 when they were broken off."""
        states = {line.state for line in self.lines}
        return 1 if "failed" in states else 0 if states == {"passed"} else 130

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
            self._print(line)

    def _print(self, line: Line) -> None:
        # A note may quote what was received: brackets in it are no markup.
        text = f"{line.state}: {line.title}: {line.note}"
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _render(self) -> RenderableType:
        parts: list[RenderableType] = [self._table()]
        if self.headline:
            parts += [Text(), Spinner("dots", Text(self.headline, style="dim", no_wrap=True, overflow="ellipsis"))]
        if self.footer:
            parts += [Text(), Text.from_markup(self.footer)]
        return Group(*parts)

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold", expand=False)
        with_times = self.console.width >= ROOM_FOR_TIMES
        table.add_column("what is shown", no_wrap=True, min_width=max(map(len, self.titles)))
        table.add_column("result", no_wrap=True, min_width=len("playing"))
        if with_times:
            table.add_column("time", justify="right", no_wrap=True, min_width=len("10.0 s"))
        table.add_column("what was seen", no_wrap=True, overflow="ellipsis")
        for line in self.lines:
            took = line.took if line.took is not None else time.monotonic() - line.began if line.began else None
            times = ["" if took is None else f"{took:.1f} s"] if with_times else []
            table.add_row(line.title, Text(line.state, style=_COLOURS[line.state]), *times, Text(line.note))
        return table
