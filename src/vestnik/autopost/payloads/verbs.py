"""Look at full payloads: which there are, a link to one, its content, and who has looked. Each look goes on record first."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import UUID, uuid4

from vestnik.autopost.payloads.links import Link, Links
from vestnik.autopost.payloads.sealing import PayloadUnreadable
from vestnik.autopost.payloads.vault import Vault
from vestnik.db.pool import Pool, call
from vestnik.errors import NotFound, VestnikError
from vestnik.storage import StorageError

LIFETIME = timedelta(minutes=5)
Via = Literal["api", "link", "machine"]
Row = dict[str, Any]


class LinkExpired(VestnikError):
    """It was one of ours, and its time is over, or whoever asked for it may not look any more."""


@dataclass(frozen=True, slots=True)
class Issued:
    token: str
    expires_at: datetime


class PayloadDesk:
    def __init__(self, pool: Pool, vault: Vault, links: Links, clock: Callable[[], float] = time.time) -> None:
        self._pool, self._vault, self._links, self._clock = pool, vault, links, clock

    async def issue(
        self, workspace_id: str, payload_ref: str, *, actor: str, reason: str, lifetime: timedelta = LIFETIME
    ) -> Issued:
        """Raises NotFound, StorageError, PayloadUnreadable: a link that leads nowhere is not given."""
        link = Link(workspace_id, payload_ref, actor, uuid4(), round(self._clock() + lifetime.total_seconds()))
        await self._get(workspace_id, payload_ref, actor, "api", "link", reason, link.link_id)
        return Issued(self._links.write(link), datetime.fromtimestamp(link.expires_at, UTC))

    async def refuse(self, workspace_id: str, payload_ref: str, *, actor: str, reason: str) -> None:
        """Who asked and may not is on record, too."""
        await self._note(workspace_id, actor, "api", "link", payload_ref, reason, "refused")

    async def follow(self, token: str) -> tuple[str, bytes]:
        """Name and content. Raises LinkForged, LinkExpired, and what ``issue`` raises."""
        link = self._links.read(token)
        reason = "by link"
        expired = self._clock() >= link.expires_at
        if expired or not await self._may_still(link):
            outcome = "expired" if expired else "refused"
            await self._note(
                link.workspace_id, link.actor, "link", "read", link.payload_ref, reason, outcome, link.link_id
            )
            raise LinkExpired("this link has expired", hint="ask for another one")
        content = await self._get(link.workspace_id, link.payload_ref, link.actor, "link", "read", reason, link.link_id)
        return link.payload_ref, content

    async def show(self, workspace_id: str, payload_ref: str, *, actor: str, reason: str) -> bytes:
        """On the machine itself, where the key lies."""
        await call(self._pool, "select ops.must_be_workspace(%s)", (workspace_id,))
        return await self._get(workspace_id, payload_ref, actor, "machine", "read", reason)

    async def _may_still(self, link: Link) -> bool:
        """A link is worth what whoever asked for it may now: it ends with the role, and with the operator."""
        query = "select 'security' = any (core.roles_of(%s, %s)) as may"
        login = link.actor.removeprefix("operator ")
        return bool((await call(self._pool, query, (link.workspace_id, login)))[0]["may"])

    async def _get(
        self,
        workspace_id: str,
        payload_ref: str,
        actor: str,
        via: Via,
        action: str,
        reason: str,
        link_id: UUID | None = None,
    ) -> bytes:
        """The content only once the record of it is written; if that cannot be, nobody sees anything."""
        failure: VestnikError | None = None
        outcome, content = "granted", b""
        try:
            content = await self._vault.get(workspace_id, payload_ref)
        except NotFound as e:
            outcome, failure = "not_found", e
        except PayloadUnreadable as e:
            outcome, failure = "unreadable", e
        except StorageError as e:
            outcome, failure = "store_away", e
        await self._note(workspace_id, actor, via, action, payload_ref, reason, outcome, link_id)
        if failure is not None:
            raise failure
        return content

    async def _note(
        self,
        workspace_id: str,
        actor: str,
        via: Via,
        action: str,
        payload_ref: str,
        reason: str,
        outcome: str,
        link_id: UUID | None = None,
    ) -> None:
        query = "select autopost.note_payload_read(%s, %s, %s, %s, %s, %s, %s, %s)"
        await call(self._pool, query, (workspace_id, actor, via, action, payload_ref, reason, outcome, link_id))


async def list_payloads(
    pool: Pool,
    workspace_id: str,
    *,
    since: timedelta = timedelta(days=14),
    delivery_id: UUID | None = None,
    limit: int = 100,
) -> list[Row]:
    """What events name, the newest first; some of it may be gone by now."""
    query = "select * from autopost.list_payloads(%s, %s, %s, %s)"
    return await call(pool, query, (workspace_id, since, delivery_id, limit))


async def list_reads(
    pool: Pool, workspace_id: str, *, since: timedelta = timedelta(days=30), limit: int = 200
) -> list[Row]:
    """Who asked for which payload, when and why, and what came of it."""
    query = (
        "select ts, actor, via, action, payload_ref, reason, outcome, link_id"
        " from autopost.list_payload_reads(%s, %s, %s)"
    )
    return await call(pool, query, (workspace_id, since, limit))
