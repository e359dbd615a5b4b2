"""One signed call of somebody's address: never into our own network, never along a redirect."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from vestnik.db.pool import Pool, call
from vestnik.download import Downloader, DownloadRefused
from vestnik.ops.alerts.contract import Message, Target, TellFailed
from vestnik.ops.secrets.box import SecretBox
from vestnik.ops.webhooks.signing import signed

TIMEOUT = 20.0


class Caller:
    def __init__(
        self, pool: Pool, box: SecretBox, downloader: Downloader, clock: Callable[[], float] = time.time
    ) -> None:
        self._pool, self._box, self._downloader, self._clock = pool, box, downloader, clock

    async def post(self, workspace_id: str, owner: str, url: str, message_id: str, body: Mapping[str, Any]) -> None:
        """Returns when it was answered with 2xx; raises TellFailed (``gone`` for 410)."""
        rows = await call(self._pool, "select ops.webhook_secrets_of(%s, %s) as sealed", (workspace_id, owner))
        if not rows:
            raise TellFailed("no_secret", "it has no secret to sign with; vestnik webhooks rotate makes one")
        raw = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        secrets = [self._box.unlock(row["sealed"]) for row in rows]
        headers = signed(secrets, message_id, int(self._clock()), raw) | {"Content-Type": "application/json"}
        try:
            status, retry_after = await self._downloader.post(url, raw, headers=headers, timeout=TIMEOUT)
        except DownloadRefused as e:
            raise TellFailed(e.code, str(e)) from None
        if status == 410:
            raise TellFailed("gone", "it answered 410: it wants no more")
        if not 200 <= status < 300:
            raise TellFailed(f"http_{status}", f"it answered {status}", retry_after=retry_after)

    async def tell(self, target: Target, message: Message) -> None:
        """The way to an alert target that is a webhook."""
        body = {
            "type": "alerts",
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock())),
            "data": {
                "workspace_id": target.workspace_id,
                "text": message.text,
                "alerts": [dict(notice) for notice in message.notices],
            },
        }
        await self.post(target.workspace_id, f"target:{target.target_id}", target.address, message.message_id, body)
