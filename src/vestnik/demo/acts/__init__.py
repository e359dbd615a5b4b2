"""The acts: each does one thing to the running system and shows, from the outside, what came of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from vestnik.demo.acts import content, delivering
from vestnik.demo.acts.looking import Say
from vestnik.demo.stage import Stage


@dataclass(frozen=True, slots=True)
class Act:
    title: str
    play: Callable[[Stage, Say], Awaitable[str]]


ACTS = (
    Act("Config-driven channel", delivering.new_channel),
    Act("429 to eventual success", delivering.too_many_requests),
    Act("Per-channel dedup", delivering.no_duplicates),
    Act("Bad-channel isolation", delivering.bad_channel),
    Act("An album", content.album),
    Act("A series that breaks", content.series),
    Act("A feed", content.feed),
    Act("Posting hours", content.posting_hours),
)
