"""The adapter contract: the only way out of Vestnik.

A platform is one object with a plan and two verbs. It gets everything as arguments, keeps nothing of a delivery between
calls, and says what went wrong as a ``SendError`` in the normalised form that the delivery engine understands.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from vestnik.errors import VestnikError

Category = Literal["TRANSIENT", "PERMANENT"]
Scope = Literal["delivery", "channel", "platform"]
ParseMode = Literal["HTML", "Markdown", "None"]
MediaType = Literal["image", "video", "audio", "file", "animation"]
LongText = Literal["refuse", "split", "truncate_with_link"]


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
class MediaItem:
    """One item of an ordered group; at least one of the references is set."""

    type: MediaType
    url: str | None = None
    file_id: str | None = None
    blob_ref: str | None = None
    attachment_token: str | None = None
    caption: str | None = None
    content_type: str | None = None
    size_bytes: int | None = None
    file_name: str | None = None
    width: int | None = None  # in pixels, of an image
    height: int | None = None


class Resolved(Protocol):
    """One item on its way to one platform: the platform's own handle for it, or the bytes to upload."""

    @property
    def item(self) -> MediaItem: ...

    @property
    def handle(self) -> str | None:
        """The platform's ``file_id`` or token, also one just learned; None: it is this sender's to upload, and nobody
        else's meanwhile."""

    def read(self) -> AsyncIterator[bytes]:
        """The bytes, from the beginning at each call; SendError ``media_missing_origin`` when they are gone."""

    async def learned(self, handle: str, *, expires_in: float | None = None) -> None:
        """The platform has it now. Others that wait for it go on with this handle."""

    async def forget(self) -> None:
        """The platform does not know the handle (any more): from now on it is this sender's to upload."""


class Depot(Protocol):
    """Where media come from, and where a platform's handle for one is kept for the next sender.

    Handles are kept by what an item is sent as (``type``), too: a photo's handle is none of a document. No item is
    named twice in one call. Leaving before something was learned lets the next sender upload it.
    """

    def resolve(
        self, channel: Channel, items: Sequence[MediaItem]
    ) -> AbstractAsyncContextManager[Sequence[Resolved]]: ...


class Series(Protocol):
    """How far a delivery of several calls has got. A retry goes on behind what was acknowledged."""

    @property
    def done(self) -> int:
        """How many calls of the plan were acknowledged in earlier attempts."""

    @property
    def message_ids(self) -> Sequence[str]:
        """What the platform called what it acknowledged."""

    async def turn(self) -> None:
        """Returns when the next call may be made: those of one delivery keep the rate of their channel, too."""

    async def acknowledge(self, message_ids: Sequence[str], items: Sequence[int]) -> None:
        """The next call of the plan was acknowledged; ``items`` are the places of its media. Raises SendError when the
        delivery is somebody else's by now."""


@dataclass(frozen=True, slots=True)
class SendMeta:
    """How: everything around the text. ``converter`` pins the version of the markup conversion and of the plan."""

    parse_mode: ParseMode = "None"
    disable_preview: bool = False
    buttons: Sequence[Sequence[Mapping[str, str]]] = ()
    trace_id: str | None = None
    idempotency_key: str | None = None
    converter: int = 1
    long_text: LongText = "refuse"
    more_link: str | None = None  # where truncate_with_link leads
    upload_policy: Mapping[str, str] = field(default_factory=dict)  # media type → upload_required | url_allowed
    largest: Mapping[str, int] = field(default_factory=dict)  # media type → bytes, where a server of one's own differs
    series: Series | None = None  # None: one attempt, nothing is remembered


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a platform's API as it will be made; ``items`` are the places of the media that travel with it.

    ``body`` is what is sent, apart from handles that only the upload will tell: ``attach://media2`` stands for the
    third item's. Preview shows it; sending makes it. Uploads that need calls of their own are not in a plan.
    """

    method: str
    body: Mapping[str, Any]
    items: Sequence[int] = ()
    text: str | None = None  # what the reader sees as the text of it, in the platform's form
    params: Mapping[str, str] = field(default_factory=dict)  # of the address


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

    def plan(self, channel: Channel, media: Sequence[MediaItem], text: str | None, meta: SendMeta) -> Sequence[Call]:
        """The calls that sending this would make, in order. Pure: the same arguments give the same plan for ever.
        Raises SendError (PERMANENT, delivery) for what cannot be sent."""

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


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom a credential belongs to; ``clock`` is what the platform's own clock said, in Unix seconds."""

    account_id: str
    name: str
    clock: float | None = None


@dataclass(frozen=True, slots=True)
class Rights:
    """``role`` is the platform's word for what the account is there; ``lacks`` names what keeps it from posting."""

    may_post: bool
    role: str
    lacks: str = ""


@dataclass(frozen=True, slots=True)
class Webhook:
    """An address that a platform sends its updates to, and what it says of it."""

    url: str
    pending: int | None = None
    error: str | None = None
    error_at: float | None = None  # Unix seconds


@runtime_checkable
class Examinable(Protocol):
    """What an adapter may be able to beyond sending: to tell how it stands with a credential. Nothing is changed by asking.
    Each raises SendError, or NotFound where there is no credential. Of ``channel`` the first and the last need no more than
    the workspace and the ``auth_ref``."""

    async def who_am_i(self, channel: Channel) -> Identity: ...

    async def rights(self, channel: Channel) -> Rights: ...

    async def webhooks(self, channel: Channel) -> Sequence[Webhook]: ...


ResolveSecret = Callable[[str, str, str], Awaitable[str]]
"""(workspace_id, platform, auth_ref) → the token; raises NotFound, which an adapter lets pass, ConfigError when what is
stored cannot be read, and anything else when it cannot be had now."""


@dataclass(frozen=True, slots=True)
class AdapterContext:
    """What an adapter is made from. ``base_urls`` and ``ca_files`` are keyed by platform, and hold what the settings
    ``VESTNIK_<PLATFORM>_API_URL`` and ``VESTNIK_<PLATFORM>_CA_FILE`` say: nothing, where they say nothing."""

    secret: ResolveSecret
    base_urls: Mapping[str, str]
    ca_files: Mapping[str, Path] = field(default_factory=dict)
    timeout: float = 30.0
    connections: int = 512
    depot: Depot | None = None  # without one, only text can be sent, and media that the platform has already


CreateAdapter = Callable[[AdapterContext], Adapter]
"""What an entry point of the group ``vestnik.adapters`` names."""
