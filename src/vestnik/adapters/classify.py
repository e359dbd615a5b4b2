"""What a platform said, turned into the normalised error: one baseline for every platform.

A status decides by itself where it can. Words decide only where the status is too coarse: Telegram says
"chat not found" with a 400, MAX says no with a 200. A rule by words therefore has a name of its own, which
becomes the error's code; everywhere else the code is the platform's key, or else the HTTP status.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from vestnik.adapters.contract import Category, Scope, SendError
from vestnik.redaction import redact

LONGEST_WAIT = 7 * 24 * 3600.0  # no platform means more than this; a nonsense number must not park a channel
TEXT_LIMIT = 500


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that is not a yes, taken apart by the adapter that knows its shape."""

    platform: str
    status: int
    text: str = ""
    code: str = ""
    retry_after: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    category: Category
    scope: Scope
    words: re.Pattern[str]


def _rule(name: str, category: Category, scope: Scope, *words: str) -> Rule:
    return Rule(name, category, scope, re.compile("|".join(words), re.IGNORECASE))


MEDIA_EXPIRED = "media_expired"
NOT_READY = "attachment.not.ready"
ACTED_ON = (MEDIA_EXPIRED, NOT_READY)  # what is done about them must not depend on what a platform calls them


# Read from the top. The payload's own faults come before everything about chats, because their texts quote
# what the author wrote: an address with "forbidden" in it must not pause a channel.
RULES = (
    _rule(NOT_READY, "TRANSIENT", "delivery", r"attachment\.not\.ready", r"\.not\.processed"),
    _rule(
        MEDIA_EXPIRED,
        "PERMANENT",
        "delivery",
        r"wrong (remote )?file.?id",
        r"FILE_REFERENCE_",
        r"file is temporarily unavailable",
        r"attachment\.(expired|not\.found)",
        r"(attachment|photo|image|video|audio|file|upload)[ .]token",
        r"token[ .](is |has |not )?(expired|found)",
    ),
    _rule(
        "media_refused",
        "PERMANENT",
        "delivery",
        r"failed to get HTTP URL content",
        r"wrong type of the web page content",
        r"WEBPAGE_(CURL_FAILED|MEDIA_EMPTY)",
        r"PHOTO_\w+",
        r"(IMAGE|VIDEO|MEDIA|FILE)_\w*(FAILED|INVALID|EMPTY)",
        r"\bis too big\b",
        r"file must be non-empty",
        r"can't use file of type",
    ),
    _rule(
        "message_too_long",
        "PERMANENT",
        "delivery",
        r"message_too_long",
        r"(message|caption|text) is too long",
        r"MEDIA_CAPTION_TOO_LONG",
    ),
    _rule(
        "bad_payload",
        "PERMANENT",
        "delivery",
        r"proto\.payload",
        r"can't parse",
        r"inline keyboard",
        r"BUTTON_\w+_INVALID",
        r"text is empty",
    ),
    _rule(
        "chat_migrated",
        "PERMANENT",
        "channel",
        r"upgraded to a supergroup",
        r"migrated to a supergroup",
        r"migrate_to_chat_id",
    ),
    _rule(
        "thread_not_found",
        "PERMANENT",
        "channel",
        r"message thread not found",
        r"TOPIC_(CLOSED|DELETED|ID_INVALID)",
    ),
    _rule(
        "chat_not_found",
        "PERMANENT",
        "channel",
        r"chat not found",
        r"chat\.not\.found",
        r"user not found",
        r"chat_id is empty",
        r"PEER_ID_INVALID",
        r"CHANNEL_INVALID",
    ),
    _rule(
        "no_access",
        "PERMANENT",
        "channel",
        r"bot was (blocked|kicked)",
        r"not a member",
        r"user is deactivated",
        r"chat was (deactivated|deleted)",
        r"not enough rights",
        r"have no rights",
        r"need administrator rights",
        r"CHAT_(WRITE_FORBIDDEN|ADMIN_REQUIRED|RESTRICTED|SEND_\w+_FORBIDDEN)",
        r"CHANNEL_PRIVATE",
        r"USER_IS_BLOCKED",
        r"chat\.denied",
        r"access\.denied",
        r"access denied",
        r"dialog\.suspended",
    ),
    _rule("unauthorized", "PERMANENT", "channel", r"verify\.token", r"access_token", r"unauthorized"),
    _rule("unavailable", "TRANSIENT", "platform", r"internal (server )?error", r"temporarily unavailable"),
)

