"""Telegram: the Bot API's sendMessage.

The API has no idempotency key, so none is sent: what a lost answer left behind cannot be found again, and
such an error says ``outcome: unknown``. A forum topic is a channel whose settings hold ``message_thread_id``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from vestnik.adapters.classify import Refusal, bad_answer, classify, refused
from vestnik.adapters.contract import AdapterContext, Channel, MediaItem, SendMeta, Sent
from vestnik.adapters.http import Answer, PlatformHttp, part, scalars
from vestnik.adapters.markup import convert_for

PLATFORM = "telegram"
TOKEN = re.compile(r"[A-Za-z0-9:_-]{1,256}")  # it becomes a part of the path
CALLBACK_BYTES = 64


class TelegramAdapter:
    platform = PLATFORM
    media = False

    def __init__(self, context: AdapterContext) -> None:
        self._http = PlatformHttp(PLATFORM, context)

    async def send_text(self, channel: Channel, text: str, meta: SendMeta) -> Sent:
        message = _message(channel, text, meta)
        token = await self._http.token(channel, TOKEN)
        answer = await self._http.post(f"/bot{token}/sendMessage", secret=token, json=message)
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


def create(context: AdapterContext) -> TelegramAdapter:
    return TelegramAdapter(context)


def _message(channel: Channel, text: str, meta: SendMeta) -> dict[str, Any]:
    target = channel.target_id
    body, parse_mode = convert_for(PLATFORM, text, meta)
    message: dict[str, Any] = {
        "chat_id": int(target) if re.fullmatch(r"-?\d{1,18}", target) else target,
        "text": body,
    }
    if parse_mode is not None:
        message["parse_mode"] = parse_mode
    if meta.disable_preview:
        message["link_preview_options"] = {"is_disabled": True}
    if (thread := channel.settings.get("message_thread_id")) is not None:
        message["message_thread_id"] = _thread(thread)
    if meta.buttons:
        rows = [[_button(button) for button in row] for row in meta.buttons if row]
        message["reply_markup"] = {"inline_keyboard": rows}
    return message


def _thread(value: object) -> int:
    if isinstance(value, bool) or not re.fullmatch(r"\d{1,18}", str(value)):
        raise refused(
            PLATFORM,
            "channel",
            "bad_settings",
            f"settings.message_thread_id is not a topic's number: {value!r}",
        )
    return int(str(value))


def _button(button: Mapping[str, str]) -> dict[str, str]:
    text = button.get("text", "")
    if text and button.get("url"):
        return {"text": text, "url": button["url"]}
    data = button.get("callback", "")
    if text and 0 < len(data.encode()) <= CALLBACK_BYTES:
        return {"text": text, "callback_data": data}
    raise refused(
        PLATFORM,
        "delivery",
        "validation_failed",
        f"a button needs text, and url or callback (1–64 bytes): {button!r}",
    )


def _sent(answer: Answer) -> Sent:
    data = answer.data or {}
    if answer.status != 200 or data.get("ok") is False:
        raise classify(_refusal(answer, data))
    result = part(data, "result")
    message_id = result.get("message_id")
    if data.get("ok") is not True or type(message_id) is not int:
        raise bad_answer(PLATFORM, answer.status, answer.text)
    chat_id = part(result, "chat").get("id")
    return Sent(str(message_id), scalars(message_id=message_id, chat_id=chat_id, date=result.get("date")))


def _refusal(answer: Answer, data: Mapping[str, Any]) -> Refusal:
    parameters = part(data, "parameters")
    wait, moved = parameters.get("retry_after"), parameters.get("migrate_to_chat_id")
    number, text = data.get("error_code"), data.get("description")
    return Refusal(
        platform=PLATFORM,
        status=number if answer.status == 200 and type(number) is int else answer.status,
        text=text if isinstance(text, str) else answer.text,
        retry_after=float(wait) if isinstance(wait, int | float) else answer.retry_after,
        extra=scalars(migrate_to_chat_id=moved),
    )
