"""One run goes through the workspaces with every rule, within its bounds; killed or stopped, the next one goes on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from doors import arrive, door

from vestnik.autopost import retention
from vestnik.autopost.housekeeping import sweep
from vestnik.db.pool import Pool
from vestnik.errors import NotFound
from vestnik.ops import retention as machine
from vestnik.ops.jobs.registry import JobContext
from vestnik.ops.retention import Budget, Rule, chosen, run, status
from vestnik.storage import open_store

if TYPE_CHECKING:
    from conftest import Autopost

LONG_AGO = timedelta(days=100)
CHILD = """
import asyncio, sys
from vestnik.autopost import retention
from vestnik.db.pool import make_pool
from vestnik.ops import retention as machine
from vestnik.storage import open_store

machine.PAGE, machine.REST = 20, 5.0

async def main():
    async with make_pool(sys.argv[1], max_size=2) as pool:
        await machine.run(pool, retention.rules(open_store(sys.argv[2])))

asyncio.run(main())
"""


@pytest.fixture
def rules(tmp_path: Path) -> list[Rule]:
    return retention.rules(open_store(tmp_path.as_uri()))


async def history(autopost: Autopost, workspace: str, count: int, *, waiting: int = 0) -> None:
    """So many posts of one delivery each, sent long ago by the server's own clock; and some that wait since then."""
    await autopost.sql(
        """with w as (insert into core.workspaces (workspace_id, name) values (%s, '') on conflict do nothing)
           insert into autopost.channels (workspace_id, channel_id, platform, target_id, auth_ref, rate_group)
           values (%s, 'c', 'telegram', '@c', 'b', 'b')""",
        *[workspace] * 2,
    )
    await autopost.sql(
        """insert into autopost.messages (workspace_id, message_id, content_hash, payload, first_seen_trace_id,
               first_ingest_run_id, last_seen_at, last_ingest_run_id, created_at)
           select %s, id, id, '{"text": "x"}', id, id, at, id, at
           from generate_series(1, %s) n, lateral (select now() - %s + n * interval '1 ms' as at) moment,
                lateral (select core.uuid7(at) as id offset 0) ids""",
        workspace, count + waiting, LONG_AGO,
    )  # fmt: skip
    await autopost.sql(
        """insert into autopost.deliveries (workspace_id, delivery_id, message_id, channel_id, content_hash, status, not_before,
               created_at, updated_at, sent_at)
           select workspace_id, message_id, message_id, 'c', content_hash, case when n > %s then 'sent' else 'queued' end,
                  created_at, created_at, created_at, created_at
           from (select *, row_number() over (order by created_at) as n from autopost.messages where workspace_id = %s) m""",
        waiting, workspace,
    )  # fmt: skip


async def left(autopost: Autopost) -> dict[str, tuple[int, int]]:
    """Of each workspace, how many deliveries and messages there are."""
    rows = await autopost.sql(
        """select workspace_id, (select count(*) from autopost.deliveries d where d.workspace_id = w.workspace_id) as d,
                  (select count(*) from autopost.messages m where m.workspace_id = w.workspace_id) as m
           from core.workspaces w where w.workspace_id <> 'w'"""
    )
    return {row["workspace_id"]: (row["d"], row["m"]) for row in rows}


async def test_one_run_takes_every_workspace_and_every_rule(autopost: Autopost, pool: Pool, rules: list[Rule]) -> None:
    await history(autopost, "a", 1200, waiting=3)
    await history(autopost, "b", 5)
    shown = {(row["workspace_id"], row["rule"]): row for row in await status(pool, rules)}
    assert shown["a", "deliveries"]["going"] == 1200
    assert shown["a", "deliveries"]["keep"] == timedelta(days=90)
    assert shown["b", "messages"]["going"] == 0, "their deliveries are there yet"
    done = await run(pool, rules)
    assert done == {"removed": {"deliveries": 1205, "messages": 1205}, "more": False}
    assert await left(autopost) == {"a": (3, 3), "b": (0, 0)}
    shown = {(row["workspace_id"], row["rule"]): row for row in await status(pool, rules)}
    assert {row["going"] for row in shown.values()} == {0}
    assert (shown["a", "deliveries"]["removed"], shown["b", "messages"]["removed"]) == (1200, 5)


