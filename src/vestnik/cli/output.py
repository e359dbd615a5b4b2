"""How commands show what they found: a table for people, one JSON array for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from pydantic_core import to_jsonable_python
from rich.console import Console
from rich.markup import escape
from rich.table import Table

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

console = Console()
_IDS = ("delivery_id", "message_id", "key_id", "job_id")
_COLOURS = {
    "sent": "green", "ok": "green", "error": "red", "dead": "bold red", "failed_permanent": "red", "retry": "yellow",
    "sending": "cyan", "claimed": "cyan", "deduped": "dim", "running": "cyan", "done": "green", "cancelled": "dim",
    "rescheduled": "green", "too_late": "yellow", "held": "yellow",
}  # fmt: skip


def show(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *, as_json: bool, empty: str) -> None:
    if as_json:
        typer.echo(json.dumps([dict(row) for row in rows], default=str, ensure_ascii=False))
    elif not rows:
        console.print(empty)
    else:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            # An id in one piece can be copied.
            table.add_column(column.replace("_", " "), overflow="fold", no_wrap=column in _IDS)
        for row in rows:
            table.add_row(*(_cell(row[column]) for column in columns))
        console.print(table)


def emit(answer: Any) -> None:
    """JSON in the very form in which HTTP answers it."""
    typer.echo(json.dumps(to_jsonable_python(answer), ensure_ascii=False))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, dict) and value.keys() >= {"code", "message"}:
        return escape(f"{value['code']}: {value['message']}")
    if isinstance(value, dict | list):
        return escape(json.dumps(value, ensure_ascii=False, default=str))
    text = str(value)
    return f"[{_COLOURS[text]}]{text}[/]" if text in _COLOURS else escape(text)
