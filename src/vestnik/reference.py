"""The parts of the documentation that would rot by hand: ``python -m vestnik.reference`` writes them anew."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from vestnik.settings import Settings

FOLDER = Path("docs/reference")
_COMMANDS = (
    *("demo", "up", "run", "migrate", "apply", "push", "queue", "events", "why", "sandbox", "bench"),
    *("db start", "db stop", "db status", "db url", "db psql", "db upgrade"),
    *("endpoint create", "endpoint rotate", "endpoint list", "apikey create", "apikey list", "apikey revoke"),
    *(f"jobs {verb}" for verb in ("list", "show", "run", "retry", "cancel", "kinds", "pause", "resume", "schedules")),
)


def settings_page() -> str:
    lines = [
        "# Settings",
        "",
        "From the environment, or from a file `.env` in the current folder.",
        "",
        "| name | default | what |",
        "|---|---|---|",
    ]
    for name, field in Settings.model_fields.items():
        default = "" if field.default is None else f"`{field.default}`"
        lines.append(f"| `VESTNIK_{name.upper()}` | {default} | {field.description} |")
    return "\n".join([*lines, ""])


def commands_page() -> str:
    lines = ["# Commands", ""]
    for command in _COMMANDS:
        lines += [f"## vestnik {command}", "", "```", _help(command), "```", ""]
    return "\n".join(lines)


def _help(command: str) -> str:
    """As a terminal of 100 columns shows it, without colours."""
    plain = os.environ | {"COLUMNS": "100", "TERMINAL_WIDTH": "100", "NO_COLOR": "1", "TERM": "dumb"}
    done = subprocess.run(
        [sys.executable, "-m", "vestnik", *command.split(), "--help"],
        capture_output=True,
        text=True,
        env=plain,
        check=True,
    )
    return "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())


PAGES = {"settings.md": settings_page, "commands.md": commands_page}


def main() -> None:
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page())


if __name__ == "__main__":
    main()
