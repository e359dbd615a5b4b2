"""MAX: the Bot API, as far as publishing needs it. What is called for a post: ``max_plan``.

A file is uploaded first, for a token that the message then names. MAX still works on it when the message comes
and may say ``attachment.not.ready``: the token is kept, and the retry needs no second upload. Tokens do not live
for ever, so they are a cache of a day. MAX has no idempotency key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from vestnik.adapters.classify import refused
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
from vestnik.adapters.http import Answer, PlatformHttp
from vestnik.adapters.max_account import identity, rights, webhooks
from vestnik.adapters.max_answers import checked, made
from vestnik.adapters.max_plan import PLATFORM, as_sent, chat_of, payload, plan
from vestnik.adapters.max_upload import upload
from vestnik.adapters.resolving import learn, with_media
from vestnik.adapters.series import Made, make

TOKEN = re.compile(r"[\x21-\x7e]{1,512}")  # it becomes a header
TOKEN_LIFETIME = 24 * 3600.0


class MaxAdapter:
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
        return identity(await self._ask(channel, "/me"))

    async def rights(self, channel: Channel) -> Rights:
        address = f"/chats/{chat_of(channel)}"
        chat = checked(await self._ask(channel, address))
        if chat.get("type") == "dialog":
            return Rights(True, "dialog")
        return rights(chat.get("type"), checked(await self._ask(channel, f"{address}/members/me")))

    async def webhooks(self, channel: Channel) -> Sequence[Webhook]:
        return webhooks(checked(await self._ask(channel, "/subscriptions")))

    async def close(self) -> None:
        await self._http.close()

    async def _ask(self, channel: Channel, path: str) -> Answer:
        """A question that changes nothing."""
        token = await self._http.token(channel, TOKEN)
        return await self._http.get(path, secret=token, headers={"Authorization": token})

    async def _send(self, channel: Channel, media: Sequence[MediaItem], text: str | None, meta: SendMeta) -> Sent:
        calls = plan(channel, media, text, meta)
        items = as_sent(media, meta)

        async def call(each: Call) -> Made:
            wanted = {place: items[place] for place in each.items if payload(items[place], meta) is None}

            async def send(resolved: Mapping[int, Resolved]) -> Made:
                # Not sooner: a handle that is learned belongs to the credential of this moment.
                token = await self._http.token(channel, TOKEN)
                return await self._post(token, each, await self._tokens(channel, token, resolved))

            return await with_media(self._depot, channel, wanted, send)

        return await make(calls, meta, call)

    async def _tokens(self, channel: Channel, token: str, resolved: Mapping[int, Resolved]) -> dict[int, str]:
        """What MAX calls each item; what it does not have yet is uploaded."""
        known: dict[int, str] = {}
        fresh: dict[int, str] = {}  # by object: one that stands in a message twice is uploaded once
        for place, each in resolved.items():
            handle = each.handle or fresh.get(id(each))
            if handle is None:
                handle = fresh[id(each)] = await upload(self._http, token, each, each.item.type)
                await learn(channel, each, handle, expires_in=TOKEN_LIFETIME)
            known[place] = handle
        return known

    async def _post(self, token: str, call: Call, tokens: Mapping[int, str]) -> Made:
        answer = await self._http.post(
            "/messages",
            secret=token,
            json=_filled(call, tokens),
            params=call.params,
            headers={"Authorization": token},
        )
        return made(answer)


def create(context: AdapterContext) -> MaxAdapter:
    return MaxAdapter(context)


def _filled(call: Call, tokens: Mapping[int, str]) -> Mapping[str, object]:
    """The body with the tokens in the place of their names. Media come before the keyboard."""
    if not tokens:
        return call.body
    attachments = [dict(each) for each in call.body["attachments"]]
    for attachment, place in zip(attachments, call.items, strict=False):
        if place in tokens:
            attachment["payload"] = {"token": tokens[place]}
    return {**call.body, "attachments": attachments}
