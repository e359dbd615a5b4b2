"""From a post's media to what a platform can be told: its own handle where it has one, else the bytes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from vestnik.adapters.classify import MEDIA_EXPIRED, refused
from vestnik.adapters.contract import Channel, Depot, MediaItem, Resolved, SendError
from vestnik.adapters.grouping import identity
from vestnik.log import get_log

log = get_log()
T = TypeVar("T")


async def with_media(
    depot: Depot | None,
    channel: Channel,
    items: Mapping[int, MediaItem],
    send: Callable[[Mapping[int, Resolved]], Awaitable[T]],
) -> T:
    """Sends with the items resolved, by their places. A handle that the platform no longer knows is forgotten, and
    the same attempt goes on with an upload: once, for fresh handles that it does not know are no matter of age."""
    if not items:
        return await send({})
    if depot is None:
        raise refused(channel.platform, "delivery", "media_unsupported", "there is no place to take media from")
    # In one order for all, also when handles are forgotten: who waits for a file holds none that the other waits for.
    different = dict(sorted(((identity(item), item) for item in items.values()), key=lambda each: str(each[0])))
    async with depot.resolve(channel, list(different.values())) as found:
        by_identity = dict(zip(different, found, strict=True))
        by_place = {place: by_identity[identity(item)] for place, item in items.items()}
        reused = [each for each in found if each.handle is not None]
        try:
            return await send(by_place)
        except SendError as e:
            if e.code != MEDIA_EXPIRED or not reused:
                raise
        for each in reused:
            await each.forget()
        return await send(by_place)


async def learn(channel: Channel, resolved: Resolved, handle: str, *, expires_in: float | None = None) -> None:
    """The platform has it, and may have shown it already: that nobody could write it down must not fail the send."""
    try:
        await resolved.learned(handle, expires_in=expires_in)
    except Exception as e:
        log.warning(
            "media.not_learned",
            workspace_id=channel.workspace_id,
            channel_id=channel.channel_id,
            error=type(e).__name__,
        )
