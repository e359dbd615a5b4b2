"""``/v1/adapters/{platform}/…``: the adapter contract for n8n and others that keep the queue's protocol themselves."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Path
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator, model_validator

from vestnik.api.access import READ_ONLY, REFUSED, Database, Principal, caller_in, demand
from vestnik.api.payload_schema import Button, Media
from vestnik.autopost.adapter_calls import Caller, Post, send_begun, send_post
from vestnik.autopost.declaration import ChannelSettings
from vestnik.errors import InvalidPayload
from vestnik.ops.access import Caller as Asking
from vestnik.ops.operators import Operator

Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00]*$")]
Platform = Annotated[str, Path(max_length=64, pattern=r"^[a-z0-9][a-z0-9_-]*$", examples=["telegram"])]

EXAMPLES: list[Any] = [
    {"workspace_id": "demo", "delivery_id": "01a1f5a4-a9b6-742d-beb5-ddf5f45ffeae", "lease": 1},
    {"channel_id": "news", "text": "<b>Hello</b>", "parse_mode": "HTML", "idempotency_key": "order-1"},
]


class SendText(BaseModel):
    """Either `delivery_id` and `lease`, as begin_sending gave them out: everything else is read from the database, so a whole
    row of begin_sending may be sent as it is. Or a post: `text`, and `channel_id` or `target_id` and `auth_ref`."""

    model_config = ConfigDict(json_schema_extra={"examples": EXAMPLES})
    workspace_id: Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")] | None = Field(
        None, description="Needed of an operator; a key is of one workspace."
    )
    delivery_id: UUID | None = None
    lease: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    channel_id: Name | None = None
    target_id: Name | None = Field(None, validation_alias=AliasChoices("target_id", "target"))
    auth_ref: Name | None = None
    settings: dict[str, Any] | None = Field(None, description="Above those of the channel.")
    text: Annotated[str, Field(max_length=65536, pattern=r"^[^\x00]*$")] | None = None
    parse_mode: Literal["HTML", "Markdown", "None"] = "None"
    disable_preview: bool = False
    buttons: Annotated[list[Annotated[list[Button], Field(max_length=30)]], Field(max_length=30)] = []
    idempotency_key: Name | None = Field(
        None, description="The same call again gets the first one's answer for two days."
    )
    trace_id: Name | None = None

    @model_validator(mode="after")
    def _whole(self) -> SendText:
        if (self.delivery_id is None) != (self.lease is None):
            raise ValueError("delivery_id and lease come together")
        if self.delivery_id is None:
            self.must_say_what()
        return self

    @field_validator("settings")
    @classmethod
    def _known_settings(cls, settings: dict[str, Any] | None) -> dict[str, Any] | None:
        if settings is not None:
            ChannelSettings.model_validate(settings)
        return settings

    def must_say_what(self) -> None:
        if not self.text:
            raise ValueError("text is missing, or delivery_id and lease")


class SendMedia(SendText):
    """As send_text, with `media`; `text` becomes the caption."""

    media: Annotated[list[Media], Field(max_length=100)] = []

    def must_say_what(self) -> None:
        if not self.media:
            raise ValueError("media is missing, or delivery_id and lease")


class AdapterError(BaseModel):
    """In the form that schedule_retry and fail_permanent take."""

    category: Literal["TRANSIENT", "PERMANENT"]
    scope: Literal["delivery", "channel", "platform"]
    code: str
    message: str
    retry_after_ms: int | None = None
    scope_named: bool | None = None
    raw: dict[str, Any] = {}


class Outcome(BaseModel):
    """`ok`: then `provider_message_id`, `sent_at` and `meta` are what mark_sent takes. Otherwise `error`."""

    ok: bool
    provider_message_id: str | None = None
    provider_message_ids: list[str] = []
    sent_at: datetime | None = None
    meta: dict[str, Any] = {}
    error: AdapterError | None = None
    repeated: bool = Field(
        description="This call came before; its answer is the first one's, and nothing was sent again."
    )


def adapter_routes(caller: Caller) -> APIRouter:
    router = APIRouter(prefix="/v1/adapters", tags=["adapters"], responses=REFUSED | READ_ONLY)

    @router.post("/{platform}/send_text", summary="Send a text", response_model_exclude_none=True)
    async def send_text(pool: Database, who: Principal, platform: Platform, body: SendText) -> Outcome:
        """Answers 200 also when it was not sent: `ok` says which, `error.category` whether to try again."""
        return await _send(pool, caller, who, platform, body, ())

    @router.post("/{platform}/send_media", summary="Send media with a text", response_model_exclude_none=True)
    async def send_media(pool: Database, who: Principal, platform: Platform, body: SendMedia) -> Outcome:
        """Answers 200 also when it was not sent: `ok` says which, `error.category` whether to try again."""
        media = [item.model_dump(exclude_none=True) for item in body.media]
        _refuse_ambiguous(media)
        return await _send(pool, caller, who, platform, body, media)

    return router


async def _send(
    pool: Database, caller: Caller, who: Asking | Operator, platform: str, body: SendText, media: Any
) -> Outcome:
    workspace_id = body.workspace_id or (who.workspace_id if isinstance(who, Asking) else None)
    if workspace_id is None:
        raise InvalidPayload(["workspace_id: is missing; an operator may work in several"])
    by = demand(await caller_in(pool, who, workspace_id), "change")
    if body.delivery_id is not None and body.lease is not None:
        return Outcome(**await send_begun(caller, workspace_id, platform, body.delivery_id, body.lease))
    post = Post(
        text=body.text,
        media=media,
        channel_id=body.channel_id,
        target_id=body.target_id,
        auth_ref=body.auth_ref,
        settings=body.settings or {},
        parse_mode=body.parse_mode,
        disable_preview=body.disable_preview,
        buttons=[[button.model_dump() for button in row] for row in body.buttons],
        trace_id=body.trace_id,
    )
    return Outcome(**await send_post(caller, workspace_id, platform, post, body.idempotency_key, actor=by.name))


def _refuse_ambiguous(media: list[dict[str, Any]]) -> None:
    for place, item in enumerate(media):
        if len(item.keys() & {"url", "blob_ref", "file_id", "attachment_token"}) != 1:
            raise InvalidPayload([f"media.{place}: exactly one of url, blob_ref, file_id and attachment_token"])
