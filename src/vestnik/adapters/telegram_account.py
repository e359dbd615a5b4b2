"""Telegram: what its answers say of a bot: who it is, what it may do in a chat, where its updates go; and why it refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vestnik.adapters.classify import Refusal, bad_answer, classify
from vestnik.adapters.contract import Identity, Rights, Webhook
from vestnik.adapters.http import Answer, moment, part, scalars
from vestnik.adapters.telegram_plan import PLATFORM

_MAY = "can_post_messages"


def result(answer: Answer) -> Mapping[str, Any]:
    """The object that was asked for; raises SendError."""
    data = answer.data or {}
    if answer.status != 200 or data.get("ok") is False:
        raise classify(refusal(answer))
    if data.get("ok") is not True or not isinstance(data.get("result"), dict):
        raise bad_answer(PLATFORM, answer.status, answer.text)
    return part(data, "result")


def refusal(answer: Answer) -> Refusal:
    data = answer.data or {}
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


def identity(answer: Answer) -> Identity:
    me = result(answer)
    if type(me.get("id")) is not int:
        raise bad_answer(PLATFORM, answer.status, answer.text)
    return Identity(str(me["id"]), f"@{me.get('username') or me['id']}", moment(answer.date))


def rights(kind: Any, member: Mapping[str, Any]) -> Rights:
    """In a channel only administrators post, and of those only whom it was granted; in a group everybody may whom nobody
    restricts."""
    role = str(member.get("status"))
    if role == "creator":
        return Rights(True, role)
    if kind == "channel":
        if role != "administrator":
            return Rights(False, role, "in a channel only administrators may post")
        return Rights(True, role) if member.get(_MAY) is True else Rights(False, role, _MAY)
    if role == "restricted":
        may = member.get("is_member") is True and member.get("can_send_messages") is True
        return Rights(may, role, "" if may else "can_send_messages")
    return Rights(
        role in ("administrator", "member"), role, "" if role in ("administrator", "member") else "membership"
    )


def webhooks(info: Mapping[str, Any]) -> Sequence[Webhook]:
    url = info.get("url")
    if not isinstance(url, str) or not url:
        return ()
    pending, error, at = (info.get(key) for key in ("pending_update_count", "last_error_message", "last_error_date"))
    return (
        Webhook(
            url,
            pending if isinstance(pending, int) else None,
            error if isinstance(error, str) else None,
            float(at) if isinstance(at, int | float) else None,
        ),
    )
