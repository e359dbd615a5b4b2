"""What the routes of the runbook take and answer."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Literal
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from vestnik.api.planning_schema import ChannelId, Reason
from vestnik.autopost.bulk import Selection, Status

Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00]*$")]
Moment = Annotated[AwareDatetime | None, Field(description="With its offset.")]
Deed = Literal["requeue", "cancel"]


class Because(BaseModel):
    model_config = ConfigDict(extra="forbid")
    reason: Reason


class Pause(Because):
    seconds: int = Field(ge=1, le=365 * 86400, description="How long nothing of the channel begins.")

    @property
    def duration(self) -> timedelta:
        return timedelta(seconds=self.seconds)


class Paused(BaseModel):
    channel_id: str
    paused_until: datetime


class OfGroup(Because):
    platform: Name | None = Field(None, description="Only channels of this platform; without it, of all.")


class Requeue(Because):
    deliveries: list[UUID] = Field(min_length=1, max_length=1000)


class Requeued(BaseModel):
    delivery_id: UUID
    channel_id: str | None = Field(description="Null: there is no such delivery.")
    outcome: Literal["requeued", "refused"]
    detail: str | None = Field(description="Why it was refused.")


class Select(BaseModel):
    """Deliveries of one status; whatever is given must hold."""

    model_config = ConfigDict(extra="forbid")
    status: Status = Field(description="For a requeue dead or failed_permanent, to cancel queued or retry.")
    channels: list[ChannelId] | None = Field(None, min_length=1, max_length=10000)
    platform: Name | None = None
    rate_group: Name | None = None
    code: Name | None = Field(None, description="Of its last error.")
    category: Literal["TRANSIENT", "PERMANENT"] | None = Field(None, description="Of its last error.")
    tag: Name | None = Field(None, description="Of the post.")
    since: Moment = Field(None, description="When it failed, or while it waits when it came in; with its offset.")
    until: Moment = Field(None, description="As since. What is counted answers the one to go on with.")

    def selection(self) -> Selection:
        return Selection(**self.model_dump())


class CountedChannel(BaseModel):
    channel_id: str
    count: int
    refused: int = Field(description="Of the selected, how many could not be moved.")
    oldest: datetime


class Counted(BaseModel):
    channels: list[CountedChannel]
    count: int
    refused: int
    until: datetime = Field(description="Move with it what was counted, and nothing that came later.")


class Move(Because):
    select: Select
    limit: int = Field(1000, ge=1, le=1000, description="At most so many in this call.")


class Moved(BaseModel):
    moved: int
    more: bool = Field(description="There may be more: call again.")


class RotateAuth(BaseModel):
    """Of the channels named, or of all that send with `from`."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    auth_ref: Name = Field(description="The credential that they shall send with; it must be there.")
    channels: list[ChannelId] | None = Field(None, min_length=1, max_length=1000)
    old: Name | None = Field(None, alias="from", description="All channels that send with this credential.")
    platform: Name | None = Field(None, description="With `from`: only channels of this platform.")
    rate_group: Name | None = Field(None, description="Their new rate group; without it they keep theirs.")
    wait_seconds: float = Field(20, ge=0, le=120, description="How long to wait until what is being sent has ended.")
    reason: Reason | None = None

    @property
    def wait(self) -> timedelta:
        return timedelta(seconds=self.wait_seconds)


class Rotated(BaseModel):
    channel_id: str
    outcome: Literal["rotated", "unchanged", "sending"] = Field(
        description="sending: what is being sent did not end in time; the channel keeps its credential."
    )
    old_auth_ref: str
    new_auth_ref: str
    sending: int


class Release(BaseModel):
    model_config = ConfigDict(extra="forbid")
    older_than_seconds: int = Field(600, ge=60, le=365 * 86400, description="Claimed or sending for so long.")

    @property
    def age(self) -> timedelta:
        return timedelta(seconds=self.older_than_seconds)


class Released(BaseModel):
    delivery_id: UUID
    channel_id: str
    from_status: Literal["claimed", "sending"]
    outcome: Literal["retry", "held"] = Field(description="held: its channel wants no post twice; somebody has to say.")
