"""A plan made call by call. What was acknowledged is remembered, and a retry goes on behind it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vestnik.adapters.contract import Call, SendMeta, Sent

MOST_IDS = 100  # kept for the audit; a post has no more items


@dataclass(frozen=True, slots=True)
class Made:
    """One call that the platform acknowledged: what it calls the messages, and what it said."""

    message_ids: Sequence[str]
    raw: Mapping[str, Any]


async def make(plan: Sequence[Call], meta: SendMeta, call: Callable[[Call], Awaitable[Made]]) -> Sent:
    """An error in the middle is raised as it is: what came before it has been acknowledged."""
    series = meta.series
    done = series.done if series is not None else 0
    message_ids = list(series.message_ids) if series is not None else []
    raw: Mapping[str, Any] = {}
    for each in plan[done:]:
        if series is not None:
            await series.turn()
        made = await call(each)
        raw = raw or made.raw
        message_ids += made.message_ids
        if series is not None and len(plan) > 1:
            await series.acknowledge(made.message_ids, each.items)
    if len(message_ids) > 1:
        raw = {**raw, "message_ids": message_ids[:MOST_IDS]}
    return Sent(message_ids[0], raw)
