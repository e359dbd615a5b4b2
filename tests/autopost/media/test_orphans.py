"""Deliveries that wait for a fetch which will never come are found: asked for again, or failed with a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from vestnik.autopost.housekeeping import sweep
from vestnik.db.pool import Pool

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16
POST = {"text": "Look", "media": [{"type": "image", "url": "https://example.org/a.png"}]}


async def jobs(workspace: Autopost) -> list[Any]:
    rows = await workspace.sql("select status from ops.jobs where workspace_id = %s", workspace.workspace)
    return sorted(row["status"] for row in rows)


async def swept(workspace: Autopost) -> int:
    found: int = await workspace.value("select autopost.sweep_media(%s, 500, %s)", workspace.workspace, workspace.now)
    return found


@pytest.fixture
async def waiting(workspace: Autopost) -> Autopost:
    await workspace.channel("c1")
    await workspace.channel("c2")
    assert (await workspace.push(POST))["media_pending"] == 2
    return workspace


async def test_what_is_under_way_is_left_alone(waiting: Autopost) -> None:
    for status in ("waiting", "retry", "running"):
        await waiting.sql("update ops.jobs set status = %s where workspace_id = %s", status, waiting.workspace)
        assert await swept(waiting) == 0
    assert await waiting.statuses() == {"queued": 2}


async def test_without_any_job_the_fetch_is_asked_for_again_once(waiting: Autopost) -> None:
    await waiting.sql("delete from ops.jobs where workspace_id = %s", waiting.workspace)
    assert await swept(waiting) == 1
    assert await swept(waiting) == 0
    assert await jobs(waiting) == ["waiting"]


async def test_a_job_that_is_done_although_they_wait_is_followed_by_another(waiting: Autopost) -> None:
    await waiting.sql("update ops.jobs set status = 'done' where workspace_id = %s", waiting.workspace)
    await swept(waiting)
    assert await jobs(waiting) == ["done", "waiting"]


async def test_a_job_that_somebody_cancelled_fails_them_with_a_reason(waiting: Autopost) -> None:
    job = await waiting.value("select job_id from ops.jobs where workspace_id = %s", waiting.workspace)
    await waiting.sql("select ops.cancel_job(%s, %s, %s)", waiting.workspace, job, waiting.now)
    assert await swept(waiting) == 2
    (reason,) = {(d["status"], d["last_error"]["code"], d["last_error"]["message"]) for d in await waiting.deliveries()}
    assert reason == ("failed_permanent", "media_missing_origin", "the fetch of the media was given up")
    assert len(await waiting.events("failed_permanent")) == 2
    assert await swept(waiting) == 0


async def test_a_job_that_died_fails_them_with_its_own_reason(waiting: Autopost) -> None:
    await waiting.sql(
        """update ops.jobs set status = 'dead', last_error = '{"message": "killed too often"}' where workspace_id = %s""",
        waiting.workspace,
    )
    assert await swept(waiting) == 2
    assert {d["last_error"]["message"] for d in await waiting.deliveries()} == {
        "the media could not be fetched: killed too often"
    }
    # The same post once more: another fetch, for somebody may have put the address right.
    assert (await waiting.push(POST))["media_pending"] == 2
    assert await jobs(waiting) == ["dead", "waiting"]


async def test_the_dispatchers_sweep_finds_them(autopost: Autopost, pool: Pool) -> None:
    await autopost.channel()
    await autopost.push(POST)
    await autopost.sql("delete from ops.jobs")
    await sweep(pool)
    assert await jobs(autopost) == ["waiting"]
