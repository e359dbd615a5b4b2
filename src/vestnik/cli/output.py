"""How commands show what they found: a table for people, one JSON array for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from pydantic_core import to_jsonable_python
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Row = Mapping[str, Any]

console, notes = Console(), Console(stderr=True)
for each in (console, notes):
    each.soft_wrap = not each.is_terminal  # what is read by a program has its lines in one piece
_GAP = "  "
_COLOURS = {
    "sent": "green", "ok": "green", "error": "red", "dead": "bold red", "failed_permanent": "red", "retry": "yellow",
    "sending": "cyan", "claimed": "cyan", "deduped": "dim", "running": "cyan", "done": "green", "cancelled": "dim",
    "rescheduled": "green", "too_late": "yellow", "held": "yellow",
}  # fmt: skip


def show(rows: Sequence[Row], columns: Sequence[str], *, as_json: bool, empty: str) -> None:
    if as_json:
        typer.echo(json.dumps([dict(row) for row in rows], default=str, ensure_ascii=False))
    elif not rows:
        console.print(empty)
    else:
        told = [name for name in columns if any(row[name] is not None for row in rows)]
        if "workspace_id" in told and len({row["workspace_id"] for row in rows}) == 1:
            told.remove("workspace_id")
            console.print(Text(f"workspace {rows[0]['workspace_id']}", style="dim"))
        _show_table({name: _cells([row[name] for row in rows]) for name in told})


def emit(answer: Any) -> None:
    """JSON in the very form in which HTTP answers it."""
    typer.echo(json.dumps(to_jsonable_python(answer), ensure_ascii=False))


def _show_table(table: Mapping[str, Sequence[Text]]) -> None:
    """No cell is cut or folded: a column that the terminal has no room for stands below its row, by its name."""
    widths = {name: max(len(name), *(cell.cell_len for cell in cells)) for name, cells in table.items()}
    beside = _that_fit(widths)
    _show_line((Text(_title(name), style="bold"), widths[name]) for name in beside)
    for cells in zip(*table.values(), strict=True):
        row = dict(zip(table, cells, strict=True))
        _show_line((row[name], widths[name]) for name in beside)
        below = [
            Text.assemble((f"{_title(name)} ", "dim"), cell)
            for name, cell in row.items() if cell and name not in beside
        ]  # fmt: skip
        if below:
            console.print(Padding(Text(_GAP).join(below), (0, 0, 0, 4)))


def _that_fit(widths: Mapping[str, int]) -> list[str]:
    if console.soft_wrap:
        return list(widths)
    found, left = [], console.width
    for name, width in widths.items():
        if width <= left:
            found.append(name)
            left -= width + len(_GAP)
    return found


def _show_line(cells: Iterable[tuple[Text, int]]) -> None:
    line = Text(_GAP).join(Text.assemble(cell, " " * (width - cell.cell_len)) for cell, width in cells)
    line.rstrip()
    console.print(line, soft_wrap=True)


def _title(column: str) -> str:
    return "workspace" if column == "workspace_id" else column.replace("_", " ")


def _cells(values: Sequence[Any]) -> list[Text]:
    moments = [value.astimezone(UTC) for value in values if isinstance(value, datetime)]
    today = datetime.now(UTC).date()
    short = console.is_terminal and all(moment.date() == today for moment in moments)
    return [_cell(value, "%H:%M:%S" if short else "%Y-%m-%d %H:%M:%S") for value in values]


def _cell(value: Any, when: str) -> Text:
    if value is None:
        return Text()
    if isinstance(value, datetime):
        return Text(value.astimezone(UTC).strftime(when))
    if isinstance(value, dict) and value.keys() >= {"code", "message"}:
        text = f"{value['code']}: {value['message']}"
    elif isinstance(value, dict | list):
        text = json.dumps(value, ensure_ascii=False, default=str)
    else:
        text = str(value)
    return Text(" ".join(text.split("\n")), style=_COLOURS.get(text, ""))
