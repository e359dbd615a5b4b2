"""Counters and histograms, and the page that is made of them."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from vestnik.telemetry import instruments, meters
from vestnik.telemetry.exposition import Exposition
from vestnik.telemetry.meters import Bounded, Counter, Histogram


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Instruments are of the process; what other tests moved is none of these."""
    for each in (*instruments.COUNTERS, *instruments.HISTOGRAMS):
        monkeypatch.setattr(each, "values", {})
    yield


class APool:
    def get_stats(self) -> dict[str, int]:
        return {"pool_size": 5, "pool_available": 2, "pool_max": 16, "requests_waiting": 1, "requests_wait_ms": 1500}


def samples(page: bytes) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def of(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


def test_a_counter_adds_up_by_its_labels() -> None:
    counter = Counter("vestnik_x", "X.", ("workspace", "result"))
    counter.add("a", "sent")
    counter.add("a", "sent", by=2)
    counter.add("b", "sent")
    assert counter.values == {("a", "sent"): 3.0, ("b", "sent"): 1.0}


def test_a_bucket_holds_what_is_not_above_its_bound() -> None:
    histogram = Histogram("vestnik_x_seconds", "X.", bounds=(0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 1.0, 7.0):
        histogram.observe(value)
    assert histogram.values[()] == [2, 2, 1, pytest.approx(8.65)]


def test_names_beyond_the_bound_are_one() -> None:
    bounded = Bounded(2)
    assert [bounded(name) for name in ("a", "b", "c", "a", "d")] == ["a", "b", "other", "a", "other"]
    assert Bounded(0)("a") == meters.OTHER


def test_the_page_is_read_back_as_it_was_counted() -> None:
    instruments.sends.add("shop", "telegram", "sent", by=3)
    for value in (0.003, 0.2, 99.0):
        instruments.push_seconds.observe(value, "accepted")
    found = samples(Exposition({"work": APool()}).page())
    assert found[of("vestnik_sends_total", workspace="shop", platform="telegram", result="sent")] == 3
    assert found[of("vestnik_push_seconds_bucket", outcome="accepted", le="0.005")] == 1
    assert found[of("vestnik_push_seconds_bucket", outcome="accepted", le="30.0")] == 2
    assert found[of("vestnik_push_seconds_bucket", outcome="accepted", le="+Inf")] == 3
    assert found[of("vestnik_push_seconds_count", outcome="accepted")] == 3
    assert found[of("vestnik_push_seconds_sum", outcome="accepted")] == pytest.approx(99.203)
    assert found[of("vestnik_pool_connections", pool="work", state="in_use")] == 3
    assert found[of("vestnik_pool_wait_seconds_total", pool="work")] == 1.5
    assert found[of("process_open_fds")] > 0


def test_names_follow_the_conventions() -> None:
    """Our prefix, small letters, a unit where there is one, and words that say what it is."""
    instruments.sends.add("a", "b", "c")
    for family in text_string_to_metric_families(Exposition({"work": APool()}).page().decode()):
        if not family.name.startswith("vestnik_"):
            continue
        assert re.fullmatch(r"vestnik_[a-z_]+", family.name) and family.documentation.endswith("."), family
        if family.type == "histogram":
            assert family.name.endswith("_seconds"), family
        if family.type == "counter":
            assert not family.name.endswith("_count"), family
        assert not re.search(r"_(ms|milliseconds|minutes|hours|kb|mb)(_|$)", family.name), family
    for histogram in instruments.HISTOGRAMS:
        assert list(histogram.bounds) == sorted(set(histogram.bounds))
    labels = {label for each in (*instruments.COUNTERS, *instruments.HISTOGRAMS) for label in each.labels}
    assert labels == {"workspace", "platform", "result", "outcome", "reason", "kind", "sweep"}, (
        "no channel, no delivery"
    )


def test_an_id_tells_its_age() -> None:
    made = uuid.UUID(int=(1_800_000_000_000 << 80) | (7 << 76) | (2 << 62) | 5)
    assert instruments.since_made(made, 1_800_000_002.5) == pytest.approx(2.5)
    assert instruments.since_made(made, 1_700_000_000) == 0.0, "a clock that is behind measures nothing"
