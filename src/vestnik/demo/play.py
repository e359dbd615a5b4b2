"""Play the demo from the first act to the last, then keep posts flowing until somebody has seen enough."""

from __future__ import annotations

import asyncio
import itertools
import time

from vestnik.demo.acts import ACTS, Act
from vestnik.demo.screen import Screen
from vestnik.demo.stage import TOPICS, Stage, stage
from vestnik.errors import VestnikError
from vestnik.settings import Settings

POST_EVERY = 2.0


async def play(settings: Settings, screen: Screen, *, stay: bool) -> bool:
    """True when every act has shown what it should."""
    started = time.monotonic()
    with screen:
        async with stage(settings, screen.say) as on:
            screen.say(f"ready after {time.monotonic() - started:.1f} s")
            screen.footer = _footer(on)
            passed = [await _play_act(on, screen, n, act) for n, act in enumerate(ACTS)]
            if stay:
                await _keep_posting(on, screen)
            screen.say("")
    return all(passed)


async def _play_act(on: Stage, screen: Screen, n: int, act: Act) -> bool:
    screen.begin(n)
    screen.say(act.title)
    try:
        seen = await act.play(on, lambda note: screen.note(n, note))
    except VestnikError as e:
        screen.end(n, passed=False, note=str(e))
        return False
    screen.end(n, passed=True, note=seen)
    return True


async def _keep_posting(on: Stage, screen: Screen) -> None:
    for n in itertools.count(1):
        topic = TOPICS[n % len(TOPICS)]
        await on.push(f"<b>{topic.capitalize()}</b>, issue {n}: posts keep flowing. #{topic}", parse_mode="HTML")
        counts = await on.sql(
            "select count(*) filter (where status = 'sent') as sent,"
            " count(*) filter (where status in ('queued', 'claimed', 'sending', 'retry')) as waiting"
            " from autopost.deliveries where workspace_id = %s",
            on.workspace,
        )
        screen.say(
            f"posts keep flowing: {counts[0]['sent']} delivered, {counts[0]['waiting']} on their way · Ctrl-C ends"
        )
        ended = [task for task in on.running.tasks if task.done()]
        if ended:
            await ended[0]
        await asyncio.sleep(POST_EVERY)


def _footer(on: Stage) -> str:
    return (
        f"\nWhat the readers see   {on.sandbox.url}/\n"
        f"API                    {on.running.http_url}/docs\n\n"
        f"[dim]Publish into it:\n"
        f"  curl -H 'Authorization: Bearer {on.secret}' \\\n"
        f"       -H 'Content-Type: application/json' -d '{{\"text\": \"Hello #all\"}}' {on.running.http_url}/v1/push[/]"
    )
