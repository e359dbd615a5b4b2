"""A feed that is made to keep whoever reads it busy is given up, with a reason; the next feed is read as ever."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from sources_rig import Sources, item_texts, numbered, rss

from vestnik.autopost.sources import rss as rss_source
from vestnik.autopost.sources.feeds import apart


def with_attributes(count: int) -> str:
    attributes = " ".join(f'a{n}=">"' for n in range(count))
    return rss({"guid": "1", "title": "A"}).partition("?>")[2].replace("<item>", f"<item {attributes}>")


COSTLY = rss({"guid": "1", "author": "a" * 1_000_000 + "@"})  # hours of a pattern that looks for an address


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
async def test_an_element_with_attributes_without_end_is_refused_in_every_encoding(
    sources: Sources, encoding: str
) -> None:
    start = f'<?xml version="1.0" encoding="{encoding}"?>'
    await sources.feed((start + with_attributes(1000)).encode(encoding))
    assert (await sources.pull())["taken"] == 1
    await sources.feed((start + with_attributes(50_000)).encode(encoding))
    error = await sources.fails()
    assert (error.code, error.permanent) == ("too_many_attributes", True)
    assert "has 50000 attributes" in str(error)


async def test_a_feed_that_takes_too_long_is_given_up_and_the_next_run_goes_on(
    sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart, "PATIENCE", 1.0)
    await sources.feed(COSTLY)
    error = await sources.fails()
    assert (error.code, error.permanent, children()) == ("too_costly", False, set())
    assert "takes more than 1 s" in str(error)
    monkeypatch.undo()
    await sources.feed(numbered(*range(200)))
    assert (await sources.pull())["taken"] == 200


async def test_a_run_that_is_cut_off_leaves_nobody_reading(sources: Sources) -> None:
    await sources.feed(COSTLY)
    run = asyncio.ensure_future(sources.pull())
    async with asyncio.timeout(20):
        while not children():
            await asyncio.sleep(0.01)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert children() == set()


async def test_a_feed_that_takes_too_much_memory_is_given_up(sources: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "MEMORY", 400 << 20)
    await sources.feed(rss().replace("</channel>", "<" + "a" * 8_000_000))
    assert (await sources.fails()).code == "too_costly"


@pytest.mark.parametrize("kind", ["xml", "json"])
async def test_a_feed_of_too_many_items_is_refused(
    sources: Sources, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(rss_source, "MOST_ENTRIES", 3)
    items = [{"id": str(n), "title": f"Item {n}"} for n in range(4)]
    await sources.feed(numbered(*range(4)) if kind == "xml" else json.dumps({"version": "1", "items": items}))
    error = await sources.fails()
    assert (error.code, str(error)) == ("too_many_items", "the feed has more than 3 items")
    await sources.feed(numbered(*range(3)), content="title")
    await sources.pull()
    assert await sources.texts() == item_texts(0, 1, 2)


def children() -> set[str]:
    """Readers that this process has started and that still run."""
    found = set()
    for status in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            parent = (status.parent / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == os.getpid() and apart.__name__ in status.read_text():
                found.add(status.parent.name)
        except OSError:  # it ended meanwhile
            continue
    return found
