"""Telegram: the Bot API, as far as publishing needs it. What is called for a post: ``telegram_plan``.

The API has no idempotency key, so none is sent: what a lost answer left behind cannot be found again, and
such an error says ``outcome: unknown``. A forum topic is a channel whose settings hold ``message_thread_id``.

Media go by ``file_id``, else as bytes in the same form as the message; the answer brings the ``file_id`` for the
next. A file that stands in an album twice travels once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from vestnik.adapters.classify import bad_answer, classify, refused
from vestnik.adapters.contract import (
    AdapterContext,
    Call,
    Channel,
    Identity,
    MediaItem,
    Resolved,
    Rights,
    SendMeta,
    Sent,
    Webhook,
)
from vestnik.adapters.http import Answer, PlatformHttp, part, scalars
from vestnik.adapters.multipart import file_of
from vestnik.adapters.resolving import learn, with_media
from vestnik.adapters.series import Made, make
from vestnik.adapters.telegram_account import identity, refusal, result, rights, webhooks
from vestnik.adapters.telegram_plan import METHODS, PLATFORM, as_sent, chat_of, plan, reference

TOKEN = re.compile(r"[A-Za-z0-9:_-]{1,256}")  # it becomes a part of the path
ATTACHED = "attach://"


class TelegramAdapter:
    platform = PLATFORM

    def __init__(self, context: AdapterContext) -> None:
        self._http = PlatformHttp(PLATFORM, context)
        self._depot = context.depot

    def plan(self, channel: Channel, media: Sequence[MediaItem], text: str | None, meta: SendMeta) -> Sequence[Call]:
        return plan(channel, media, text, meta)

    async def send_text(self, channel: Channel, text: str, meta: SendMeta) -> Sent:
        return await self._send(channel, (), text, meta)

    async def send_media(
        self,
        channel: Channel,
        media: Sequence[MediaItem],
        text: str | None,
        links: Sequence[str],
        meta: SendMeta,
    ) -> Sent:
        """``links`` are in the text already."""
        if not media:
            raise refused(PLATFORM, "delivery", "validation_failed", "there are no media in the post")
        return await self._send(channel, media, text, meta)

    async def who_am_i(self, channel: Channel) -> Identity:
        return identity(await self._ask(channel, "getMe"))

    async def rights(self, channel: Channel) -> Rights:
        chat = {"chat_id": chat_of(channel)}
        kind = result(await self._ask(channel, "getChat", chat)).get("type")
        if kind == "private":
            return rights(kind, {"status": "member"})
        me = (await self.who_am_i(channel)).account_id
        return rights(kind, result(await self._ask(channel, "getChatMember", {**chat, "user_id": int(me)})))

    async def webhooks(self, channel: Channel) -> Sequence[Webhook]:
        return webhooks(result(await self._ask(channel, "getWebhookInfo")))

    async def close(self) -> None:
        await self._http.close()

    async def _ask(self, channel: Channel, method: str, body: Mapping[str, Any] | None = None) -> Answer:
        """A question that changes nothing."""
        token = await self._http.token(channel, TOKEN)
        return await self._http.post(f"/bot{token}/{method}", secret=token, json=body or {})

    async def _send(self, channel: Channel, media: Sequence[MediaItem], text: str | None, meta: SendMeta) -> Sent:
        calls = plan(channel, media, text, meta)
        items = as_sent(channel, media, meta)

        async def call(each: Call) -> Made:
            wanted = {place: items[place] for place in each.items if reference(items[place], meta) is None}

            async def send(resolved: Mapping[int, Resolved]) -> Made:
                # Not sooner: a handle that is learned belongs to the credential of this moment.
                token = await self._http.token(channel, TOKEN)
                answer = await self._post(token, each, resolved)
                messages = _messages(answer)
                await _learn(channel, each, resolved, messages)
                return _made(messages)

            return await with_media(self._depot, channel, wanted, send)

        return await make(calls, meta, call)

    async def _post(self, token: str, call: Call, resolved: Mapping[int, Resolved]) -> Answer:
        path = f"/bot{token}/{call.method}"
        handles = {place: each.handle for place, each in resolved.items()}
        body = _filled(call, {place: handle for place, handle in handles.items() if handle is not None})
        names = {place: name for place, name in _media(call) if handles.get(place, "") is None}
        if not names:
            return await self._http.post(path, secret=token, json=body)
        files = {name: resolved[place] for place, name in names.items()}
        form = self._http.form(
            {key: value if isinstance(value, str) else json.dumps(value) for key, value in body.items()},
            [file_of(name.removeprefix(ATTACHED), each) for name, each in files.items()],
        )
        return await self._http.upload(path, form, secret=token)


def create(context: AdapterContext) -> TelegramAdapter:
    return TelegramAdapter(context)


def _media(call: Call) -> list[tuple[int, str]]:
    """Place and reference of each item that the call shows."""
    if call.method == "sendMediaGroup":
        return [(place, each["media"]) for place, each in zip(call.items, call.body["media"], strict=True)]
    return [(place, call.body[_field(call)]) for place in call.items]


def _filled(call: Call, handles: Mapping[int, str]) -> Mapping[str, Any]:
    """The body with what is known by now instead of the names of attachments."""
    if not handles:
        return call.body
    if call.method != "sendMediaGroup":
        return {**call.body, _field(call): handles[call.items[0]]}
    album = [
        {**each, "media": handles.get(place, each["media"])}
        for place, each in zip(call.items, call.body["media"], strict=True)
    ]
    return {**call.body, "media": album}


def _field(call: Call) -> str:
    return next(field for method, field in METHODS.values() if method == call.method)


async def _learn(
    channel: Channel, call: Call, resolved: Mapping[int, Resolved], messages: Sequence[Mapping[str, Any]]
) -> None:
    kinds = [each["type"] for each in call.body["media"]] if call.method == "sendMediaGroup" else None
    for at, (place, message) in enumerate(zip(call.items, messages, strict=False)):
        known = resolved.get(place)
        if known is not None and known.handle is None:
            file_id = _file_id(message, kinds[at] if kinds else _field(call))
            if file_id:
                await learn(channel, known, file_id)


def _file_id(message: Mapping[str, Any], kind: str) -> str | None:
    """Only under the kind that was sent: what Telegram made something else of goes by its name no more."""
    found = message.get(kind)
    if isinstance(found, list):  # the sizes of a photo, the largest of which it was made from
        sizes = [size for size in found if isinstance(size, dict)]
        found = max(sizes, key=lambda size: _pixels(size), default=None)
    file_id = found.get("file_id") if isinstance(found, dict) else None
    return file_id if isinstance(file_id, str) and file_id else None


def _pixels(size: Mapping[str, Any]) -> int:
    width, height = size.get("width"), size.get("height")
    return width * height if isinstance(width, int) and isinstance(height, int) else 0


def _messages(answer: Answer) -> list[Mapping[str, Any]]:
    """One, or those of an album in order."""
    data = answer.data or {}
    if answer.status != 200 or data.get("ok") is False:
        raise classify(refusal(answer))
    result = data.get("result")
    messages: list[Mapping[str, Any]] = [
        each for each in (result if isinstance(result, list) else [result]) if isinstance(each, dict)
    ]
    if data.get("ok") is not True or not messages or any(type(each.get("message_id")) is not int for each in messages):
        raise bad_answer(PLATFORM, answer.status, answer.text)
    return messages


def _made(messages: Sequence[Mapping[str, Any]]) -> Made:
    first = messages[0]
    raw = scalars(
        message_id=first["message_id"],
        chat_id=part(first, "chat").get("id"),
        date=first.get("date"),
        media_group_id=first.get("media_group_id"),
    )
    return Made([str(each["message_id"]) for each in messages], raw)
