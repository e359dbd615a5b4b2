"""The how-to can be followed: every declaration in it is one."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from vestnik.autopost.declaration import read_declaration

PAGE = Path(__file__).parents[3] / "docs/howto/sources.md"


def test_every_declaration_of_the_page_is_taken() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    declared = [
        source.kind for block in blocks for source in read_declaration(yaml.safe_load(block)).workspaces[0].sources
    ]
    assert set(declared) == {"rss", "api", "db"}
