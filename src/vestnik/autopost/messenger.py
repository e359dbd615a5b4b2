"""Alerts into a chat, by the adapters that posts go by: one try each, without a queue, for the queue may be what is wrong."""

from __future__ import annotations

from vestnik.adapters.contract import Adapter, Channel, SendError, SendMeta
from vestnik.ops.alerts.contract import Message, Target, TellFailed, Way


def chat_way(adapter: Adapter) -> Way:
    async def tell(target: Target, message: Message) -> None:
        auth_ref = target.auth_ref or ""
        chat = Channel(
            workspace_id=target.credential_workspace or target.workspace_id,
            channel_id=f"alerts:{target.target_id}",
            platform=adapter.platform,
            target_id=target.address,
            auth_ref=auth_ref,
            rate_group=auth_ref,
        )
        try:
            await adapter.send_text(chat, message.text, SendMeta(disable_preview=True))
        except SendError as e:
            wait = e.retry_after_ms / 1000 if e.retry_after_ms is not None else None
            raise TellFailed(e.code, e.message, retry_after=wait) from None

    return tell
