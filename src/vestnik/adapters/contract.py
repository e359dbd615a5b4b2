"""The adapter contract: the only way out of Vestnik.

A platform is one object with two verbs. It gets everything as arguments, keeps nothing of a delivery between
calls, and says what went wrong as a ``SendError`` in the normalised form that the delivery engine understands.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from vestnik.errors import VestnikError

Category = Literal["TRANSIENT", "PERMANENT"]
Scope = Literal["delivery", "channel", "platform"]
ParseMode = Literal["HTML", "Markdown", "None"]


@dataclass(frozen=True, slots=True)
class Channel:
    """Where to: one destination on one platform."""

    workspace_id: str
    channel_id: str
    platform: str
    target_id: str
    auth_ref: str
    rate_group: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SendMeta:
    """How: everything around the text. ``converter`` pins the version of the markup conversion."""

    parse_mode: ParseMode = "None"
    disable_preview: bool = False
    buttons: Sequence[Sequence[Mapping[str, str]]] = ()
    trace_id: str | None = None
    idempotency_key: str | None = None
    converter: int = 1


@dataclass(frozen=True, slots=True)
class MediaItem:
    """One item of an ordered group; exactly one of the references is set."""

    type: Literal["image", "video", "audio", "file", "animation"]
    url: str | None = None
    file_id: str | None = None
    blob_ref: str | None = None
    attachment_token: str | None = None
    caption: str | None = None


@dataclass(frozen=True, slots=True)
class Sent:
    """The platform has it. ``raw`` is the platform's own answer, for the audit log."""

    provider_message_id: str
    raw: Mapping[str, Any]


class SendError(VestnikError):
    """A send that did not happen, or is not known to have happened."""

    def __init__(
        self,
        *,
        category: Category,
        scope: Scope,
        code: str,
        message: str,
        retry_after_ms: int | None = None,
        scope_named: bool = False,
        raw: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.category = category
        self.scope = scope
        self.code = code
        self.message = message
        self.retry_after_ms = retry_after_ms
        self.scope_named = scope_named  # the platform itself said that the whole credential is limited
        self.raw = raw or {}

    def as_json(self) -> dict[str, Any]:
        """The normalised error as the SQL functions take it."""
        error: dict[str, Any] = {
            "category": self.category,
            "scope": self.scope,
            "code": self.code,
            "message": self.message,
            "raw": dict(self.raw),
        }
        if self.retry_after_ms is not None:
            error["retry_after_ms"] = self.retry_after_ms
        if self.scope_named:
            error["scope_named"] = True
        return error


class Adapter(Protocol):
    """One platform."""

    platform: str
    media: bool  # whether send_media is to be had

    async def send_text(self, channel: Channel, text: str, meta: SendMeta) -> Sent: ...

    async def send_media(
        self,
        channel: Channel,
        media: Sequence[MediaItem],
        text: str | None,
        links: Sequence[str],
        meta: SendMeta,
    ) -> Sent: ...

    async def close(self) -> None: ...


ResolveSecret = Callable[[str, str, str], Awaitable[str]]
"""(workspace_id, platform, auth_ref) → the token; raises NotFound, which an adapter lets pass."""


@dataclass(frozen=True, slots=True)
class AdapterContext:
    """What an adapter is made from. ``base_urls`` and ``ca_files`` are keyed by platform."""

    secret: ResolveSecret
    base_urls: Mapping[str, str]
    ca_files: Mapping[str, Path] = field(default_factory=dict)
    timeout: float = 30.0
    connections: int = 512


CreateAdapter = Callable[[AdapterContext], Adapter]
"""What an entry point of the group ``vestnik.adapters`` names."""
