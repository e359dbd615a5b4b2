"""procrastinate beside us: the nearest relative, on the same server, in its own database, at its best."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import psycopg

from vestnik.bench.ground import BenchError, Ground


def require() -> None:
    if find_spec("procrastinate") is None:
        raise BenchError(
            "this benchmark compares with procrastinate, which is not installed", hint="pip install procrastinate"
        )


async def drain(ground: Ground, url: str, jobs: int, concurrency: int) -> float:
    """Jobs of a task that does nothing, per second: from the first one's start to the last one's success, by its own
    log of events, so that neither starting nor stopping the worker counts."""
    import procrastinate

    app = procrastinate.App(
        connector=procrastinate.PsycopgConnector(conninfo=url, min_size=concurrency + 2, max_size=concurrency + 2)
    )
    nothing = app.task(name="nothing")(_nothing)

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        arguments: list[dict[str, Any]] = [{"number": number} for number in range(jobs)]
        await nothing.batch_defer_async(*arguments)
        await ground.settle(url)
        await app.run_worker_async(concurrency=concurrency, wait=False, install_signal_handlers=False)
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        cursor = await connection.execute(_TAKEN)
        succeeded, seconds = await cursor.fetchone() or (0, None)
    if succeeded != jobs:
        raise BenchError(f"procrastinate finished {succeeded} of {jobs} jobs")
    return float(jobs / seconds)


async def _nothing(number: int) -> None:
    pass


_TAKEN = """
select count(*) filter (where type = 'succeeded'),
       extract(epoch from max(at) filter (where type = 'succeeded') - min(at) filter (where type = 'started'))::float8
from procrastinate_events
"""
