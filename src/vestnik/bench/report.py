"""From the figures of several runs to one JSON object, or a table for a person."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

Figures = dict[str, float]


def summary(name: str, runs: Sequence[Figures], aims: Mapping[str, str], **about: Any) -> dict[str, Any]:
    """The median of each figure; with several runs also its lowest and highest."""
    keys = runs[0].keys()
    result: dict[str, Any] = {"bench": name, "runs": len(runs)}
    result |= {key: _short(statistics.median(run[key] for run in runs)) for key in keys}
    if len(runs) > 1:
        result["spread"] = {
            key: [_short(min(run[key] for run in runs)), _short(max(run[key] for run in runs))] for key in keys
        }
    return result | {"aims": dict(aims)} | about


def show(result: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(result))
        return
    table = Table(title=f"{result['bench']}: {_plural(result['runs'], 'run')}", title_justify="left")
    for column in ("", "median", "lowest", "highest", "aim"):
        table.add_column(column, justify="left" if column in ("", "aim") else "right")
    for key, value in result.items():
        if isinstance(value, int | float) and key != "runs":
            low, high = result.get("spread", {}).get(key, ("", ""))
            table.add_row(key, *map(_shown, (value, low, high)), result["aims"].get(key, ""))
    console = Console()
    console.print(table)
    for title in ("parameters", "machine"):
        console.print(f"{title}: " + ", ".join(f"{k} {v}" for k, v in result[title].items()), highlight=False)


def _short(value: float) -> float:
    """Three digits say all that a measurement knows."""
    if value >= 100:
        return round(value)
    return float(f"{value:.3g}")


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
