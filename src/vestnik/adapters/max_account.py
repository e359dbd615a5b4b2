"""MAX: what its answers say of a bot: who it is, what it may do in a chat, where its updates go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vestnik.adapters.classify import bad_answer
from vestnik.adapters.contract import Identity, Rights, Webhook
from vestnik.adapters.http import Answer, moment
from vestnik.adapters.max_answers import checked
from vestnik.adapters.max_plan import PLATFORM

_MAY = "write"


def identity(answer: Answer) -> Identity:
    me = checked(answer)
    if type(me.get("user_id")) is not int:
        raise bad_answer(PLATFORM, answer.status, answer.text)
    return Identity(str(me["user_id"]), f"@{me.get('username') or me['user_id']}", moment(answer.date))


def rights(kind: Any, member: Mapping[str, Any]) -> Rights:
    """In a channel only administrators post, and of those only whom it was granted."""
    if member.get("is_owner") is True:
        return Rights(True, "owner")
    admin = member.get("is_admin") is True
    if kind != "channel":
        return Rights(True, "administrator" if admin else "member")
    if not admin:
        return Rights(False, "member", "in a channel only administrators may post")
    may = _MAY in (member.get("permissions") or ())
    return Rights(may, "administrator", "" if may else _MAY)


def webhooks(answer: Mapping[str, Any]) -> Sequence[Webhook]:
    """MAX tells no errors: who does not answer for eight hours is no longer subscribed."""
    found = answer.get("subscriptions")
    subscriptions = found if isinstance(found, list) else []
    return [Webhook(str(each["url"])) for each in subscriptions if isinstance(each, dict) and each.get("url")]
