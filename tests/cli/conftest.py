from __future__ import annotations

from pathlib import Path

import pytest
from cli_rig import Cli


@pytest.fixture
def cli(database: str, tmp_path: Path) -> Cli:
    return Cli(database, tmp_path)
