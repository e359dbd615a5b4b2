"""Keeps what went wrong in full, and never at the cost of what it is about: what cannot be stored soon is let go, and said so.

The object is stored first, then the event that names it is written. Whoever dies in between leaves an object without a name,
which goes when its time is over.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg_pool import PoolTimeout

from vestnik.autopost.payloads.vault import Vault
from vestnik.db.pool import Pool, call
from vestnik.errors import VestnikError
from vestnik.log import get_log

PATIENCE = 1.0  # seconds that a result waits for its payload
REST = 30.0  # seconds without another try after the store has failed
AT_ONCE = 16
KNOWN_FOR = 10.0  # seconds that a workspace's policy is believed
log = get_log()


@dataclass(frozen=True, slots=True)
class Kept:
    """Either a name, or why there is none; neither where the policy wants nothing kept."""

    payload_ref: str | None = None
    not_kept: str | None = None

    def told(self) -> dict[str, str]:
        """As an error takes it along."""
        named = {"payload_ref": self.payload_ref, "payload_not_kept": self.not_kept}
        return {key: value for key, value in named.items() if value is not None}


class Keeper:
    def __init__(self, pool: Pool, vault: Vault, clock: Callable[[], float] = time.monotonic) -> None:
        self._pool, self.vault, self._clock = pool, vault, clock
        self._policies: dict[str, tuple[float, bool]] = {}
        self._rest_until = float("-inf")
        self._under_way = 0

    async def keep(self, workspace_id: str, document: Mapping[str, Any]) -> Kept:
        """Never raises but for cancellation, and returns within about a second."""
        if self._clock() < self._rest_until:
            return Kept(not_kept="the object store failed a moment ago")
        if self._under_way >= AT_ONCE:
            return Kept(not_kept="too many at once")
        self._under_way += 1
        try:
            async with asyncio.timeout(PATIENCE):
                if not await self._wanted(workspace_id):
                    return Kept()
                return Kept(await self.vault.put(workspace_id, document))
        except (VestnikError, OSError, psycopg.Error, PoolTimeout) as e:  # TimeoutError is an OSError
            self._rest_until = self._clock() + REST
            log.warning("payload.not_kept", workspace_id=workspace_id, error=str(e) or type(e).__name__, rest=REST)
            return Kept(not_kept="the object store cannot be used now")
        finally:
            self._under_way -= 1

    async def _wanted(self, workspace_id: str) -> bool:
        read_at, wanted = self._policies.get(workspace_id, (float("-inf"), False))
        if self._clock() - read_at >= KNOWN_FOR:
            wanted = (await call(self._pool, "select autopost.keeps_payloads(%s) as wanted", (workspace_id,)))[0][
                "wanted"
            ]
            self._policies[workspace_id] = (self._clock(), wanted)
        return wanted
