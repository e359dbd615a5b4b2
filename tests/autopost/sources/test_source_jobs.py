"""Sources are read by jobs, each at its own times; one that is switched off, gone or broken is nobody else's trouble."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from crowd import until
from sources_rig import Site, Sources, item_texts, numbered
from structlog.testing import capture_logs

from vestnik.autopost.apply import apply
from vestnik.autopost.declaration import read_declaration
from vestnik.autopost.sources import verbs
from vestnik.autopost.sources.schedule import unique_key
from vestnik.db.pool import Pool, call
from vestnik.errors import ConfigError, NotFound
from vestnik.ops.jobs.registry import kinds
from vestnik.ops.jobs.runner import Runner
from vestnik.ops.jobs.scheduler import Scheduler
from vestnik.ops.jobs.verbs import enqueue
from vestnik.ops.secrets.box import SecretBox
from vestnik.ops.secrets.credentials import Credentials

Row = dict[str, Any]
Declare = Callable[..., Awaitable[list[str]]]


@pytest.fixture
async def own(autopost: Any, pool: Pool, site: Site) -> AsyncIterator[Sources]:
    """The same as ``sources``, in a database of its own: runners and schedulers look at all workspaces."""
    await autopost.channel()
    sources = Sources(autopost, pool, site)
    yield sources
    await sources.downloader.close()


@pytest.fixture
def declare(own: Sources, tmp_path: Path) -> Declare:
    """Apply a declaration of these sources; what has changed."""
    credentials = Credentials(own.pool, SecretBox.open(tmp_path, None))

    async def declare(*declared: Row, **workspace: Any) -> list[str]:
        document = {"workspaces": [{"id": own.id, "sources": list(declared)} | workspace]}
        return [change.what for change in (await apply(own.pool, credentials, read_declaration(document))).changes]

    return declare


def feed(site: Site, source_id: str, path: str, **more: Any) -> Row:
    config = {"url": site.url + path, "link": "none"} | more.pop("config", {})
    return {"id": source_id, "kind": "rss", "config": config, "backlog": "all"} | more


@asynccontextmanager
async def running(own: Sources, url: str) -> AsyncIterator[None]:
    """The jobs role of the service."""
    runner, scheduler = Runner(url, own.pool, kinds([own.puller.kind()]), poll=0.02), Scheduler(own.pool)
    tasks = [asyncio.create_task(runner.run()), asyncio.create_task(scheduler.run())]
    try:
        yield
    finally:
        runner.stop()
        scheduler.stop()
        await asyncio.gather(*tasks)


async def schedules(own: Sources) -> dict[str, Row]:
    return {row["schedule_id"]: row for row in await call(own.pool, "select * from ops.schedules")}


async def test_a_declared_source_is_read_at_once_and_then_by_its_schedule(
    own: Sources, declare: Declare, site: Site, database: str
) -> None:
    site.put("/a", numbered(1))
    assert "source w/a" in await declare(feed(site, "a", "/a", every="15m"))
    async with running(own, database):
        await until(own.pool, "select 1 from autopost.ingest_runs where finished_at is not null")
        assert await own.texts() == item_texts(1)
        site.put("/a", numbered(1, 2))
        await own.sql("update ops.schedules set next_at = now() - interval '1 hour'")
        await until(own.pool, "select 1 from autopost.deliveries having count(*) = 2")
    (schedule,) = (await schedules(own)).values()
    assert (schedule["kind"], schedule["overlap"], schedule["missed"]) == ("source.pull", False, "once")
    assert schedule["every"].total_seconds() == 900
    jobs = await call(own.pool, "select status from ops.jobs")
    assert [job["status"] for job in jobs] == ["done", "done"], "the ticks that were missed are one run"


async def test_what_is_declared_again_changes_only_what_is_different(
    own: Sources, declare: Declare, site: Site
) -> None:
    await declare(feed(site, "a", "/a"), feed(site, "b", "/b", cron="0 9 * * *", timezone="Europe/Moscow"))
    before = await schedules(own)
    assert await declare(feed(site, "a", "/a"), feed(site, "b", "/b", cron="0 9 * * *", timezone="Europe/Moscow")) == []
    assert {name: row["next_at"] for name, row in (await schedules(own)).items()} == {
        name: row["next_at"] for name, row in before.items()
    }
    assert len(await call(own.pool, "select 1 from ops.jobs")) == 2
    assert await declare(feed(site, "a", "/a", every="1h")) == ["source w/a"]
    assert await declare(feed(site, "b", "/b", enabled=False)) == ["source w/b"]
    after = await schedules(own)
    assert (after["source:a"]["every"].total_seconds(), after["source:b"]["enabled"]) == (3600, False)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"every": "1s"}, "must be greater than or equal to 10 s"),
        ({"every": "often"}, "every: not a duration; write it like 30s, 15m, 2h or 1d"),
        ({"cron": "often"}, "'often' is no cron expression"),
        ({"cron": "0 9 * * *", "every": "1h"}, "either every or cron, not both"),
        ({"timezone": "Mars/Olympus"}, "there is no time zone"),
        ({"kind": "ftp"}, "'rss', 'api' or 'db'"),
        ({"config": {"url": "nowhere"}}, "workspaces.w.sources.bad: url: must be an http or https address"),
        ({"config": {"text": "{headline}"}}, "there is no field 'headline'"),
        ({"id": "with space"}, "id: String should match pattern"),
        ({"backlog": -1}, "backlog"),
    ],
)
async def test_a_wrong_declaration_is_refused_whole(
    own: Sources, declare: Declare, site: Site, wrong: Row, said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        await declare(
            feed(site, "good", "/a"), feed(site, "bad", "/b") | wrong
        ) if "config" not in wrong else await declare(feed(site, "bad", "/b", **wrong))
    assert said in str(refused.value)
    assert await own.sql("select 1 from autopost.pull_sources") == []


async def test_a_broken_source_does_not_stop_the_others(
    own: Sources, declare: Declare, site: Site, database: str
) -> None:
    site.put("/a", numbered(1))
    site.put("/b", "<html></html>")
    site.put("/c", numbered(2))
    await declare(*(feed(site, name, f"/{name}") for name in "abc"))
    async with running(own, database):
        await until(own.pool, "select 1 from ops.jobs where status in ('done', 'dead') having count(*) = 3")
    assert sorted(await own.texts()) == item_texts(1, 2)
    (dead,) = await own.sql("select payload, last_error from ops.jobs where status = 'dead'")
    assert dead["payload"] == {"source_id": "b"}
    assert (dead["last_error"]["code"], dead["last_error"]["message"]) == (
        "not_a_feed",
        "the answer is a web page, not a feed",
    )
    listed = {row["source_id"]: row for row in await verbs.list_sources(own.pool)}
    assert [listed[name]["failures"] for name in "abc"] == [0, 1, 0]


async def test_a_source_that_was_switched_off_or_removed_is_not_read(
    own: Sources, declare: Declare, site: Site, database: str
) -> None:
    site.put("/a", numbered(1))
    await declare(feed(site, "off", "/a"), feed(site, "gone", "/a"))
    await declare(feed(site, "off", "/a", enabled=False))
    await verbs.remove_source(own.pool, own.id, "gone")
    async with running(own, database):
        await until(own.pool, "select 1 from ops.jobs where status = 'done' having count(*) = 2")
    said = await own.sql("select stats ->> 'reason' as reason from ops.job_runs order by 1")
    assert [row["reason"] for row in said] == ["no source gone in workspace w", "the source off is disabled"]
    assert (site.asked, await own.texts(), list(await schedules(own))) == ([], [], ["source:off"])
    with pytest.raises(NotFound, match="no source gone"):
        await verbs.remove_source(own.pool, own.id, "gone")


async def test_a_source_has_one_job_at_a_time_whoever_asks(own: Sources, declare: Declare, site: Site) -> None:
    await declare(feed(site, "a", "/a"))
    first = await verbs.run_soon(own.pool, own.id, "a")
    assert await verbs.run_soon(own.pool, own.id, "a") == first
    await own.sql("update ops.schedules set next_at = now() - interval '1 minute'")
    job = await enqueue(own.pool, own.id, "source.pull", {"source_id": "a"}, unique_key=unique_key("a"))
    assert (job.job_id, job.is_new) == (first, False)
    with pytest.raises(NotFound):
        await verbs.run_soon(own.pool, own.id, "nowhere")


async def test_a_workspace_that_is_switched_off_has_its_sources_left_alone(
    own: Sources, declare: Declare, site: Site, database: str
) -> None:
    site.put("/a", numbered(1))
    await declare(feed(site, "a", "/a"))
    await own.sql("update core.workspaces set status = 'disabled'")
    with pytest.raises(NotFound, match="disabled"):
        await own.pull("a")
    assert (site.asked, await own.runs("a")) == ([], [])


async def test_a_run_that_is_told_to_stop_ends_between_two_pages_and_the_next_goes_on(sources: Sources) -> None:
    await sources.feed(numbered(*range(1200)))
    stats = await sources.puller.pull(sources.id, "s", stop=lambda: True)
    assert stats["taken"] == 500
    await sources.pull()
    assert await sources.texts() == item_texts(*range(1200))


async def test_a_run_that_is_cut_off_says_so(sources: Sources, site: Site) -> None:
    asked = asyncio.Event()

    async def never(request: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    site.serve("/feed", never)
    await sources.feed()
    run = asyncio.create_task(sources.pull())
    await asked.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    (row,) = await sources.runs()
    assert (row["stats_json"]["outcome"], row["stats_json"]["error"]["code"]) == ("failed", "cancelled")


async def test_an_item_that_the_database_refuses_does_not_stop_the_page(own: Sources) -> None:
    """Whatever the reason may be: here a rule that somebody has added to the table."""
    await own.sql(
        "create function public.refuse() returns trigger language plpgsql as"
        " $$ begin raise exception 'no sevens here' using errcode = '22000'; end $$"
    )
    await own.sql(
        "create trigger no_sevens before insert on autopost.messages for each row"
        " when (new.payload ->> 'text' like '%%7%%') execute function public.refuse()"
    )
    await own.feed(numbered(*range(1, 21)))
    stats = await own.pull()
    assert await own.texts() == item_texts(*(n for n in range(1, 21) if n not in (7, 17)))
    assert (stats["read"], stats["taken"], stats["invalid"]) == (20, 18, 2)
    assert [(r["key"], r["reason"]) for r in stats["reasons"]] == [
        ("n7", "it cannot be stored: no sevens here"),
        ("n17", "it cannot be stored: no sevens here"),
    ]
    await own.feed(numbered(*range(1, 23)))
    assert (await own.pull())["new"] == 2


async def test_a_source_that_fails_again_and_again_is_told_to_the_log_when_there_is_news(
    own: Sources, declare: Declare, site: Site, database: str
) -> None:
    page, feed_of_one = ("<html></html>", 200), (numbered(1), 200)
    site.put("/a", *page)
    await declare(feed(site, "a", "/a"))
    with capture_logs() as lines:
        async with running(own, database):
            await until(own.pool, _RUN_OVER % 1)
            for runs, answer in enumerate([page, page, ("", 404), feed_of_one, page], 2):
                site.put("/a", *answer)
                await verbs.run_soon(own.pool, own.id, "a")
                await until(own.pool, _RUN_OVER % runs)
    told = [(line["event"], line.get("source_id"), line.get("code")) for line in lines if line["log_level"] != "info"]
    assert told == [("source.failed", "a", code) for code in ("not_a_feed", "http_404", "not_a_feed")]


_RUN_OVER = """
select 1 from ops.jobs where status in ('done', 'dead') having count(*) >= %s
"""
