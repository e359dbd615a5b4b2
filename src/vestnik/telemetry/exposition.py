"""The page that Prometheus reads: what this process counts, its pools, itself; and what waits in the database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from vestnik import __version__
from vestnik.telemetry.instruments import COUNTERS, HISTOGRAMS
from vestnik.telemetry.meters import Histogram

CONTENT_TYPE = CONTENT_TYPE_LATEST


class CountsConnections(Protocol):
    """A pool of connections."""

    def get_stats(self) -> Mapping[str, int]: ...


class Exposition:
    """One for each process. ``found`` is what the database said last, as families of gauges."""

    def __init__(self, pools: Mapping[str, CountsConnections] | None = None) -> None:
        self._registry = CollectorRegistry()
        self._own = _Own(pools or {})
        self._registry.register(self._own)
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def page(self, found: Iterable[Metric] = ()) -> bytes:
        self._own.found = list(found)
        return generate_latest(self._registry)


class _Own(Collector):
    def __init__(self, pools: Mapping[str, CountsConnections]) -> None:
        self._pools = pools
        self.found: list[Metric] = []

    def collect(self) -> Iterator[Metric]:
        build = GaugeMetricFamily("vestnik_build_info", "Always 1; which release this is.", labels=["version"])
        build.add_metric([__version__], 1)
        yield build
        for counter in COUNTERS:
            family = CounterMetricFamily(counter.name, counter.told, labels=counter.labels)
            for labels, value in counter.values.items():
                family.add_metric(labels, value)
            yield family
        yield from map(_histogram, HISTOGRAMS)
        yield from _pools(self._pools)
        yield from self.found


def _histogram(histogram: Histogram) -> Metric:
    family = HistogramMetricFamily(histogram.name, histogram.told, labels=histogram.labels)
    for labels, values in histogram.values.items():
        reached, buckets = 0.0, []
        for bound, count in zip((*map(str, histogram.bounds), "+Inf"), values, strict=False):
            reached += count
            buckets.append((bound, reached))
        family.add_metric(labels, buckets, values[-1])
    return family


def _pools(pools: Mapping[str, CountsConnections]) -> Iterator[Metric]:
    connections = gauge("vestnik_pool_connections", "Connections to the database.", "pool", "state")
    most = gauge("vestnik_pool_connections_max", "As many as a pool may have.", "pool")
    waiting = gauge("vestnik_pool_waiting", "Who waits for a connection now.", "pool")
    waited = CounterMetricFamily(
        "vestnik_pool_wait_seconds", "Waited for connections, by all together.", labels=["pool"]
    )
    lost = CounterMetricFamily("vestnik_pool_connections_lost", "Connections that were found dead.", labels=["pool"])
    for name, pool in pools.items():
        stats = pool.get_stats()
        idle = stats.get("pool_available", 0)
        connections.add_metric([name, "idle"], idle)
        connections.add_metric([name, "in_use"], max(stats.get("pool_size", 0) - idle, 0))
        most.add_metric([name], stats.get("pool_max", 0))
        waiting.add_metric([name], stats.get("requests_waiting", 0))
        waited.add_metric([name], stats.get("requests_wait_ms", 0) / 1000)
        lost.add_metric([name], stats.get("connections_lost", 0))
    yield from (connections, most, waiting, waited, lost)


def gauge(name: str, told: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, told, labels=list(labels))
