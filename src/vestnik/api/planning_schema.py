"""What the planning routes take and answer."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

ChannelId = Annotated[str, Field(max_length=200, pattern=r"^[^\x00]*$")]
Channels = Annotated[
    list[ChannelId] | None,
    Field(min_length=1, max_length=10000, description="Only in these channels; without it, in all."),
]
Reason = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00]*$", description="Kept in the events.")]


class Cancel(BaseModel):
    model_config = ConfigDict(extra="forbid")
    reason: Reason = "cancelled by an operator"
    channels: Channels = None


class Reschedule(BaseModel):
    model_config = ConfigDict(extra="forbid")
    scheduled_for: AwareDatetime | None = Field(description="With its offset; null: as soon as may be.")
    reason: Reason = "rescheduled by an operator"
    channels: Channels = None


class Cancelled(BaseModel):
    delivery_id: UUID
    channel_id: str
    outcome: Literal["cancelled", "too_late"] = Field(description="too_late: its send has begun, or is about to.")


class Rescheduled(BaseModel):
    delivery_id: UUID
    channel_id: str
    outcome: Literal["rescheduled", "too_late", "held"] = Field(
        description="held: whether its last attempt arrived is not known, and somebody has to say."
    )
    goes_at: datetime | None = Field(description="At the earliest; null while its media are being fetched.")


class Replaced(BaseModel):
    outcome: Literal["accepted"]
    message_id: UUID
    trace_id: UUID
    run_id: UUID
    enqueued: int
    suppressed: int
    failed: int
    routed_by_tags: list[str] | None
    warnings: list[str]
    media_pending: int
    too_late: list[str] = Field(
        description="Channels that keep the old post: its send has begun there, it is held, or part of it is shown."
    )
    kept: dict[str, str] = Field(
        description="Channels that keep the old post for they would not get the new one, and why."
    )


class Conflict(BaseModel):
    channel_id: str
    first_delivery_id: UUID
    first_message_id: UUID
    first_at: datetime
    second_delivery_id: UUID
    second_message_id: UUID
    second_at: datetime
    gap: timedelta
    minimum: timedelta


class Conflicts(BaseModel):
    conflicts: list[Conflict]
    more: bool = Field(description="There are more than `limit`; these are the first.")


class Planned(BaseModel):
    goes_at: datetime | None = Field(description="At the earliest; null while media are fetched, or a person is asked.")
    channel_id: str
    status: Literal["queued", "claimed", "retry"]
    message_id: UUID
    delivery_id: UUID
    scheduled_for: datetime | None
    shows: str | None = Field(description="How its text begins.")


class PreviewCall(BaseModel):
    """One call of the platform's API, as it will be made."""

    method: str
    text: str | None = Field(description="What the reader sees as the text of it, in the platform's markup.")
    media: list[dict[str, Any]] = Field(description="The items that travel with it, in order.")
    body: dict[str, Any] = Field(
        description="What is sent; attach://media2 stands for what is uploaded of the third item."
    )
    params: dict[str, str] = Field(description="Of the address.")


class PreviewChannel(BaseModel):
    channel_id: str
    title: str | None
    platform: str
    target_id: str
    outcome: Literal["enqueued", "suppressed", "refused", "not_routed"]
    reason: str | None = Field(description="Why not, when it is not enqueued.")
    goes_at: datetime | None = Field(description="At the earliest: its schedule and the channel's window.")
    media_pending: bool = Field(description="It waits until its media are fetched.")
    template_version: str | None
    warnings: list[str]
    calls: list[PreviewCall]


class Preview(BaseModel):
    channels: list[PreviewChannel] = Field(description="Those that match come first; at most 500.")
    matching: int
    total: int = Field(description="How many channels the workspace has.")
    warnings: list[str] = Field(description="About the post as a whole.")
