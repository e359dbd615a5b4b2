"""What the demo shows, in a terminal and in a pipe."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from vestnik.demo.acts import ACTS
from vestnik.demo.play import farewell
from vestnik.demo.screen import LONGEST_NOTE, ROOM_FOR_TIMES, Screen

TITLES = [act.title for act in ACTS]


def drawn(width: int, screen: Screen) -> list[str]:
    """The screen as it stands, as text."""
    console = Console(file=StringIO(), width=width, force_terminal=False)
    console.print(screen._render())
    assert isinstance(console.file, StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def in_a_terminal(width: int) -> Screen:
    return Screen(Console(file=StringIO(), width=width, force_terminal=True), TITLES)


def in_a_pipe() -> tuple[Screen, StringIO]:
    out = StringIO()
    return Screen(Console(file=out, width=40, force_terminal=False), TITLES), out


@pytest.mark.parametrize("width", [80, ROOM_FOR_TIMES, 200])
def test_every_act_has_one_line_at_any_moment(width: int) -> None:
    screen = in_a_terminal(width)
    places = set()
    for n, title in enumerate(TITLES):
        screen.begin(n)
        screen.note(n, "x" * LONGEST_NOTE)
        shown = drawn(width, screen)[: len(TITLES) + 1]
        assert max(map(len, shown)) <= width
        assert [line[: len(title)] for line, title in zip(shown[1:], TITLES, strict=True)] == TITLES
        assert "x" * LONGEST_NOTE in shown[n + 1]
        places.add(shown[0].index("what was seen"))
        screen.end(n, passed=True, note="x" * LONGEST_NOTE)
    assert len(places) == 1  # no column ever moves


def test_a_pipe_gets_a_line_for_each_act_and_nothing_else() -> None:
    screen, out = in_a_pipe()
    with screen:
        screen.say("starting")
        for n, passed in enumerate((True, False)):
            screen.begin(n)
            screen.note(n, "under way")
            screen.end(n, passed=passed, note=f"the readers see ['{'a ' * 40}'] [bold]")
        screen.footer = "Publish"
    seen = f"the readers see ['{'a ' * 40}'] [bold]"
    assert out.getvalue().splitlines() == [f"passed: {TITLES[0]}: {seen}", f"failed: {TITLES[1]}: {seen}"]


def test_a_terminal_keeps_the_table_and_says_in_full_what_failed() -> None:
    screen = in_a_terminal(80)
    assert isinstance(screen.console.file, StringIO)
    with screen:
        for n, passed in enumerate((True, False)):
            screen.begin(n)
            screen.end(n, passed=passed, note="because " * 20)
        screen.footer, screen.farewell = "while it runs", "what next"
    shown = screen.console.file.getvalue()
    assert f"failed: {TITLES[1]}: {'because ' * 20}" in shown
    assert f"passed: {TITLES[0]}: " not in shown
    assert shown.rindex("what next") > shown.find("while it runs")


@pytest.mark.parametrize(
    ("fates", "code"), [([True] * 8, 0), ([True] * 7 + [False], 1), ([True] * 7, 130), ([False], 1), ([], 130)]
)
def test_the_exit_code(fates: list[bool], code: int) -> None:
    screen, _ = in_a_pipe()
    for n, passed in enumerate(fates):
        screen.begin(n)
        screen.end(n, passed=passed, note="")
    assert screen.verdict() == code


def test_the_farewell_names_commands_as_they_can_be_typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for called, typed in ((".venv/bin/vestnik", ".venv/bin/vestnik"), ("/x/vestnik/__main__.py", "python -m vestnik")):
        monkeypatch.setattr("sys.argv", [called, "demo"])
        said = farewell().splitlines()
        assert [line.split("  ")[1] for line in said[1:]] == [
            f"{typed} {command}" for command in ("migrate", "apply shop.yml", "up", "demo")
        ]

    (tmp_path / "vestnik").touch(mode=0o755)
    monkeypatch.setattr("sys.argv", [str(tmp_path / "vestnik"), "demo"])
    assert "  vestnik migrate " in farewell()
