"""``latency``: pushes at a steady pace into the service as ``vestnik up`` runs it; how soon does the adapter get them?"""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from vestnik.adapters.registry import GROUP
from vestnik.autopost.verbs import create_endpoint
from vestnik.bench import workload
from vestnik.bench.ground import BenchError, Ground
from vestnik.bench.http_client import Connection, connect, push_request
from vestnik.bench.http_load import percentile
from vestnik.bench.report import Figures
from vestnik.bench.service_process import running
from vestnik.bench.workload import PLATFORM, WORKSPACE, make_channels, make_workspace, post
from vestnik.db.pool import Pool, call, make_pool

AIMS = {"p50_ms": "<= 15", "p99_ms": "<= 80"}
SERVICE = ("vestnik", "run", "api", "dispatcher")
WARM_UP = 20


@dataclass(frozen=True)
class Size:
    pushes_per_s: float = 20.0
    seconds: float = 15.0


TINY = Size(pushes_per_s=40.0, seconds=0.5)


@dataclass(frozen=True)
class _Push:
    text: str
    asked: int
    answered: int


async def run(ground: Ground, size: Size, turn: int) -> Figures:
    async with ground.database("latency") as url, make_pool(url, max_size=1) as pool:
        await make_workspace(pool)
        await make_channels(pool, 1)
        secret = await create_endpoint(pool, WORKSPACE, "bench", rps=size.pushes_per_s * 50)
        with tempfile.TemporaryDirectory(prefix="vestnik-bench-service-") as name:
            folder = Path(name)
            install_adapter(folder)
            async with running(SERVICE, url, folder, import_path=folder) as http_url:
                ground.say(f"{size.pushes_per_s:g} pushes a second for {size.seconds:g} seconds")
                connection = await connect(http_url)
                await _push_steadily(connection, secret, "warm-up", WARM_UP, size.pushes_per_s)
                count = round(size.pushes_per_s * size.seconds)
                pushes = await _push_steadily(connection, secret, "push", count, size.pushes_per_s)
                connection.close()
                called = await _calls(pool, count + WARM_UP)
    return _figures(pushes, called)


def _figures(pushes: list[_Push], called: dict[str, int]) -> Figures:
    """A call may come before the answer, which is then sent to somebody who has his post already: less than nothing."""
    after_answer = sorted((called[push.text] - push.answered) / 1e6 for push in pushes)
    after_asking = sorted((called[push.text] - push.asked) / 1e6 for push in pushes)
    http = sorted((push.answered - push.asked) / 1e6 for push in pushes)
    return {
        "p50_ms": percentile(after_answer, 0.5),
        "p99_ms": percentile(after_answer, 0.99),
        "http_p50_ms": percentile(http, 0.5),
        "http_p99_ms": percentile(http, 0.99),
        "request_to_adapter_p50_ms": percentile(after_asking, 0.5),
        "request_to_adapter_p99_ms": percentile(after_asking, 0.99),
    }


def install_adapter(folder: Path) -> None:
    """The adapter comes in by the door that is there for adapters from outside: an entry point of an installed package."""
    package = folder / "vestnik_bench-0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: vestnik-bench\nVersion: 0\n")
    create = f"{workload.__name__}:{workload.create_adapter.__name__}"
    (package / "entry_points.txt").write_text(f"[{GROUP}]\n{PLATFORM} = {create}\n")


async def _push_steadily(connection: Connection, secret: str, what: str, count: int, per_s: float) -> list[_Push]:
    """Each at its own moment, whether the one before was slow or not; behind time it does not wait."""
    pushes = []
    began = time.monotonic_ns()
    for number in range(count):
        await asyncio.sleep((began + number * 1e9 / per_s - time.monotonic_ns()) / 1e9)
        text = post(f"{what} {number}")
        asked = time.monotonic_ns()
        answer = await connection.ask(push_request(secret, {"text": text}))
        answered = time.monotonic_ns()
        if answer.status != 202:
            raise BenchError(f"answer {answer.status}: {answer.body[:300].decode(errors='replace')}")
        pushes.append(_Push(text, asked, answered))
    return pushes


async def _calls(pool: Pool, count: int) -> dict[str, int]:
    """When the adapter was called for each text: it answers with the moment, and the event log keeps the answer."""
    query = """
        select m.payload ->> 'text' as text, (e.meta #>> '{raw,date}')::bigint as called
        from autopost.events e join autopost.messages m using (workspace_id, message_id) where e.action = 'sent'"""
    for _ in range(200):
        found = await call(pool, query)
        if len(found) >= count:
            return {row["text"]: row["called"] for row in found}
        await asyncio.sleep(0.05)
    raise BenchError(f"of {count} pushes only {len(found)} were sent within ten seconds")
