"""Which benchmarks there are, and how one is run."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import uvloop

from vestnik.bench import drain, fanout, ingest, jobs, latency, media, pull, soak
from vestnik.bench.ground import Ground, fresh_server
from vestnik.bench.report import Figures, summary
from vestnik.errors import ConfigError, NotFound


@dataclass(frozen=True)
class Benchmark:
    run: Callable[[Ground, Any, int], Awaitable[Figures]]
    full: Any
    tiny: Any
    aims: Mapping[str, str]


BENCHMARKS = {
    "drain": Benchmark(drain.run, drain.Size(), drain.TINY, drain.AIMS),
    "fanout": Benchmark(fanout.run, fanout.Size(), fanout.TINY, fanout.AIMS),
    "ingest": Benchmark(ingest.run, ingest.Size(), ingest.TINY, ingest.AIMS),
    "jobs": Benchmark(jobs.run, jobs.Size(), jobs.TINY, jobs.AIMS),
    "latency": Benchmark(latency.run, latency.Size(), latency.TINY, latency.AIMS),
    "media": Benchmark(media.run, media.Size(), media.TINY, media.AIMS),
    "pull": Benchmark(pull.run, pull.Size(), pull.TINY, pull.AIMS),
    "soak": Benchmark(soak.run, soak.Size(), soak.TINY, soak.AIMS),
}


def measure(
    name: str,
    *,
    runs: int = 1,
    tiny: bool = False,
    minutes: float | None = None,
    version: int = 18,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Runs one benchmark and returns what it prints. Nothing of it is left behind, also when it is interrupted."""
    if name not in BENCHMARKS:
        raise NotFound(f"no benchmark {name!r}", hint=f"there are {', '.join(BENCHMARKS)}")
    benchmark = BENCHMARKS[name]
    size = benchmark.tiny if tiny else benchmark.full
    if minutes is not None:
        if not hasattr(size, "minutes"):
            raise ConfigError(f"{name} ends by itself, not after some minutes")
        size = replace(size, minutes=minutes)
    say("starting a server")
    with _termination_as_interrupt(), fresh_server(version) as server:
        return uvloop.run(_measure(name, benchmark, Ground(server, say), size, runs))


async def _measure(name: str, benchmark: Benchmark, ground: Ground, size: Any, runs: int) -> dict[str, Any]:
    await ground.prepare()
    machine = await ground.machine()
    figures = []
    for turn in range(runs):
        here = Ground(ground.server, lambda what, turn=turn: ground.say(f"run {turn + 1} of {runs}: {what}"))  # type: ignore[misc]
        figures.append(await benchmark.run(here, size, turn))
    return summary(name, figures, benchmark.aims, parameters=asdict(size), machine=machine)


@contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
