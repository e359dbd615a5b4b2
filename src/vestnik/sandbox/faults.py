"""Faults on demand: what an emulated platform does instead of answering well.

A fault belongs to a chat or to a whole platform. Of those that apply, the chat's come before the platform's,
and the first that fires is played. ``kind`` is one of KINDS, or an HTTP status such as ``403``:

========================  ============================================================================
``429``, any 4xx or 5xx   the platform's own error body with that status
``5xx``                   one of 500 502 503 504
``slow``                  the answer comes ``latency_ms`` later
``timeout``               no answer ever comes, nothing was accepted
``timeout_after_accept``  the message was accepted, no answer ever comes
``reset``                 the connection is reset, nothing was accepted
``reset_after_accept``    the message was accepted, the connection is reset before the answer
``success_false``         HTTP 200 that says no (MAX: ``success: false``; Telegram: ``ok: false``)
``garbage``               HTTP 200 with a page of HTML, nothing was accepted
``truncated``             the message was accepted, HTTP 200 with the first half of the answer
``cut``                   the message was accepted, the connection ends in the middle of the answer
``not_ready``             MAX only: 400 ``attachment.not.ready``, to messages with an uploaded file in them
``redirect``              the site only: 302 to ``location``, or to the same address again
``endless``               the site only: HTTP 200, and after what was asked for zeros without end
========================  ============================================================================

``method`` limits it to one method: ``sendMediaGroup``, or with MAX ``messages``, ``uploads`` or ``upload_host``,
which is another server and has only the faults that name it; of the site ``files``, ``feeds`` or one of them, such
as ``files/a.png``. ``after`` lets that many calls pass first. ``probability`` (by a die with a ``seed``, so a run
repeats) and ``times`` limit how often it fires; ``latency_ms`` delays any of them; ``retry_after``, ``code`` and
``message`` go into the error body.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from typing import Any

KINDS = (
    "5xx",
    "slow",
    "timeout",
    "timeout_after_accept",
    "reset",
    "reset_after_accept",
    "success_false",
    "garbage",
    "truncated",
    "cut",
    "not_ready",
    "redirect",
    "endless",
)
_ONLY = {"not_ready": "max", "redirect": "site", "endless": "site"}
UPLOAD_HOST = "upload_host"
METHODS = {
    "telegram": (
        *("getMe", "getChat", "getChatMember", "getWebhookInfo", "setWebhook", "deleteWebhook", "getFile", "download"),
        *("sendMessage", "deleteMessage", "sendMediaGroup"),
        *("sendPhoto", "sendVideo", "sendDocument", "sendAudio", "sendAnimation"),
    ),
    "max": ("me", "chats", "subscriptions", "messages", "uploads", UPLOAD_HOST),
    "site": ("files", "feeds"),
}
MOST_FAULTS = 32
_NUMBERS = {
    "retry_after": (0, 1_000_000),
    "latency_ms": (0, 600_000),
    "probability": (0, 1),
    "times": (1, 10**9),
    "after": (0, 10**9),
}
_TEXTS = ("method", "code", "message", "location")
_SHOWN = ("kind", *_TEXTS, *_NUMBERS, "seed")


class BadFault(ValueError):
    """A fault that cannot be played; the text says why."""


@dataclass(frozen=True, slots=True)
class Call:
    """What a fault looks at: what is called, and whether a file that was uploaded before is named in it."""

    method: str = ""
    attached: bool = False


ANY = Call()


@dataclass(slots=True)
class Fault:
    kind: str
    method: str | None = None
    after: int = 0  # how many calls pass before it may fire
    retry_after: float | None = None
    latency_ms: float = 0.0
    probability: float = 1.0
    times: int | None = None  # how often it fires before it is gone
    seed: int = 0
    code: str | None = None  # of the error body, where the platform has such a key
    message: str | None = None  # of the error body
    location: str | None = None  # of a redirect
    seen: int = 0
    fired: int = 0
    dice: random.Random = field(default_factory=random.Random, repr=False)

    def concerns(self, call: Call) -> bool:
        if self.kind == "not_ready" and not call.attached:
            return False
        if self.method is None:
            return call.method != UPLOAD_HOST
        wanted, called = self.method.lower(), call.method.lower()
        return called == wanted or called.startswith(f"{wanted}/")

    def fires(self) -> bool:
        self.seen += 1
        if self.seen <= self.after:
            return False
        if self.dice.random() >= self.probability:
            return False
        self.fired += 1
        return True

    def spent(self) -> bool:
        return self.times is not None and self.fired >= self.times

    def status(self) -> int | None:
        """The HTTP status that it answers with, if that is what it does."""
        if self.kind == "5xx":
            return self.dice.choice((500, 502, 503, 504))
        return int(self.kind) if self.kind.isdigit() else None

    def as_json(self) -> dict[str, Any]:
        shown = {name: getattr(self, name) for name in _SHOWN}
        return {**shown, "fired": self.fired}


def pick(*books: list[Fault], call: Call = ANY) -> Fault | None:
    """The first fault that fires. One that has fired its number of times is taken out of its book."""
    for book in books:
        for fault in list(book):
            if fault.concerns(call) and fault.fires():
                if fault.spent():
                    book.remove(fault)
                return fault
    return None


def parse_faults(body: Any, platform: str | None = None) -> list[Fault]:
    """One fault, or a list of them; those of a platform have only what that platform can play."""
    items = body if isinstance(body, list) else [body]
    if len(items) > MOST_FAULTS:
        raise BadFault(f"at most {MOST_FAULTS} faults in one place")
    return [_parse(item, platform) for item in items]


def _parse(item: Any, platform: str | None) -> Fault:
    if not isinstance(item, dict):
        raise BadFault('a fault is an object such as {"kind": "429", "retry_after": 3}')
    if unknown := sorted(set(item) - set(_SHOWN)):
        raise BadFault(f"unknown keys: {', '.join(unknown)}; known: {', '.join(sorted(_SHOWN))}")
    kind = str(item.get("kind", ""))
    if kind not in KINDS and not re.fullmatch(r"[45]\d\d", kind):
        raise BadFault(f"kind is one of {', '.join(KINDS)}, or an HTTP status from 400 to 599")
    numbers = {name: _number(name, item[name]) for name in _NUMBERS if item.get(name) is not None}
    for name in _TEXTS:
        if item.get(name) is not None and not isinstance(item[name], str):
            raise BadFault(f"{name} is a text")
    if not (item.get("location") or "").isprintable():
        raise BadFault("location is an address")
    seed = item.get("seed") or 0
    if not isinstance(seed, int):
        raise BadFault("seed is a whole number")
    _check_place(kind, item.get("method"), platform)
    texts: dict[str, Any] = {name: item.get(name) for name in _TEXTS}
    fault = Fault(kind, **texts, seed=seed, dice=random.Random(seed))
    fault.retry_after = numbers.get("retry_after")
    fault.latency_ms = numbers.get("latency_ms", 1000.0 if kind == "slow" else 0.0)
    fault.probability = numbers.get("probability", 1.0)
    fault.times = int(numbers["times"]) if "times" in numbers else None
    fault.after = int(numbers.get("after", 0))
    return fault


def _check_place(kind: str, method: str | None, platform: str | None) -> None:
    if platform is None:
        return
    if _ONLY.get(kind, platform) != platform:
        raise BadFault(f"{kind} is only for {_ONLY[kind]}")
    known = {name.lower() for name in METHODS[platform]}
    wanted = (method or "").lower()
    if method is not None and (wanted.partition("/")[0] if platform == "site" else wanted) not in known:
        raise BadFault(f"method is one of {', '.join(METHODS[platform])}")


def _number(name: str, value: Any) -> float:
    low, high = _NUMBERS[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise BadFault(f"{name} is a number from {low} to {high}")
    return float(value)
