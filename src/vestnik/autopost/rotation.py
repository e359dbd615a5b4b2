"""Another credential for channels, also while they are sending."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, LiteralString

from vestnik.db.pool import Pool, call

Row = dict[str, Any]
LOOKS = 0.2  # seconds between two looks whether the last send has ended
MARGIN = timedelta(minutes=1)  # that the pause outlasts the wait for it


async def channels_with_auth(pool: Pool, workspace_id: str, auth_ref: str, *, platform: str | None = None) -> list[str]:
    """Those that send with this credential."""
    query = "select c from autopost.channels_with_auth(%s, %s, %s) c"
    return [row["c"] for row in await call(pool, query, (workspace_id, auth_ref, platform))]


async def rotate_auth(
    pool: Pool,
    workspace_id: str,
    channel_ids: Iterable[str],
    auth_ref: str,
    *,
    operator: str,
    reason: str | None = None,
    rate_group: str | None = None,
    wait: timedelta = timedelta(seconds=60),
) -> list[Row]:
    """Another credential for each of the channels. One that is sending is paused until its sends have ended, with the old
    credential; after ``wait`` it keeps that, and its ``outcome`` is ``sending``. Raises NotFound before anything is changed."""
    channel_ids = list(dict.fromkeys(channel_ids))
    await call(pool, "select autopost.require_credential(%s, %s, %s)", (workspace_id, channel_ids, auth_ref))
    rotation = _Rotation(pool, workspace_id, auth_ref, operator, reason, rate_group, wait + MARGIN)
    over = asyncio.get_running_loop().time() + wait.total_seconds()
    try:
        busy = [channel_id for channel_id in channel_ids if not await rotation.switch(channel_id)]
        for channel_id in busy:
            await rotation.drain(channel_id)
        while busy and (left := over - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(min(LOOKS, left))
            busy = [channel_id for channel_id in busy if not await rotation.switch(channel_id)]
    finally:
        await rotation.end()
    return list(rotation.outcomes.values())


@dataclass(slots=True)
class _Rotation:
    pool: Pool
    workspace_id: str
    auth_ref: str
    operator: str
    reason: str | None
    rate_group: str | None
    pause: timedelta
    outcomes: dict[str, Row] = field(default_factory=dict)
    drained: dict[str, Row] = field(default_factory=dict)

    async def switch(self, channel_id: str) -> bool:
        """False while something of it is being sent."""
        drained = self.drained.get(channel_id, {})
        arguments = {
            "ws": self.workspace_id, "operator": self.operator, "reason": self.reason, "channel": channel_id,
            "auth_ref": self.auth_ref, "rate_group": self.rate_group,
            "drained_until": drained.get("drained_until"), "paused_before": drained.get("paused_before"),
        }  # fmt: skip
        (row,) = await call(self.pool, _SWITCH, arguments)
        self.outcomes[channel_id] = {"channel_id": channel_id, "new_auth_ref": self.auth_ref} | row
        if row["outcome"] == "sending":
            return False
        self.drained.pop(channel_id, None)
        return True

    async def drain(self, channel_id: str) -> None:
        """Who is told to stop meanwhile still has to know which pause to end."""
        asked = asyncio.create_task(self._pause(channel_id))
        try:
            await asyncio.shield(asked)
        except asyncio.CancelledError:
            await asked
            raise

    async def _pause(self, channel_id: str) -> None:
        query = "select * from autopost.drain_channel(%s, %s, %s, %s)"
        about = (self.workspace_id, self.operator, channel_id, self.pause)
        (self.drained[channel_id],) = await call(self.pool, query, about)

    async def end(self) -> None:
        """Only what was given up is still paused by us."""
        for channel_id, drained in self.drained.items():
            query = "select autopost.end_drain(%s, %s, %s, %s, %s), pg_notify('vestnik_wake', %s)"
            moments = (drained["drained_until"], drained["paused_before"])
            await call(self.pool, query, (self.workspace_id, self.operator, channel_id, *moments, self.workspace_id))


_SWITCH: LiteralString = """
with done as materialized (
    select * from autopost.switch_auth(%(ws)s, %(operator)s, %(reason)s, %(channel)s, %(auth_ref)s, %(rate_group)s,
                                       %(drained_until)s, %(paused_before)s)
), woken as materialized (
    select pg_notify('vestnik_wake', %(ws)s) from done where outcome <> 'sending'
)
select done.* from done left join woken on true"""
