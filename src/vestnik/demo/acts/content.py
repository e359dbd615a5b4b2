"""Content: pictures and files, a source that is read, a channel with hours."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from vestnik.demo.acts.looking import Say, all_sent, deliveries, expect
from vestnik.demo.stage import Stage, target_of

BREAKS_AT = 3


async def album(stage: Stage, say: Say) -> str:
    """Three pictures by their addresses: fetched once, uploaded once a platform, one album in each channel."""
    channels = ["telegram-04", "telegram-05", "max-04", "max-05"]
    pictures = [{"type": "image", "url": f"{stage.sandbox.url}/files/demo/{n}.png"} for n in (1, 2, 3)]
    say("3 pictures to 4 channels")
    pushed = await stage.push("Three views of the city.", media=pictures, tags=["all"], channels=channels)
    await stage.until(lambda: all_sent(stage, pushed["message_id"], 4, say), "4 deliveries")
    for channel in channels:
        platform, n = channel.split("-")
        posts = [post for post in await stage.posts(platform, target_of(platform, int(n))) if post["media"]]
        shown = sum(len(post["media"]) for post in posts)
        expect(shown == len(pictures), f"{channel} shows {shown} pictures")
    uploads = await stage.sql(
        "select provider, count(*) as n from autopost.media_blobs where workspace_id = %s group by 1", stage.workspace
    )
    counts = {row["provider"]: row["n"] for row in uploads}
    expect(counts == {"telegram": 3, "max": 3}, f"uploads were {counts}")
    return "3 pictures, uploaded once a bot: 4 albums"


async def series(stage: Stage, say: Say) -> str:
    """MAX takes one file a message: five files are a series. It breaks after the second, and goes on with the third."""
    target = target_of("max", 6)
    names = [f"catalogue-{n}.txt" for n in range(1, 6)]
    for name in names:
        await stage.put_file(name, "text/plain", f"What is in {name}".encode())
    before = len(await stage.posts("max", target))
    await stage.fault("max", target, kind="503", method="messages", after=BREAKS_AT - 1, times=1)
    say("5 files to MAX, the third answer is 503")
    files = [{"type": "file", "url": f"{stage.sandbox.url}/files/{name}"} for name in names]
    pushed = await stage.push("Our catalogues.", media=files, tags=["all"], channels=["max-06"])
    await stage.until(lambda: all_sent(stage, pushed["message_id"], 1, say), "the series")
    shown = [item["name"] for post in (await stage.posts("max", target))[before:] for item in post["media"]]
    expect(shown == names, f"the readers see {shown}")
    row = (await deliveries(stage, pushed["message_id"]))[0]
    expect(row["attempt"] == 2, f"attempts were {row['attempt']}")
    return f"5 files, broken at the {BREAKS_AT}rd; the rest followed"


async def feed(stage: Stage, say: Say) -> str:
    """An RSS feed of the sandbox: what was there before is left, what is new comes once and in order."""
    await stage.add_items("city", [_item(n) for n in range(1, 6)])
    await stage.add_chat("telegram", "-1008888", "Read from a feed")
    say("a source is declared")
    await stage.declare(
        channels=[_channel("feed-reader", "-1008888", "feed")],
        sources=[
            {
                "id": "city-news",
                "kind": "rss",
                "every": "PT1H",
                "config": {"url": f"{stage.sandbox.url}/feeds/city.xml", "tags": ["feed"]},
            }
        ],
    )
    await stage.until(lambda: _shows(stage, ["Item 5"], say), "the newest item")
    say("two new items; the feed is read twice more")
    await stage.add_items("city", [_item(n) for n in (6, 7)])
    await stage.read_source("city-news")
    await stage.until(lambda: _shows(stage, ["Item 5", "Item 6", "Item 7"], say), "the new items")
    await stage.read_source("city-news")
    shown = await _titles(stage)
    expect(shown == ["Item 5", "Item 6", "Item 7"], f"the readers see {shown}")
    runs = await stage.sql(
        "select count(*) as n from autopost.ingest_runs where workspace_id = %s and kind = 'pull'", stage.workspace
    )
    return f"{runs[0]['n']} readings: the newest of 5, then 2 new ones"


async def posting_hours(stage: Stage, say: Say) -> str:
    """A channel that is closed at this hour: its post waits and says for what, and goes when the hours change."""
    far = datetime.now(UTC) + timedelta(hours=12)
    every_day = {"daily": [[f"{far:%H}:00", f"{far:%H}:59"]]}
    await stage.add_chat("telegram", "-1007777", "Open for an hour")
    say("a channel that opens in twelve hours")
    channel = _channel("by-the-hour", "-1007777", "hours") | {"timezone": "UTC"}
    await stage.declare(channels=[channel | {"window_mode": "windowed", "posting_window": every_day}])
    pushed = await stage.push("Read me when you are up.", tags=["hours"], channels=["by-the-hour"])
    row = (await deliveries(stage, pushed["message_id"]))[0]
    why = (await stage.sql("select * from autopost.why_delivery(%s, %s)", stage.workspace, row["delivery_id"]))[0]
    expect(why["gate"] == "window", f"the post waits for {why['gate']}")
    expect(not await stage.posts("telegram", "-1007777"), "the post went outside the hours")
    say("the channel opens all day")
    await stage.declare(channels=[channel | {"window_mode": "immediate"}])
    await stage.until(lambda: all_sent(stage, pushed["message_id"], 1, say), "the post")
    return f"a post waits for {why['earliest']:%H:%M}, goes with new hours"


def _channel(channel_id: str, target: str, tag: str) -> dict[str, Any]:
    return {
        "id": channel_id,
        "platform": "telegram",
        "target": target,
        "auth_ref": "telegram-bot",
        "route_filter": {"include_any": [tag]},
    }


def _item(n: int) -> dict[str, Any]:
    published = datetime.now(UTC) - timedelta(hours=1) + timedelta(minutes=n)
    return {
        "id": f"item-{n}",
        "title": f"Item {n}",
        "summary": f"What happened, part {n}.",
        "link": f"https://city.example/{n}",
        "published": published.isoformat(),
    }


async def _titles(stage: Stage) -> list[str]:
    return [post["visible"].partition("\n")[0] for post in await stage.posts("telegram", "-1008888")]


async def _shows(stage: Stage, titles: list[str], say: Say) -> bool:
    shown = await _titles(stage)
    say(f"{len(shown)} shown")
    return shown == titles
