"""A wrong clock removes nothing: what it took would not come back."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from vestnik.autopost.retention import rules
from vestnik.db.pool import Pool, call
from vestnik.ops.retention import run
from vestnik.storage import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Autopost

pytestmark = pytest.mark.pg16
HOUR, DAY, YEAR = timedelta(hours=1), timedelta(days=1), timedelta(days=365)
NOON = datetime.fromisoformat("2026-11-19 12:00:00+00:00")


async def believed(workspace: Autopost, *moments: datetime) -> list[bool]:
    """Of a clock of its own, asked at each of these moments."""
    told = [await workspace.value("select ops.believed_now(%s, %s)", workspace.workspace, moment) for moment in moments]
    assert all(each in (None, moment) for each, moment in zip(told, moments, strict=True))
    return [each is not None for each in told]


async def alerts(workspace: Autopost) -> list[str]:
    rows = await workspace.sql(
        "select alert from ops.alerts where workspace_id = %s and cleared_at is null", workspace.workspace
    )
    return [row["alert"] for row in rows]


def hours(start: datetime, count: int) -> Iterable[datetime]:
    return (start + n * HOUR for n in range(count))


async def test_a_clock_that_goes_is_believed(workspace: Autopost) -> None:
    assert all(await believed(workspace, *hours(NOON, 5), NOON + 5 * HOUR + 2 * DAY - HOUR))
    assert await alerts(workspace) == []


async def test_one_that_is_wrong_for_a_moment_is_not_and_somebody_is_told(workspace: Autopost) -> None:
    assert await believed(workspace, NOON, NOON + YEAR) == [True, False]
    assert await alerts(workspace) == ["clock"]
    assert await believed(workspace, NOON + HOUR) == [True]
    assert await alerts(workspace) == []
    # Wrong again, a day after it was wrong first: no day of it has passed.
    assert await believed(workspace, NOON + YEAR + DAY) == [False]


async def test_one_that_stays_as_it_is_for_a_day_is_believed_again(workspace: Autopost) -> None:
    later = NOON + 30 * DAY
    assert await believed(workspace, NOON, *hours(later, 25)) == [True, *[False] * 24, True]
    assert await alerts(workspace) == []
    assert await believed(workspace, later + 2 * DAY) == [True]


async def test_a_day_in_which_nobody_asked_or_it_jumped_again_does_not_count(workspace: Autopost) -> None:
    odd = [NOON + YEAR, NOON + YEAR + 3 * DAY, NOON + 3 * YEAR, NOON + 2 * YEAR]
    assert await believed(workspace, NOON, *odd) == [True, False, False, False, False]
    assert await believed(workspace, *hours(NOON + 2 * YEAR + HOUR, 24)) == [False] * 23 + [True]


async def test_set_back_it_is_believed_and_its_return_is_a_jump(workspace: Autopost) -> None:
    assert await believed(workspace, NOON, NOON - YEAR, NOON) == [True, True, False]


async def test_a_run_by_the_clock_of_the_database_removes_nothing_after_a_jump(
    autopost: Autopost, pool: Pool, tmp_path: Path
) -> None:
    """Seen from where the clock was last believed, the database's own time is the jump."""
    all_rules = rules(open_store(tmp_path.as_uri()))
    await autopost.sql(
        "select autopost.enqueue_messages_and_deliveries('w', null, 'webhook_push', '{\"text\": \"x\"}',"
        " now() - interval '100 days')"
    )
    await call(pool, "insert into ops.clock_checks (workspace_id, believed_at) values ('*', now() - interval '3 days')")
    assert await run(pool, all_rules, actor="me") == {"removed": {}, "more": False, "held": "clock"}
    assert await autopost.value("select count(*) from autopost.messages") == 1
    assert await call(pool, "select alert from ops.alerts where workspace_id = '*'") == [{"alert": "clock"}]
    await call(pool, "update ops.clock_checks set believed_at = now() - interval '1 day'")
    assert (await run(pool, all_rules))["removed"] == {"messages": 1, "ingest_runs": 1}


async def test_a_clock_that_jumps_while_a_run_is_under_way_takes_nothing_more(autopost: Autopost, pool: Pool) -> None:
    """Every page is of the moment at which the run began."""

    class Watcher:
        name, about, for_service = "watched", "", True
        moments: list[datetime | None]

        def __init__(self) -> None:
            self.moments = []

        async def remove(self, turn: object) -> int:
            self.moments.append(turn.now)  # type: ignore[attr-defined]
            return 0

        async def look(self, turn: object) -> object:
            raise NotImplementedError

    watcher = Watcher()
    await run(pool, [watcher])  # type: ignore[list-item]
    assert len(watcher.moments) == 2
    assert all(a == b is not None for a, b in pairwise(watcher.moments))
    assert watcher.moments[0] is not None
