"""The program as people run it: a process, its output, its exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Cli:
    database: str
    folder: Path

    def __call__(self, *arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "vestnik", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            cwd=self.folder,
            timeout=120,
            env=self.environment | environment,
            check=False,
        )

    @property
    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("VESTNIK_")}
        return kept | {
            "VESTNIK_DATABASE_URL": self.database,
            "VESTNIK_DATA_DIR": str(self.folder / "data"),
            "COLUMNS": "160",
        }

    def ok(self, *arguments: str, stdin: str = "", **environment: str) -> str:
        done = self(*arguments, stdin=stdin, **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refused(self, *arguments: str, **environment: str) -> str:
        """What it says on standard error when it refuses: never a traceback."""
        done = self(*arguments, **environment)
        assert done.returncode != 0, done.stdout
        assert "Traceback" not in done.stderr
        return done.stderr

    def write(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return name
