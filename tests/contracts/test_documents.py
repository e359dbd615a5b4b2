"""What the documentation says of the program is what the program says of itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vestnik.reference import FOLDER, PAGES

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_fresh(name: str) -> None:
    assert (ROOT / FOLDER / name).read_text() == PAGES[name](), "write it anew: python -m vestnik.reference"


def documents() -> list[Path]:
    return [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]


@pytest.mark.parametrize("document", documents(), ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", document.read_text()):
        assert (document.parent / target).exists(), f"{document.name} names {target}"


def test_the_make_targets_that_documents_name_exist() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.M))
    for document in documents():
        named = set(re.findall(r"`?make ([a-z][a-z0-9-]+)\b(?! [a-z]+ )", document.read_text()))
        assert named & {"setup", "demo", "test", "bench", "lint", "lock", "db-dump"} <= targets


def test_every_state_of_the_schema_is_documented() -> None:
    migration = (ROOT / "src/vestnik/sql/migrations/0003_autopost_queue.sql").read_text()
    listed = re.search(r"status in\s*\(([^)]+)\)", migration)
    assert listed
    page = (ROOT / FOLDER / "delivery-states.md").read_text()
    for state in re.findall(r"'(\w+)'", listed[1]):
        assert f"| `{state}` |" in page
