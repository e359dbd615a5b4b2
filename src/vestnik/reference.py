"""The parts of the documentation that would rot by hand: ``python -m vestnik.reference`` writes them anew."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

from vestnik.cli import app, assemble
from vestnik.settings import Settings

FOLDER = Path("docs/reference")
_OTHERS = """\
A platform from [another package](../howto/new-platform.md) is set by `VESTNIK_<PLATFORM>_API_URL` and
`VESTNIK_<PLATFORM>_CA_FILE`, too."""


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
    return "\n".join([*lines, "", _OTHERS, ""])


def commands_page() -> str:
    """As a terminal of 100 columns shows them, without colours. Both are read as a library is loaded, so elsewhere."""
    plain = os.environ | {"COLUMNS": "100", "TERMINAL_WIDTH": "100", "NO_COLOR": "1", "TERM": "dumb"}
    code = "from vestnik.reference import _commands; print(_commands(), end='')"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=plain, check=True).stdout


def _commands() -> str:
    assemble()
    lines = ["# Commands", ""]
    for name in _names(get_command(app)):
        said = CliRunner().invoke(app, [*name.split(), "--help"], prog_name="vestnik").stdout
        lines += [f"## vestnik {name}", "", "```", *map(str.rstrip, said.strip().splitlines()), "```", ""]
    return "\n".join(lines)


def _names(command: Any, path: str = "") -> Iterator[str]:
    for name, inner in getattr(command, "commands", {}).items():
        if hasattr(inner, "commands"):
            yield from _names(inner, f"{path}{name} ")
        else:
            yield f"{path}{name}"


PAGES = {"settings.md": settings_page, "commands.md": commands_page}


def main() -> None:
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page())


if __name__ == "__main__":
    main()
