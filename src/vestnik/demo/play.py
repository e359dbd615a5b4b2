"""Play the demo from the first act to the last, then keep posts flowing until somebody has seen enough."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from pathlib import Path
from shutil import which

from vestnik.demo.acts import ACTS, Act
from vestnik.demo.screen import Screen
from vestnik.demo.stage import TOPICS, Stage, stage
from vestnik.errors import VestnikError
from vestnik.settings import Settings

POST_EVERY = 2.0


async def play(settings: Settings, screen: Screen, *, stay: bool) -> None:
    """The screen knows afterwards which acts have shown what they should."""
    started = time.monotonic()
    with screen:
        async with stage(settings, screen.say) as on:
            try:
                screen.footer = _footer(on, time.monotonic() - started)
                for n, act in enumerate(ACTS):
                    screen.say(f"act {n + 1} of {len(ACTS)}")
                    await _play_act(on, screen, n, act)
                screen.farewell = farewell() if screen.verdict() == 0 else ""
                if stay:
                    await _keep_posting(on, screen)
            finally:
                screen.footer = ""
                screen.say("stopping")


async def _play_act(on: Stage, screen: Screen, n: int, act: Act) -> None:
    screen.begin(n)
    try:
        seen = await act.play(on, lambda note: screen.note(n, note))
    except VestnikError as e:
        screen.end(n, passed=False, note=str(e))
    except Exception as e:  # whatever an act meets, it has failed, and the others are played
        screen.end(n, passed=False, note=f"{type(e).__name__}: {e}")
    else:
        screen.end(n, passed=True, note=seen)


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


def _footer(on: Stage, seconds: float) -> str:
    return f"""\
What the readers see   {on.sandbox.url}/
The API                {on.running.http_url}/docs
[dim]Everything was ready after {seconds:.1f} s.[/]

Publish into it:
  curl -H 'Authorization: Bearer {on.secret}' \\
       -H 'Content-Type: application/json' \\
       -d '{{"text": "Hello #all"}}' {on.running.http_url}/v1/push"""


def farewell() -> str:
    vestnik = _program()
    return f"""\
Next: write down your own channels (README.md shows how), then
  {vestnik} migrate           make the database
  {vestnik} apply shop.yml    make them true
  {vestnik} up                run the service
  {vestnik} demo              see this again"""


def _program() -> str:
    """As it can be typed here: the name alone where that finds it, else as it was called this time."""
    called = Path(sys.argv[0])
    if called.name != "vestnik":
        return "python -m vestnik"
    found = which("vestnik")
    return "vestnik" if found and Path(found).resolve() == called.resolve() else str(called)
