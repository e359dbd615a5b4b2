"""The two jobs that look whether it holds together: through all workspaces, and no further than their share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from proving import alert

from vestnik.autopost import proof
from vestnik.db.pool import Pool, call
from vestnik.ops.jobs.registry import JobContext

if TYPE_CHECKING:
    from conftest import Autopost


def context(pool: Pool, seconds: float = 60) -> JobContext:
    until = asyncio.get_running_loop().time() + seconds
    return JobContext(uuid4(), "*", "a job", {}, 1, None, pool, until)


async def run(job: Any, pool: Pool) -> Any:
    return await job.kind.handler(context(pool))


async def history(workspace: Autopost) -> None:
    """By the server's own clock: the jobs ask what time it is."""
    workspace.now = await workspace.value("select now()")
    await workspace.channel()
    await workspace.push("hi")
    (row,) = await workspace.take()
    await workspace.sent(row["delivery_id"], row["lease"])


async def test_both_say_what_they_looked_at_and_found_nothing(autopost: Autopost, pool: Pool) -> None:
    await history(autopost)
    assert await run(proof.proof(), pool) == {
        "workspaces": 1, "unfinished": 0, "rows": 3, "found": {}, "samples": {}, "skipped_seconds": 0,
    }  # fmt: skip
    assert await run(proof.integrity(), pool) == {
        "workspaces": 1, "unfinished": 0, "rows": 4, "found": {}, "samples": {},
    }  # fmt: skip


async def test_what_they_find_is_counted_by_kind_with_samples_and_raises_an_alert(
    autopost: Autopost, pool: Pool
) -> None:
    await history(autopost)
    (row,) = await autopost.deliveries()
    await autopost.sql("update autopost.deliveries set lease = 9 where delivery_id = %s", row["delivery_id"])
    for _ in range(7):
        await autopost.sql(
            "insert into autopost.events (workspace_id, id, delivery_id, ts, action) values ('w', gen_random_uuid(), gen_random_uuid(), %s, 'enqueue')",
            autopost.now,
        )  # fmt: skip
    done = await run(proof.proof(), pool)
    assert (done["found"], done["samples"]) == ({"begins": 1}, {"begins": [str(row["delivery_id"])]})
    done = await run(proof.integrity(), pool)
    assert done["found"] == {"event_without_delivery": 7, "begins": 1}
    assert len(done["samples"]["event_without_delivery"]) == proof.SAMPLES
    assert (await alert(autopost, "autopost.proof"))["details"]["count"] == 1
    assert (await alert(autopost, "autopost.integrity"))["details"]["count"] == 8


async def test_a_run_that_is_told_to_stop_goes_on_the_next_time(autopost: Autopost, pool: Pool) -> None:
    await history(autopost)
    stopped = context(pool)
    stopped.told_to_stop = True
    done = await proof.integrity().kind.handler(stopped)
    assert (done["unfinished"], done["rows"]) == (1, 0)
    assert (await run(proof.integrity(), pool))["unfinished"] == 0


async def test_a_share_ends_a_run_and_the_next_one_ends_the_round(
    autopost: Autopost, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await history(autopost)
    monkeypatch.setattr(proof, "INTEGRITY_SHARE", 3)
    monkeypatch.setattr(proof, "PAGE", 2)
    assert (await run(proof.integrity(), pool))["unfinished"] == 1
    (place,) = await autopost.sql("select place, pass_ended_at from autopost.checks where source = 'integrity'")
    assert (place["place"]["stage"], place["pass_ended_at"]) == (2, None)
    await run(proof.integrity(), pool)
    assert (await autopost.value("select pass_ended_at from autopost.checks where source = 'integrity'")) is not None


async def test_a_trouble_with_one_workspace_is_not_the_others(autopost: Autopost, pool: Pool) -> None:
    """Its rows cannot be read; the other's are looked at, and the one that waited longest comes first."""
    await history(autopost)
    await call(pool, "insert into core.workspaces (workspace_id, name) values ('a', 'before'), ('z', 'behind')")
    await call(
        pool,
        "insert into autopost.checks (workspace_id, source, place) values ('a', 'integrity', '{\"stage\": \"x\"}')",
    )
    done = await run(proof.integrity(), pool)
    assert (done["workspaces"], done["unfinished"], done["rows"]) == (3, 1, 4)
    assert {
        row["workspace_id"]
        for row in await autopost.sql("select * from autopost.checks where pass_ended_at is not null")
    } == {"w", "z"}


def test_they_come_round_by_themselves() -> None:
    assert (proof.proof().every.total_seconds(), proof.integrity().cron) == (600, "20 3 * * *")  # type: ignore[union-attr]
    assert proof.proof().kind.concurrency == proof.integrity().kind.concurrency == 1
