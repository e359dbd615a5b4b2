"""What a command can do, the API can; docs/reference/api.md pairs them, and is held to both here."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import typer

from vestnik import cli
from vestnik.api.app import create_app

PAGE = (Path(__file__).parents[2] / "docs/reference/api.md").read_text()
ROUTE = re.compile(r"`(GET|POST|PUT|PATCH|DELETE) ([^`\s?]+)")


def test_every_command_has_a_route_or_a_reason_why_not() -> None:
    cli.assemble()
    known = set(commands(typer.main.get_command(cli.app)))
    paired, excused = rows("## Commands and routes", "These commands"), rows("These commands", "## One thing")
    assert len(known) > 60
    assert paired.keys() | excused.keys() == known
    assert not paired.keys() & excused.keys()
    assert all(ROUTE.search(routes) for routes in paired.values())
    assert all(len(reason) > 10 for reason in excused.values())


def test_every_route_that_the_page_names_is_there_and_every_one_that_is_there_is_named() -> None:
    named = {(verb, path.replace("{ws}", "/v1/workspaces/{ws}", 1) if path.startswith("{ws}") else path)
             for verb, path in ROUTE.findall(PAGE)}  # fmt: skip
    assert named <= operations()
    elsewhere = {("GET", "/metrics")}  # docs/howto/observability.md
    assert operations() - named <= elsewhere


def test_every_operation_says_what_it_is() -> None:
    described = description()
    names = [operation["operationId"] for operation in each_operation(described)]
    assert len(names) == len(set(names))
    for operation in each_operation(described):
        assert operation["tags"]
        assert operation["summary"]
        for status, answer in operation["responses"].items():
            assert answer["description"], (operation["summary"], status)
        content = operation.get("requestBody", {}).get("content", {})
        assert all("schema" in each for each in content.values())


def rows(begin: str, end: str) -> dict[str, str]:
    """A table of the page: what stands behind each command."""
    part = PAGE[PAGE.index(begin) : PAGE.index(end)]
    return dict(re.findall(r"^\| `([a-z -]+)` \| (.+) \|$", part, re.M))


def commands(group: Any, prefix: str = "") -> list[str]:
    found: list[str] = []
    for name, command in group.commands.items():
        inner = getattr(command, "commands", None)
        found += commands(command, f"{prefix}{name} ") if inner else [prefix + name]
    return found


def operations() -> set[tuple[str, str]]:
    return {(verb.upper(), path) for path, verbs in description()["paths"].items() for verb in verbs}


def each_operation(described: Any) -> list[Any]:
    return [operation for verbs in described["paths"].values() for operation in verbs.values()]


def description() -> dict[str, Any]:
    """Of the API with everything that can be in it; nothing is asked of any of it."""
    parts = {
        name: MagicMock()
        for name, parameter in inspect.signature(create_app).parameters.items()
        if parameter.default in (None, inspect.Parameter.empty)
    }
    pool, adapters = parts.pop("pool"), parts.pop("adapters")
    described: dict[str, Any] = create_app(pool, adapters, **parts).openapi()
    return described
