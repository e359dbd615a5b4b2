"""The dashboard and the rules of the docs ask only for what the service tells."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from vestnik.autopost.backlog import Backlog
from vestnik.telemetry.exposition import Exposition
from vestnik.telemetry.instruments import COUNTERS, HISTOGRAMS

DOCS = Path(__file__).parents[2] / "docs"
OURS = re.compile(r"\b(?:vestnik|process|python)_[a-z_]+\b")
MATCHED = re.compile(r"\b((?:vestnik|process)_[a-z_]+)\{([^}]*)\}")
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}


class APool:
    def get_stats(self) -> dict[str, int]:
        return {}


@pytest.fixture(scope="session")
def told() -> set[str]:
    """Every name that a scrape can hold."""
    found = Backlog(pool=None)._shown()  # type: ignore[arg-type]
    page = Exposition({"work": APool()}).page(found).decode()
    families = text_string_to_metric_families(page)
    return {f"{each.name}{suffix}" for each in families for suffix in SUFFIXES.get(each.type, ("",))}


def dashboard() -> dict[str, Any]:
    read: dict[str, Any] = json.loads((DOCS / "grafana/vestnik.json").read_text())
    return read


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DOCS / "prometheus/rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def questions() -> Iterator[tuple[str, str]]:
    board = dashboard()
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"]
    for rule in rules():
        yield rule["alert"], rule["expr"]


def test_every_metric_that_is_asked_for_exists(told: set[str]) -> None:
    for title, question in questions():
        names = set(OURS.findall(question))
        assert names or title == "VestnikDown", title
        assert names <= told, f"{title} asks for {sorted(names - told)}"


def test_every_metric_of_ours_is_on_the_dashboard(told: set[str]) -> None:
    asked = {name for _, question in questions() for name in OURS.findall(question)}
    left_out = {
        name for name in told if name.startswith("vestnik_") and not name.endswith(("_sum", "_count", "_created"))
    }
    left_out -= asked | {"vestnik_scrape_database_age_seconds", "vestnik_pool_connections_lost_total"}
    assert left_out == set()


def test_labels_are_those_of_the_metric() -> None:
    known = {f"{each.name}_total": set(each.labels) for each in COUNTERS}
    known |= {f"{each.name}{suffix}": set(each.labels) for each in HISTOGRAMS for suffix in SUFFIXES["histogram"]}
    for title, question in questions():
        for name, matchers in MATCHED.findall(question):
            labels = set(re.findall(r"(\w+)\s*[=!]", matchers)) - {"job", "instance"}
            assert labels <= known.get(name, labels), f"{title}: {name} has no {labels - known[name]}"


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    board = dashboard()
    panels = board["panels"]
    assert board["uid"] == "vestnik" and board["schemaVersion"] >= 39
    assert len({panel["id"] for panel in panels}) == len(panels)
    for one, other in combinations((panel["gridPos"] for panel in panels), 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert beside or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"], (one, other)
    for panel in panels:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        assert panel["type"] == "row" or panel["datasource"]["uid"] == "${datasource}"
    balanced = [q for _, q in questions() if any(q.count(a) != q.count(b) for a, b in ("()", "{}", "[]"))]
    assert balanced == []


def test_every_rule_says_what_is_wrong_and_what_to_do() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"] and rule["annotations"]["fix"], rule["alert"]
    scrape = yaml.safe_load((DOCS / "prometheus/scrape.yml").read_text())
    assert scrape["scrape_configs"][0]["job_name"] == "vestnik" and scrape["rule_files"] == ["rules.yml"]
    assert (DOCS / "prometheus" / scrape["rule_files"][0]).exists()
