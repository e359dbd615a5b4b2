"""The list of log actions is the list of the code, and lines know what they are about."""

from __future__ import annotations

import ast
import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import structlog

from vestnik import log

ROOT = Path(__file__).parents[2]
LEVELS = ("debug", "info", "warning", "error", "exception", "critical")
ROW = re.compile(r"^\| `([^`]+)` \| (\w+) \|", re.M)


class Line(NamedTuple):
    """A call of the log. ``action`` is a pattern: what a line is called may depend on who writes it."""

    where: str
    level: str
    action: re.Pattern[str]


def listed() -> dict[str, str]:
    return dict(ROW.findall((ROOT / "docs/reference/log-actions.md").read_text()))


def lines() -> list[Line]:
    files = sorted((ROOT / "src/vestnik").rglob("*.py"))
    return [line for file in files for line in lines_of(file)]


def lines_of(file: Path) -> Iterator[Line]:
    for node in ast.walk(ast.parse(file.read_text())):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS):
            continue
        whose = node.func.value
        if (whose.id if isinstance(whose, ast.Name) else getattr(whose, "attr", "")) in ("log", "_log"):
            where = f"{file.relative_to(ROOT)}:{node.lineno}"
            yield Line(where, node.func.attr, pattern_of(node.args[0], where))


def pattern_of(action: ast.expr, where: str) -> re.Pattern[str]:
    parts = action.values if isinstance(action, ast.JoinedStr) else [action]
    known = [re.escape(str(part.value)) if isinstance(part, ast.Constant) else r"[a-z_.]+" for part in parts]
    assert not (len(parts) == 1 and not isinstance(parts[0], ast.Constant)), f"{where}: the action is written out there"
    return re.compile("".join(known))


def test_every_line_of_the_log_is_listed_with_its_level() -> None:
    known = listed()
    for line in lines():
        found = {action: level for action, level in known.items() if line.action.fullmatch(action)}
        assert line.level in found.values(), (
            f"{line.where}: {line.action.pattern} is not in log-actions.md as {line.level}"
        )


def test_every_listed_action_is_written_somewhere() -> None:
    written = lines()
    for action, level in listed().items():
        assert any(line.action.fullmatch(action) and line.level == level for line in written), action


def test_an_action_is_words_with_dots() -> None:
    assert [action for action in listed() if not re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", action)] == []
    assert list(listed()) == sorted(listed()), "in order, so that two people add to it without a quarrel"


async def test_lines_of_a_task_say_what_it_is_about(capsys: pytest.CaptureFixture[str]) -> None:
    before = structlog.get_config()
    log.configure("info", "json")

    async def send(number: int) -> None:
        log.about(workspace_id="shop", trace_id=f"t{number}")
        await asyncio.sleep(0)
        log.get_log().info("settle.late", delivery_id=number)

    try:
        await asyncio.gather(send(1), send(2))
        log.get_log().warning("jobs.stopped")
    finally:
        structlog.configure(**before)
    first, second, other = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (first["workspace_id"], first["trace_id"], first["action"]) == ("shop", "t1", "settle.late")
    assert second["trace_id"] == "t2" and second["level"] == "info" and second["timestamp"].endswith("Z")
    assert "trace_id" not in other
