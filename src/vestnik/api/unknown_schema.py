"""What the routes of unknown outcomes, findings and forecasts take and answer."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from vestnik.api.planning_schema import Reason

ChannelId = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00]*$")]


class Held(BaseModel):
    held_at: datetime
    channel_id: str
    delivery_id: UUID
    message_id: UUID
    attempt: int
    began_at: datetime | None = Field(description="When its last send began: look at the channel from then on.")
    code: str | None
    message: str | None
    parts: int = Field(description="How many messages of its series are known to be shown.")
    shows: str | None = Field(description="How its text begins.")


class HeldList(BaseModel):
    held: list[Held]
    total: int


class ConfirmOne(BaseModel):
    model_config = ConfigDict(extra="forbid")
    reason: Reason
    provider_message_id: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00]*$")] | None = Field(
        None, description="What the platform calls the message, if it is known."
    )


class ResendOne(BaseModel):
    model_config = ConfigDict(extra="forbid")
    reason: Reason


class OfChannel(BaseModel):
    model_config = ConfigDict(extra="forbid")
    channel_id: ChannelId
    reason: Reason
    until: AwareDatetime | None = Field(None, description="Only what was held by then; without it, by now.")


class Settled(BaseModel):
    delivery_id: UUID
    outcome: Literal["confirmed", "resent"]


class SettledMany(BaseModel):
    count: int
    deliveries: list[UUID] = Field(description="At most a thousand of them.")


class Finding(BaseModel):
    source: Literal["integrity", "proof"]
    kind: str
    subject: str = Field(description="What it is about: a delivery, most often.")
    says: str
    details: dict[str, Any]
    found_at: datetime
    last_seen_at: datetime


class ForecastChannel(BaseModel):
    channel_id: str
    title: str | None
    platform: str
    rate_group: str
    outcome: Literal["enqueued", "never", "suppressed", "refused", "not_routed"] = Field(
        description="never: it is meant for this channel, which is switched off."
    )
    reason: str | None
    ahead: int | None = Field(description="How many deliveries wait in the channel and go before it.")
    goes_at: datetime | None = Field(description="At the earliest, by its schedule and the channel's hours.")
    leaves_at: datetime | None = Field(description="When its send would begin, by rates, queue, hours and pauses.")
    media_pending: bool = Field(description="Its files have to be fetched first; how long that takes is not known.")


class Forecast(BaseModel):
    channels: list[ForecastChannel] = Field(description="Those that would get it come first; at most 500.")
    first_at: datetime | None
    last_at: datetime | None
    leaving: int = Field(description="How many channels would get it.")
    never: int
    total: int = Field(description="How many channels the workspace has.")
