"""docs/reference/guarantees.md leaves no rule out and names no test that is not there.

The specification is not part of this repository. What is kept of it here is how many rules each of its sections has.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "guarantees.md"

# The rules of each section, without lists of fields.
RULES = {
    "key": 6, "architecture": 13, "send_text": 11, "send_media": 6, "batch": 4, "max": 16, "idempotency": 7, "scope": 5,
    "workspace_endpoints": 9, "channels": 13, "platform_limits": 3, "messages": 5, "media_origin": 8, "media_blobs": 7,
    "deliveries": 9, "events": 14, "pull_sources": 1, "pull_cursors": 1, "ingest_runs": 1, "ingress_receipts": 6,
    "dedup": 26, "routing": 13, "scheduling": 11, "templates": 8, "ingress": 8, "preflight": 23, "push": 13, "pull": 5,
    "normalization": 8, "boundary": 17, "scheduler": 5, "allocate": 19, "send": 13, "rate": 13, "errors": 10, "retry": 11,
    "permanent": 14, "streak": 6, "status": 2, "states": 10, "monitor": 8, "checklist": 7, "privacy": 6, "runbook": 12,
    "artefacts": 5,
}  # fmt: skip

# The fields of each table; one row each, so that none is forgotten.
FIELDS = {
    "workspaces": 4, "workspace_endpoints": 11, "channels": 23, "platform_limits": 6, "messages": 15, "media_origin": 9,
    "media_blobs": 9, "deliveries": 24, "events": 12, "pull_sources": 6, "pull_cursors": 4, "ingest_runs": 6,
    "ingress_receipts": 7,
}  # fmt: skip

BEYOND = [*range(1, 23), 26, 27]
LATER = {"dialog"}


class Row(NamedTuple):
    id: str
    rule: str
    kept_by: str
    test: str

    @property
    def tests(self) -> list[str]:
        return re.findall(r"`(tests/[^`]+)`", self.test)


def rows() -> list[Row]:
    cells = [line.strip("|").split("|") for line in PAGE.read_text().splitlines() if re.match(r"\| [ACEJO]\.", line)]
    return [Row(*(cell.strip() for cell in row)) for row in cells]


def test_every_rule_of_the_specification_has_its_row() -> None:
    found = Counter(row.id for row in rows() if row.id.startswith("A."))
    expected = [f"A.{section}.{n}" for section, count in RULES.items() for n in range(1, count + 1)]
    expected += [f"A.{table}.fields" for table in FIELDS]
    assert found == Counter(expected)


def test_every_rule_beyond_it_has_its_row() -> None:
    assert [row.id for row in rows() if row.id.startswith("E.")] == [f"E.{n}" for n in BEYOND]


@pytest.mark.parametrize("part", "CJO")
def test_the_rules_of_later_parts_are_numbered_through(part: str) -> None:
    found = [row.id for row in rows() if row.id.startswith(f"{part}.")]
    assert found == [f"{part}.{n}" for n in range(1, len(found) + 1)]
    assert len(found) > 10


@pytest.mark.parametrize("table", FIELDS)
def test_every_field_is_named(table: str) -> None:
    (row,) = [row for row in rows() if row.id == f"A.{table}.fields"]
    assert len(set(re.findall(r"`(\w+)`", row.rule))) == FIELDS[table]


def test_every_row_has_tests_or_says_what_it_waits_for() -> None:
    for row in rows():
        assert row.rule, row.id
        if row.test.startswith("later: "):
            assert row.test.removeprefix("later: ") in LATER, row.id
            assert not row.kept_by, f"{row.id}: what keeps it is there, so is a test"
        else:
            assert row.tests and row.kept_by, row.id
            assert row.test == "<br>".join(f"`{test}`" for test in row.tests), (
                f"{row.id} has something beside its tests"
            )


def test_every_named_test_exists() -> None:
    named = {test for row in rows() for test in row.tests}
    assert {test for test in named if test.split("::")[1] not in functions(test.split("::")[0])} == set()


def test_what_keeps_a_rule_exists() -> None:
    sql = "\n".join(path.read_text() for path in (ROOT / "src/vestnik/sql/functions").rglob("*.sql"))
    known = set(re.findall(r"create or replace function (?:autopost\.)?((?:ops\.|core\.)?\w+)\(", sql))
    for row in rows():
        for name in re.findall(r"`([^`]+)`", row.kept_by):
            module = ROOT / "src" / name.replace(".", "/")
            exists = (
                name in known or name == "functions/autopost" or module.is_dir() or module.with_suffix(".py").is_file()
            )
            assert exists, f"{row.id} names {name}"


@cache
def functions(path: str) -> set[str]:
    """The names of all test functions in a file, those of classes included."""
    file = ROOT / path
    if not file.is_file():
        return set()
    nodes = ast.walk(ast.parse(file.read_text()))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
