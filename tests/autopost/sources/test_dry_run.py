"""A dry run says what the next run would take and where it would go, and leaves no trace of itself."""

from __future__ import annotations

from typing import Any

import pytest
from sources_rig import Site, Sources, item_texts, numbered, rss

from vestnik.adapters import registry
from vestnik.adapters.contract import AdapterContext
from vestnik.autopost.sources import SourceFailed, verbs
from vestnik.errors import NotFound

Row = dict[str, Any]
TABLES = ("messages", "deliveries", "events", "ingest_runs", "pull_items", "pull_cursors", "media_origin")


async def attempt(sources: Sources, **options: Any) -> Row:
    async def no_secret(workspace_id: str, platform: str, auth_ref: str) -> str:
        raise AssertionError("a plan needs no secret")

    nowhere = "http://127.0.0.1:9"
    adapters = registry.load(AdapterContext(secret=no_secret, base_urls={"telegram": nowhere, "max": nowhere}))
    return await verbs.try_source(sources.puller, adapters, sources.id, "s", **options)


async def rows(sources: Sources) -> dict[str, int]:
    counts = {}
    for table in TABLES:
        query = f"select count(*) as n from autopost.{table} where workspace_id = %s"
        counts[table] = (await sources.sql(query, sources.id))[0]["n"]
    return counts


async def test_it_shows_each_item_with_its_channels_and_the_reasons(sources: Sources) -> None:
    await sources.workspace.channel("sale", route_filter={"include_any": ["sale"]})
    await sources.workspace.channel("text", send_mode="media")
    await sources.feed(rss({"guid": "1", "title": "News", "link": "https://example.org/1"}), link="text", tags=["news"])
    found = await attempt(sources)
    (item,) = found["items"]
    assert (item["key"], item["outcome"], item["matching"]) == ("1", "take", 2)
    assert item["payload"]["links"] == ["https://example.org/1"]
    channels = {channel["channel_id"]: (channel["outcome"], channel["reason"]) for channel in item["channels"]}
    assert channels["c1"] == ("enqueued", None)
    assert channels["sale"][0] == "not_routed" and "wants one of sale" in channels["sale"][1]
    assert channels["text"][0] == "refused" and "media" in channels["text"][1]
    (shown,) = [channel for channel in item["channels"] if channel["channel_id"] == "c1"]
    assert [call["method"] for call in shown["calls"]] == ["sendMessage"]
    assert "News" in shown["calls"][0]["text"]


async def test_it_says_what_the_run_then_does(sources: Sources) -> None:
    await sources.feed(
        rss({"guid": "4", "title": "Ad"}, *({"guid": f"n{n}", "title": f"Item {n}"} for n in (3, 2, 1)), {"guid": "0"}),
        exclude=["ad"],
        backlog=2,
    )
    found = await attempt(sources)
    told = {name: found[name] for name in ("read", "take", "skip", "invalid")}
    stats = await sources.pull()
    assert told == {"read": 5, "take": 2, "skip": 2, "invalid": 1}
    assert told == {
        "read": stats["read"],
        "take": stats["taken"],
        "skip": stats["skipped"],
        "invalid": stats["invalid"],
    }
    assert dict(found["why_skipped"]) == stats["why_skipped"]
    assert [item["key"] for item in found["items"] if item["outcome"] == "take"] == ["n2", "n3"]
    assert await sources.texts() == item_texts(2, 3)


async def test_it_writes_nothing_and_moves_nothing(sources: Sources) -> None:
    await sources.feed(numbered(1, 2), media="all")
    before = await rows(sources)
    await attempt(sources)
    assert await rows(sources) == before
    assert (await sources.pull())["taken"] == 2
    before, at = await rows(sources), await sources.cursor()
    await sources.feed(numbered(1, 2, 3))
    assert (await attempt(sources))["take"] == 1
    assert (await rows(sources), await sources.cursor()) == (before, at)


async def test_after_a_run_it_shows_only_what_is_new_or_all_of_it_when_asked(sources: Sources) -> None:
    await sources.feed(numbered(1, 2), backlog=1)
    await sources.pull()
    assert (await attempt(sources))["unchanged"] is True
    await sources.feed(numbered(1, 2, 3), backlog=1)
    found = await attempt(sources)
    assert ([item["key"] for item in found["items"]], found["seen"]) == (["n3"], 2)
    again = await attempt(sources, from_the_start=True)
    assert ([item["key"] for item in again["items"]], again["skip"]) == (["n3"], 2)


async def test_of_a_long_source_it_shows_a_part_and_says_so(sources: Sources) -> None:
    await sources.feed(numbered(*range(1200)))
    found = await attempt(sources, most=3)
    assert ([item["key"] for item in found["items"]], found["more"]) == (["n0", "n1", "n2"], True)


async def test_it_fails_as_the_run_would_and_leaves_the_source_alone(sources: Sources, site: Site) -> None:
    await sources.feed("<html></html>")
    with pytest.raises(SourceFailed, match="a web page"):
        await attempt(sources)
    assert (await sources.source())["failures"] == 0
    with pytest.raises(NotFound):
        await verbs.try_source(sources.puller, {}, sources.id, "nowhere")


async def test_a_disabled_source_can_be_tried_before_it_is_switched_on(sources: Sources) -> None:
    await sources.declare("rss", {"url": sources.site.put("/feed", numbered(1))}, enabled=False)
    assert (await attempt(sources))["take"] == 1
