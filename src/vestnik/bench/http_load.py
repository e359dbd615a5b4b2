"""A process of its own that pushes over some connections, each as fast as it is answered, for some seconds.

``python -m vestnik.bench.http_load`` takes the order as JSON on its standard input and prints what it measured.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass
from itertools import count

import uvloop

from vestnik.bench.ground import BenchError
from vestnik.bench.http_client import connect, push_request
from vestnik.bench.workload import post


@dataclass(frozen=True)
class Order:
    url: str
    secret: str
    tag: str
    connections: int
    seconds: float
    warm_up: float


@dataclass(frozen=True)
class Load:
    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float

    @property
    def per_s(self) -> float:
        return self.requests / self.seconds


async def push_hard(order: Order) -> Load:
    """The same, from the process that wants to know."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(order.seconds + order.warm_up + 60):
            output, _ = await process.communicate(json.dumps(asdict(order)).encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise BenchError("the process that pushes has failed; what it said is above")
    return Load(**json.loads(output))


async def _push(order: Order) -> Load:
    numbers = count()
    counting_from = time.perf_counter() + order.warm_up
    ends = counting_from + order.seconds
    latencies: list[float] = []
    await asyncio.gather(*(_one(order, numbers, counting_from, ends, latencies) for _ in range(order.connections)))
    latencies.sort()
    if not latencies:
        raise BenchError("nothing was answered in time")
    return Load(len(latencies), order.seconds, percentile(latencies, 0.5) * 1000, percentile(latencies, 0.99) * 1000)


async def _one(order: Order, numbers: count[int], counting_from: float, ends: float, latencies: list[float]) -> None:
    connection = await connect(order.url)
    try:
        while (began := time.perf_counter()) < ends:
            payload = {"text": post(f"{order.tag} {next(numbers)}"), "tags": [order.tag]}
            answer = await connection.ask(push_request(order.secret, payload))
            now = time.perf_counter()
            if answer.status != 202:
                raise BenchError(f"answer {answer.status}: {answer.body[:300].decode(errors='replace')}")
            if counting_from <= now < ends:
                latencies.append(now - began)
    finally:
        connection.close()


def percentile(ordered: list[float], share: float) -> float:
    """The smallest value that so large a share of all does not exceed."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


if __name__ == "__main__":
    print(json.dumps(asdict(uvloop.run(_push(Order(**json.loads(sys.stdin.read())))))))
