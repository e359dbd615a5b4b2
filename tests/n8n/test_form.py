"""Each workflow is one that n8n can take, of its standard nodes alone, and no way through it ends in a send that nobody settles."""

from __future__ import annotations

import re
import uuid
from collections import Counter

import pytest
from flows import ALL, FOLDER, NAMES, Flow

# Of the n8n that `make test-n8n` runs; each node with the number of its outputs, errors not counted.
VERSIONS = {
    "httpRequest": (4.2, 1), "if": (2.2, 2), "manualTrigger": (1, 1), "postgres": (2.6, 1), "respondToWebhook": (1.4, 1),
    "rssFeedRead": (1.2, 1), "scheduleTrigger": (1.2, 1), "set": (3.4, 1), "splitInBatches": (3, 2), "stickyNote": (1, 0),
    "stopAndError": (1, 0), "switch": (3.2, 3), "webhook": (2, 1),
}  # fmt: skip
TRIGGERS = {"manualTrigger", "scheduleTrigger", "webhook"}
CREDENTIALS = {"postgres": "Vestnik PostgreSQL", "httpHeaderAuth": "Vestnik API"}

each = pytest.mark.parametrize("flow", ALL, ids=NAMES)


def kind(node: dict[str, object]) -> str:
    return str(node["type"]).removeprefix("n8n-nodes-base.")


def test_these_and_no_others_are_there() -> None:
    assert sorted(file.stem for file in FOLDER.iterdir()) == sorted(NAMES)


@each
def test_it_has_what_an_import_needs(flow: Flow) -> None:
    assert flow.document["name"] == flow.name
    assert re.fullmatch(r"[A-Za-z0-9]{1,21}", flow.document["id"])
    assert flow.document["active"] is False  # who imports it switches it on
    assert flow.document["settings"]["executionOrder"] == "v1"
    assert flow.document["pinData"] == {}


@each
def test_its_nodes_are_standard_ones_and_each_is_itself(flow: Flow) -> None:
    assert {kind(node) for node in flow.nodes} <= VERSIONS.keys()
    for node in flow.nodes:
        assert node["typeVersion"] == VERSIONS[kind(node)][0], node["name"]
        assert uuid.UUID(node["id"])
        assert [type(each) for each in node["position"]] == [int, int]
    for name in ("id", "name"):
        assert max(Counter(node[name] for node in flow.nodes).values()) == 1
    assert max(Counter(tuple(node["position"]) for node in flow.nodes).values()) == 1


@each
def test_every_line_leads_from_an_output_that_is_there_to_a_node_that_is_there(flow: Flow) -> None:
    outputs = {node["name"]: VERSIONS[kind(node)][1] + _more(node) for node in flow.nodes}
    for start, place, end in flow.lines:
        assert end in outputs
        assert place < outputs[start], (start, place)
    for start, ends in flow.document["connections"].items():
        assert {(end["type"], end["index"]) for out in ends["main"] for end in out} == {("main", 0)}, start


def _more(node: dict[str, object]) -> int:
    parameters = node["parameters"]
    assert isinstance(parameters, dict)
    fallback = parameters.get("options", {}).get("fallbackOutput") == "extra"
    return fallback + (node.get("onError") == "continueErrorOutput")


@each
def test_every_node_is_reached_from_a_trigger(flow: Flow) -> None:
    reached = {node["name"] for node in flow.nodes if kind(node) in TRIGGERS}
    assert any(kind(node) == "manualTrigger" for node in flow.nodes)  # `n8n execute` and a person's test need one
    for _ in flow.nodes:
        reached |= {end for start, _, end in flow.lines if start in reached}
    assert {node["name"] for node in flow.nodes if kind(node) != "stickyNote"} == reached


@each
def test_every_error_goes_somewhere(flow: Flow) -> None:
    led = {(start, place) for start, place, _ in flow.lines}
    for node in flow.nodes:
        if node.get("onError") == "continueErrorOutput":
            assert (node["name"], VERSIONS[kind(node)][1]) in led, node["name"]
            # Where there are no rows, it would invent one beside the error.
            assert not node.get("alwaysOutputData"), node["name"]


@each
def test_credentials_are_named_and_none_is_in_it(flow: Flow) -> None:
    named = [(of, one["name"]) for node in flow.nodes for of, one in node.get("credentials", {}).items()]
    assert set(named) <= CREDENTIALS.items()
    for node in flow.nodes:
        assert ("postgres" in node.get("credentials", {})) == (kind(node) == "postgres")
        assert ("httpHeaderAuth" in node.get("credentials", {})) == (kind(node) == "httpRequest")


@each
def test_no_query_is_put_together_from_what_came_in(flow: Flow) -> None:
    for node in flow.of_type("postgres"):
        query, options = node["parameters"]["query"], node["parameters"]["options"]
        assert "{{" not in query
        assert not query.startswith("="), node["name"]  # an expression
        given = options.get("queryReplacement")
        assert ("$1" in query) == (given is not None)
        # An expression that is a list: a text would be cut at its commas.
        assert given is None or re.fullmatch(r"=\{\{ \[.*\] \}\}", given, re.DOTALL), node["name"]


@each
def test_the_sql_reads_and_calls_functions_and_writes_nothing_itself(flow: Flow) -> None:
    for node in flow.of_type("postgres"):
        words = set(re.findall(r"[a-z]+", node["parameters"]["query"].lower()))
        assert not words & {"insert", "update", "delete", "merge", "truncate", "alter", "drop"}, node["name"]


def test_whatever_becomes_of_a_send_is_settled_with_its_lease() -> None:
    flow = ALL[1]
    ends = {place: end for start, place, end in flow.lines if start == "What came of it?"}
    assert ends == {0: "Mark sent", 1: "Schedule retry", 2: "Fail permanently", 3: "Retry: no answer"}
    assert ("Send", 1, "Retry: no answer") in list(flow.lines)
    for end in ends.values():
        node = flow.node(end)
        assert "$('Begin').item.json.lease" in node["parameters"]["options"]["queryReplacement"]
        assert (node["retryOnFail"], node["parameters"]["options"]["queryBatching"]) == (True, "independently")


def test_every_way_of_the_webhook_ends_in_one_answer() -> None:
    flow = ALL[0]
    answers = {node["name"] for node in flow.of_type("respondToWebhook")}
    statuses = {node["parameters"]["options"]["responseCode"] for node in flow.of_type("respondToWebhook")}
    assert statuses == {200, 202, 401, 413, 422, 429, 503}
    waiting = ["Push"]
    while waiting:
        name = waiting.pop()
        after = [end for start, _, end in flow.lines if start == name]
        assert bool(after) != (name in answers), name
        waiting += after
