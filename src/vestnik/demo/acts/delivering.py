"""Delivering: to the channels there are, once each, at the pace that a platform allows, whatever one of them does."""

from __future__ import annotations

from typing import Any

from vestnik.demo.acts.looking import Say, all_sent, deliveries, expect, settled
from vestnik.demo.stage import Stage, target_of


async def new_channel(stage: Stage, say: Say) -> str:
    """A row in channels is all that a new channel needs."""
    say("one post to 40 channels")
    first = await stage.push("Good morning! Vestnik is on the air. #all")
    await stage.until(lambda: all_sent(stage, first["message_id"], 40, say), "40 deliveries")

    say("a row is added to channels")
    await stage.add_chat("telegram", "-1009999", "Brand new")
    await stage.sql(
        "insert into autopost.channels (workspace_id, channel_id, platform, target_id, auth_ref, rate_group)"
        " values (%s, 'brand-new', 'telegram', '-1009999', 'telegram-bot', 'telegram-bot')",
        stage.workspace,
    )
    second = await stage.push("A new channel joins us. #all")
    await stage.until(lambda: all_sent(stage, second["message_id"], 41, say), "41 deliveries")
    shown = await stage.texts("telegram", "-1009999")
    expect(shown == ["A new channel joins us. #all"], f"the new channel shows {shown}")
    return "40 channels got a post, then 41; no restart"


async def too_many_requests(stage: Stage, say: Say) -> str:
    """The platform says 429 twice; the post waits as long as it is told to, and arrives."""
    say("the platform answers 429 twice")
    await stage.fault("telegram", target_of("telegram", 1), kind="429", retry_after=1, times=2)
    pushed = await stage.push("This one meets a busy platform.", tags=["all"], channels=["telegram-01"])

    async def delivered() -> dict[str, Any] | None:
        row = (await deliveries(stage, pushed["message_id"]))[0]
        say(f"attempt {row['attempt']}: {row['status']}")
        return row if row["status"] == "sent" else None

    row = await stage.until(delivered, "success after two 429")
    events = await stage.sql(
        "select action, error ->> 'code' as code, (meta ->> 'next_retry_at')::timestamptz as next_retry_at"
        " from autopost.events where workspace_id = %s and delivery_id = %s order by ts",
        stage.workspace,
        row["delivery_id"],
    )
    retries = [e for e in events if e["action"] == "retry_scheduled"]
    expect([e["code"] for e in retries] == ["429", "429"], f"retries were {retries}")
    expect(retries[0]["next_retry_at"] < retries[1]["next_retry_at"], "next_retry_at did not grow")
    expect(row["attempt"] == 3, f"attempts were {row['attempt']}")
    return "429, 429, sent: each time as late as asked"


async def no_duplicates(stage: Stage, say: Say) -> str:
    """The same post: once per channel, in as many channels as want it."""
    say("one post to two channels")
    two = {"tags": ["all"], "channels": ["telegram-02", "max-02"]}
    first = await stage.push("Said once, said well.", **two)
    await stage.until(lambda: all_sent(stage, first["message_id"], 2, say), "2 deliveries")
    say("the same post again")
    again = await stage.push("Said  once, said well. ", **two)
    expect((again["enqueued"], again["suppressed"]) == (0, 2), f"the repeat was answered {again}")
    noted = await stage.sql(
        "select count(*) as n from autopost.events where workspace_id = %s and message_id = %s"
        " and action = 'dedup_suppressed'",
        stage.workspace,
        first["message_id"],
    )
    expect(noted[0]["n"] == 2, f"{noted[0]['n']} events dedup_suppressed")
    for platform in ("telegram", "max"):
        shown = await stage.texts(platform, target_of(platform, 2))
        expect(shown.count("Said once, said well.") == 1, f"{platform} shows {shown}")
    return "shown once in both; the repeat left 2 events"


async def bad_channel(stage: Stage, say: Say) -> str:
    """One channel refuses; it is paused, then disabled, and nobody else notices."""
    await stage.fault("telegram", target_of("telegram", 3), kind="403", message="Forbidden: bot was kicked")
    for incident in (1, 2, 3):
        say(f"refusal {incident} of 3")
        await stage.until(lambda: _open_again(stage), "the pause to end")
        pushed = await stage.push(f"Bulletin {incident} of the day.", tags=["all"])
        total = sum(pushed[key] for key in ("enqueued", "suppressed", "failed"))
        await stage.until(lambda: settled(stage, pushed["message_id"]), f"{total} deliveries to end")  # noqa: B023
        rows = await deliveries(stage, pushed["message_id"])
        fates = {row["channel_id"]: row["status"] for row in rows}
        expect(fates.pop("telegram-03") == "failed_permanent", "the bad channel did not fail")
        expect(set(fates.values()) == {"sent"}, f"others suffered: {fates}")
    noted = await stage.sql(
        "select action, count(*) as n from autopost.events where workspace_id = %s and channel_id = 'telegram-03'"
        " and action in ('channel_paused', 'channel_disabled') group by 1",
        stage.workspace,
    )
    counts = {row["action"]: row["n"] for row in noted}
    expect(counts == {"channel_paused": 3, "channel_disabled": 1}, f"events were {counts}")
    return f"3 pauses, then disabled; {len(fates)} others went on"


async def _open_again(stage: Stage) -> bool:
    rows = await stage.sql(
        "select coalesce(paused_until, '-infinity') <= now() as open from autopost.channels"
        " where workspace_id = %s and channel_id = 'telegram-03'",
        stage.workspace,
    )
    return bool(rows[0]["open"])
