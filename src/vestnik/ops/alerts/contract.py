"""What is told, to whom, and by what way: the platforms' ways come from above, mail and webhooks are here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from vestnik.errors import VestnikError

Language = Literal["en", "ru"]
Kind = Literal["telegram", "max", "email", "webhook"]
Notice = Mapping[str, Any]
"""A row of ``ops.unheard``: alert, subject, news (raised, repeated, cleared), severity, summary, details, …"""


@dataclass(frozen=True, slots=True)
class Target:
    """``credential_workspace``: whose credential a target of the service uses."""

    workspace_id: str
    target_id: str
    kind: Kind
    address: str
    language: Language
    auth_ref: str | None = None
    credential_workspace: str | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Target:
        return cls(**{name: row[name] for name in cls.__slots__})


@dataclass(frozen=True, slots=True)
class Message:
    """``notices`` are what a program reads; ``message_id`` stays the same when the same is told again."""

    message_id: str
    title: str
    text: str
    notices: Sequence[Notice]


class TellFailed(VestnikError):
    """The target did not acknowledge it. Without secrets, and without what the other side wrote."""

    def __init__(self, code: str, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.code, self.retry_after = code, retry_after

    def as_json(self) -> dict[str, Any]:
        error = {"type": "TellFailed", "code": self.code, "message": str(self), "retry_after": self.retry_after}
        return {name: value for name, value in error.items() if value is not None}


Way = Callable[[Target, Message], Awaitable[None]]
"""Returns when the target has acknowledged the message; raises TellFailed."""
