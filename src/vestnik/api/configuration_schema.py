"""What the configuration routes answer."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from pydantic import BaseModel, Field

from vestnik.autopost.rows import Change, tellable


class WorkspaceRow(BaseModel):
    workspace_id: str
    name: str
    status: str
    created_at: datetime


class Made(BaseModel):
    """One thing that is made or altered: `before` is empty for a new one."""

    what: str
    before: dict[str, Any]
    after: dict[str, Any]

    @classmethod
    def of(cls, change: Change) -> Made:
        return cls(what=change.what, before=tellable(change.before), after=tellable(change.after))


class AppliedChanges(BaseModel):
    dry_run: bool = Field(description="Nothing of it was done.")
    changes: list[Made]
    secrets: dict[str, str] = Field(description="Of endpoints that were made, by their names; shown this once.")
    moved: dict[str, int] = Field(description="Posts that wait for another moment now, by their channels.")
    resumed: dict[str, str] = Field(description="Why a channel is not held back any more.")
    warnings: list[str]


class Channel(BaseModel):
    channel_id: str
    platform: str
    target_id: str
    auth_ref: str
    rate_group: str
    enabled: bool
    title: str | None
    send_mode: str
    rate_rps: float | None
    max_parallel: int
    timezone: str | None
    window_mode: str
    posting_window: dict[str, Any] | None
    min_gap: timedelta | None
    template: str | None
    dedup_ttl_hours: int | None
    on_unknown: str
    settings: dict[str, Any]
    tags: list[str] | None
    route_filter: dict[str, Any] | None
    paused_until: datetime | None
    cooldown_until: datetime | None
    error_streak: int
    created_at: datetime
    updated_at: datetime


class OfEndpoint(BaseModel):
    endpoint_id: str
    kind: str
    enabled: bool
    ingress_rps: float
    max_payload_bytes: int
    created_at: datetime


class NewSecret(BaseModel):
    endpoint_id: str
    secret: str = Field(description="Shown this once.")


class Limit(BaseModel):
    platform: str
    rate_group: str
    rate_rps: float | None
    cooldown_until: datetime | None
    updated_at: datetime


class OfTemplate(BaseModel):
    template_id: str
    version: int
    parse_mode: str
    created_at: datetime


class Template(OfTemplate):
    body: str
    defaults: dict[str, Any]


class OfSource(BaseModel):
    source_id: str
    kind: str
    enabled: bool
    every: timedelta | None
    cron: str | None
    timezone: str
    backlog: int | None = Field(description="How many old items are taken the first time; null for all.")
    last_run_at: datetime | None
    failures: int
    last_error: dict[str, Any] | None


class OfCredential(BaseModel):
    platform: str
    auth_ref: str
    secret_ref: str
    rotated_at: datetime | None
    updated_at: datetime