_LIMITED = re.compile(r"too.many.requests|retry after \d|flood control|SLOWMODE_WAIT|FLOOD_WAIT", re.IGNORECASE)
_WAIT = re.compile(r"(?:retry (?:after|in)|_WAIT_)\D{0,3}(\d{1,7})", re.IGNORECASE)
_ONE_CHAT = re.compile(r"SLOWMODE|slow mode", re.IGNORECASE)
# No description of Telegram's is known to name the bot; MAX's list of texts is not published. These words
# cost nothing and are believed if they ever come.
_WHOLE_BOT = re.compile(r"\b(this|whole|entire|per) (bot|token)\b|\bbot(-| is )(wide|limited)\b", re.IGNORECASE)


def classify(refusal: Refusal) -> SendError:
    """The verdict on an answer that is not a yes."""
    said = " ".join([refusal.code, refusal.text, *refusal.extra])
    if refusal.status < 500:
        if refusal.status == 429 or refusal.retry_after is not None or _LIMITED.search(said):
            return _limited(refusal, said)
        for rule in RULES:
            if rule.words.search(said):
                return _error(refusal, rule.category, rule.scope, _code(refusal, rule))
    category, scope = _by_status(refusal.status)
    return _error(refusal, category, scope, _code(refusal, None))


def unanswered(platform: str, code: str, *, sent: bool, detail: str, status: int | None = None) -> SendError:
    """No answer that can be read. Once a request is on the wire the platform may have acted on it."""
    detail = redact(detail)[:TEXT_LIMIT]
    raw: dict[str, Any] = {"outcome": "unknown" if sent else "not_sent", "detail": detail}
    if status is not None:
        raw["status"] = status
    what = "no usable answer, the message may have arrived" if sent else "the platform was not reached"
    return SendError(
        category="TRANSIENT",
        scope="platform",
        code=code,
        message=f"{platform}: {what}: {detail}",
        raw=raw,
    )


def bad_answer(platform: str, status: int, text: str) -> SendError:
    """A status that promises success, over a body that does not show it."""
    return unanswered(platform, "bad_answer", sent=True, detail=text.strip() or "empty body", status=status)


def refused(platform: str, scope: Literal["delivery", "channel"], code: str, message: str) -> SendError:
    """An adapter's own refusal, before anything is sent."""
    return SendError(
        category="PERMANENT",
        scope=scope,
        code=code,
        message=f"{platform}: {message}",
        raw={"outcome": "not_sent"},
    )


def _limited(refusal: Refusal, said: str) -> SendError:
    wait = refusal.retry_after
    if wait is None and (named := _WAIT.search(said)):
        wait = float(named[1])
    scope: Scope = "channel" if _ONE_CHAT.search(said) else "platform"
    named_all = _WHOLE_BOT.search(refusal.text) is not None
    return _error(refusal, "TRANSIENT", scope, "429", wait=wait, scope_named=named_all)


def _by_status(status: int) -> tuple[Category, Scope]:
    if status >= 500 or status in (408, 425) or 300 <= status < 400:
        return "TRANSIENT", "platform"
    if status == 409:
        return "TRANSIENT", "delivery"
    if status in (401, 403, 404):
        return "PERMANENT", "channel"
    return "PERMANENT", "delivery"


def _code(refusal: Refusal, rule: Rule | None) -> str:
    if refusal.status >= 500:
        return str(refusal.status)
    if rule is not None and rule.name in ACTED_ON:
        return rule.name
    if refusal.code:
        return refusal.code
    if rule is not None and refusal.status in (200, 400):
        return rule.name
    return "refused" if refusal.status == 200 else str(refusal.status)


def _error(
    refusal: Refusal,
    category: Category,
    scope: Scope,
    code: str,
    *,
    wait: float | None = None,
    scope_named: bool = False,
) -> SendError:
    text = redact(refusal.text.strip())[:TEXT_LIMIT]  # before the cut: half a token is still half a token
    wait = refusal.retry_after if wait is None else wait
    raw: dict[str, Any] = {"status": refusal.status, "description": text, **refusal.extra}
    if refusal.code:
        raw["code"] = refusal.code
    if refusal.status == 504:
        raw["outcome"] = "unknown"  # a gateway that gave up waiting does not know either
    return SendError(
        category=category,
        scope=scope,
        code=code[:64],
        message=f"{refusal.platform}: {text or f'HTTP {refusal.status}'}",
        retry_after_ms=None if wait is None else round(min(max(0.0, wait), LONGEST_WAIT) * 1000),
        scope_named=scope_named,
        raw=raw,
    )