async def test_a_run_keeps_its_bounds_and_the_next_one_begins_with_the_next_workspace(
    autopost: Autopost, pool: Pool, rules: list[Rule], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "PAGE", 50)
    for name in ("a", "b"):
        await history(autopost, name, 300)
    assert await run(pool, rules, budget=Budget(rows=100)) == {"removed": {"deliveries": 100}, "more": True}
    assert await left(autopost) == {"a": (200, 300), "b": (300, 300)}
    await run(pool, rules, budget=Budget(rows=100))
    assert await left(autopost) == {"a": (200, 300), "b": (200, 300)}
    await run(pool, rules, budget=Budget(rows=100))
    assert await left(autopost) == {"a": (100, 300), "b": (200, 300)}
    assert (await run(pool, rules, budget=Budget(seconds=0)))["removed"] == {}
    assert (await run(pool, rules, budget=Budget(told_to_stop=lambda: True)))["removed"] == {}
    assert (await run(pool, rules))["more"] is False
    assert await left(autopost) == {"a": (0, 0), "b": (0, 0)}


async def test_killed_in_the_middle_it_goes_on_where_it_was(
    autopost: Autopost, pool: Pool, rules: list[Rule], database: str, tmp_path: Path
) -> None:
    await history(autopost, "a", 900, waiting=7)
    removed = (
        "select coalesce(sum(removed), 0)::int from ops.retention_progress where rule in ('deliveries', 'messages')"
    )
    for kills in (1, 2, 3):
        before = await autopost.value(removed)
        with (tmp_path / "child.log").open("wb") as log:
            child = subprocess.Popen([sys.executable, "-c", CHILD, database, tmp_path.as_uri()], stdout=log, stderr=log)
        try:
            async with asyncio.timeout(30):
                while await autopost.value(removed) < before + 40 * kills:
                    assert child.poll() is None, (tmp_path / "child.log").read_text()
                    await asyncio.sleep(0.01)
        finally:
            child.kill()
            child.wait()
    assert 0 < await autopost.value("select count(*) from autopost.deliveries where status = 'sent'") < 900
    await run(pool, rules)
    assert await left(autopost) == {"a": (7, 7)}
    assert await autopost.value(removed) == 1800, "each row is counted in the transaction that removed it"


async def test_the_job_of_the_service_does_it(autopost: Autopost, pool: Pool, tmp_path: Path) -> None:
    await history(autopost, "a", 10)
    recurring = {each.kind.name: each for each in retention.recurring_retention(open_store(tmp_path.as_uri()))}
    assert recurring.keys() == {"retention", "media.gc"}
    deadline = asyncio.get_running_loop().time() + 60
    job = JobContext(uuid4(), "*", "retention", {}, 1, None, pool, deadline)
    assert await recurring["retention"].kind.handler(job) == {
        "removed": {"deliveries": 10, "messages": 10},
        "more": False,
    }
    job.told_to_stop = True
    assert await recurring["retention"].kind.handler(job) == {"removed": {}, "more": True}


async def test_expired_receipts_are_no_business_of_the_dispatcher(
    autopost: Autopost, pool: Pool, rules: list[Rule]
) -> None:
    await door(autopost)
    await arrive(autopost, *({"text": f"{n}", "source_ref": f"{n}"} for n in range(3)))
    await sweep(pool)
    later = autopost.now + timedelta(days=3)
    shown = {row["rule"]: row["going"] for row in await status(pool, rules, workspace_id="w", now=later)}
    assert shown["receipts"] == 3
    assert (await run(pool, rules, now=later))["removed"] == {"receipts": 3}


async def test_finished_jobs_go_the_services_own_too(autopost: Autopost, pool: Pool, rules: list[Rule]) -> None:
    for workspace in ("w", "*"):
        await autopost.sql("select ops.enqueue_job(%s, 'k', p_now => %s)", workspace, autopost.now)
        await autopost.sql(
            "select ops.cancel_job(workspace_id, job_id, %s) from ops.jobs where workspace_id = %s",
            autopost.now,
            workspace,
        )
    await autopost.sql("insert into ops.retention (workspace_id, rule, keep) values ('w', 'jobs', '20 days')")
    counted: Counter[int] = Counter()
    for day in (13, 15, 21):
        at = autopost.now + timedelta(days=day)
        going = sum(row["going"] for row in await status(pool, chosen(rules, "jobs"), now=at))
        counted[day] = (await run(pool, rules, now=at))["removed"].get("jobs", 0)
        assert counted[day] == going
    assert counted == {13: 0, 15: 1, 21: 1}


async def test_what_is_not_there_is_refused(autopost: Autopost, pool: Pool, rules: list[Rule]) -> None:
    with pytest.raises(NotFound, match="no workspace nobody"):
        await run(pool, rules, workspace_id="nobody")
    with pytest.raises(NotFound, match="no rule is called 'evnts'"):
        chosen(rules, "evnts")
