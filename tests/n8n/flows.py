"""The workflows as n8n reads them: nodes, the lines between them, and the SQL in them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "workflows"
NAMES = ("01_ingest", "02_dispatcher", "03_monitor")


@dataclass(frozen=True)
class Flow:
    name: str

    @cached_property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((FOLDER / f"{self.name}.json").read_text())
        return document

    @property
    def nodes(self) -> list[dict[str, Any]]:
        nodes: list[dict[str, Any]] = self.document["nodes"]
        return nodes

    def node(self, name: str) -> dict[str, Any]:
        (found,) = [node for node in self.nodes if node["name"] == name]
        return found

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        return [node for node in self.nodes if node["type"] == f"n8n-nodes-base.{kind}"]

    @property
    def lines(self) -> Iterator[tuple[str, int, str]]:
        """From which node, by which of its outputs, to which node."""
        for start, outputs in self.document["connections"].items():
            for place, ends in enumerate(outputs["main"]):
                for end in ends:
                    yield start, place, end["node"]

    def sql(self, name: str) -> str:
        query: str = self.node(name)["parameters"]["query"]
        return query


ALL = [Flow(name) for name in NAMES]
