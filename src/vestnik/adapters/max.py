"""MAX: the Bot API's POST /messages.

MAX's documents contradict each other about ``disable_link_preview``: one page says that ``false`` means no
preview, another that ``true`` does. Its name, its default (``false``) and the same parameter of POST /answers
say ``true``, and so do we.

``format`` is sent exactly when the message has a parse mode. Rows of buttons that are wider than MAX takes
are broken into several, none is dropped. MAX has no idempotency key, and some refusals come as HTTP 200
with ``success: false``. A chat is addressed by its number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from vestnik.adapters.classify import Refusal, bad_answer, classify, refused
from vestnik.adapters.contract import AdapterContext, Channel, MediaItem, SendMeta, Sent
from vestnik.adapters.http import Answer, PlatformHttp, part, scalars
from vestnik.adapters.markup import convert_for

PLATFORM = "max"
TOKEN = re.compile(r"[\x21-\x7e]{1,512}")  # it becomes a header
ROW = 7
ROW_WITH_LINK = 3


class MaxAdapter:
    platform = PLATFORM
    media = False

    def __init__(self, context: AdapterContext) -> None:
        self._http = PlatformHttp(PLATFORM, context)

    async def send_text(self, channel: Channel, text: str, meta: SendMeta) -> Sent:
        params = {
            "chat_id": _chat(channel),
            "disable_link_preview": "true" if meta.disable_preview else "false",
        }
        message = _message(text, meta)
        token = await self._http.token(channel, TOKEN)
        answer = await self._http.post(
            "/messages", secret=token, json=message, params=params, headers={"Authorization": token}
        )
        return _sent(answer)

    async def send_media(
        self,
        channel: Channel,
        media: Sequence[MediaItem],
        text: str | None,
        links: Sequence[str],
        meta: SendMeta,
    ) -> Sent:
        raise refused(PLATFORM, "delivery", "media_unsupported", "media cannot be sent yet, only text")

    async def close(self) -> None:
        await self._http.close()


def create(context: AdapterContext) -> MaxAdapter:
    return MaxAdapter(context)


def _chat(channel: Channel) -> str:
    if not re.fullmatch(r"-?\d{1,18}", channel.target_id):
        raise refused(PLATFORM, "channel", "bad_target", f"a chat is a number, not {channel.target_id!r}")
    return channel.target_id


def _message(text: str, meta: SendMeta) -> dict[str, Any]:
    body, parse_mode = convert_for(PLATFORM, text, meta)
    message: dict[str, Any] = {"text": body}
    if parse_mode is not None:
        message["format"] = parse_mode
    if meta.buttons:
        rows = [part for row in meta.buttons for part in _rows(row)]
        message["attachments"] = [{"type": "inline_keyboard", "payload": {"buttons": rows}}]
    return message


def _rows(row: Sequence[Mapping[str, str]]) -> list[list[dict[str, str]]]:
    buttons = [_button(button) for button in row]
    width = ROW_WITH_LINK if any(button["type"] == "link" for button in buttons) else ROW
    return [buttons[at : at + width] for at in range(0, len(buttons), width)]


def _button(button: Mapping[str, str]) -> dict[str, str]:
    text = button.get("text", "")
    if 0 < len(text) <= 128:
        if 0 < len(button.get("url", "")) <= 2048:
            return {"type": "link", "text": text, "url": button["url"]}
        if 0 < len(button.get("callback", "")) <= 1024:
            return {"type": "callback", "text": text, "payload": button["callback"]}
    raise refused(
        PLATFORM,
        "delivery",
        "validation_failed",
        f"a button needs text (1–128), and url (≤ 2048) or callback (≤ 1024): {button!r}",
    )


def _sent(answer: Answer) -> Sent:
    data = answer.data or {}
    if answer.status != 200 or data.get("success") is False or "code" in data:
        raise classify(_refusal(answer, data))
    message = part(data, "message")
    body, recipient = part(message, "body"), part(message, "recipient")
    mid = body.get("mid")
    if not isinstance(mid, str) or not mid:
        raise bad_answer(PLATFORM, answer.status, answer.text)
    return Sent(
        mid,
        scalars(
            mid=mid,
            seq=body.get("seq"),
            chat_id=recipient.get("chat_id"),
            timestamp=message.get("timestamp"),
        ),
    )


def _refusal(answer: Answer, data: Mapping[str, Any]) -> Refusal:
    """An error body is ``{code, message}``; ``success: false`` brings a message alone."""
    code, message = data.get("code"), data.get("message")
    return Refusal(
        platform=PLATFORM,
        status=answer.status,
        text=message if isinstance(message, str) else answer.text,
        code=code if isinstance(code, str) else "",
        retry_after=answer.retry_after,
    )
