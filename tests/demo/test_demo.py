"""The demo's four acts, over real HTTP, on a database that it makes itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_the_demo_passes_and_says_what_it_showed(own_folder: Path) -> None:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("VESTNIK_")}
    done = subprocess.run(
        [sys.executable, "-m", "vestnik", "demo", "--check"],
        capture_output=True,
        text=True,
        timeout=180,
        cwd=own_folder,
        env=kept | {"VESTNIK_DATA_DIR": str(own_folder)},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for act in ("Config-driven channel", "429 to eventual success", "Per-channel dedup", "Bad-channel isolation"):
        assert f"passed: {act}" in done.stdout
