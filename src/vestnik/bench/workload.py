"""The workspace that the benchmarks work on: channels without a rate, posts of a usual length."""

from __future__ import annotations

import time
from collections.abc import Sequence

from vestnik.adapters.contract import Adapter, AdapterContext, Call, Channel, MediaItem, SendMeta, Sent
from vestnik.db.pool import Pool, call

WORKSPACE = "bench"
PLATFORM = "bench"


class InstantAdapter:
    """Answers at once, and as much as Telegram's adapter keeps of an answer; counts what it was given.

    Its ``date`` is the moment of the call on the clock that all processes of a machine share.
    """

    platform = PLATFORM
    media = False

    def __init__(self) -> None:
        self.sent = 0

    def plan(self, channel: Channel, media: Sequence[MediaItem], text: str | None, meta: SendMeta) -> Sequence[Call]:
        return [Call("send", {}, text=text)]

    async def send_text(self, channel: Channel, text: str, meta: SendMeta) -> Sent:
        called = time.monotonic_ns()
        self.sent += 1
        return Sent(str(self.sent), {"message_id": self.sent, "chat_id": -1001234567890, "date": called})

    async def send_media(
        self, channel: Channel, media: Sequence[MediaItem], text: str | None, links: Sequence[str], meta: SendMeta
    ) -> Sent:
        raise NotImplementedError

    async def close(self) -> None:
        pass


def create_adapter(_: AdapterContext) -> Adapter:
    """What an entry point of the group ``vestnik.adapters`` names."""
    return InstantAdapter()


def post(number: int | str) -> str:
    return (
        f"Post number {number}. Something happened today, and this is what it was about: two sentences of a "
        f"length that one sees in channels, a word in bold and a #news tag."
    )


async def make_workspace(pool: Pool) -> None:
    await call(
        pool,
        "insert into core.workspaces (workspace_id, name) values (%s, 'Benchmark') on conflict do nothing",
        (WORKSPACE,),
    )
    await call(pool, "select autopost.ensure_event_partitions()")


async def make_channels(pool: Pool, count: int, *, max_parallel: int = 1, prefix: str = "channel") -> None:
    await call(
        pool,
        """insert into autopost.channels
               (workspace_id, channel_id, platform, target_id, auth_ref, rate_group, rate_rps, max_parallel, route_filter)
           select %s, %s || '-' || lpad(i::text, 6, '0'), %s, %s || i, 'bot', 'bot', null, %s, '{"include_any": ["news"]}'
           from generate_series(1, %s) i""",
        (WORKSPACE, prefix, PLATFORM, prefix, max_parallel, count),
    )
