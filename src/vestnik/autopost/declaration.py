"""A workspace as one declares it in YAML: what is written there is made true, what is not written is left alone."""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from vestnik.adapters.contract import MediaType
from vestnik.adapters.registry import available
from vestnik.autopost.faults import told
from vestnik.autopost.sources import validate
from vestnik.errors import ConfigError
from vestnik.ops.alerts.declared import Alerts, NamedWebhook, ServiceAlerts
from vestnik.ops.durations import Duration

_YEAR = timedelta(days=365)
_MOST = 2**31 - 1


def _installed(platform: str) -> str:
    if platform not in (known := available()):
        raise ValueError(f"there is no adapter for {platform!r}; installed are {', '.join(known)}")
    return platform


Platform = Annotated[str, AfterValidator(_installed)]
_TARGETS = {
    "telegram": (r"-?\d{1,18}|@\w+", "the number of a chat or the @name of a public channel"),
    "max": (r"-?\d{1,18}", "the number of a chat"),
}
Rate = Annotated[float, Field(ge=0, le=100_000, allow_inf_nan=False)]


class _Declared(BaseModel):
    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)

    def written(self) -> dict[str, Any]:
        return self.model_dump(exclude_unset=True)


class RouteFilter(_Declared):
    include_any: list[str] = []
    include_all: list[str] = []
    exclude: list[str] = []


class Utm(_Declared):
    source: str | None = None
    medium: str | None = None
    campaign: str | None = None
    term: str | None = None
    content: str | None = None
    only_hosts: list[str] | None = Field(None, min_length=1, description="And what is below them; without it, all.")

    @field_validator("source", "medium", "campaign", "term", "content")
    @classmethod
    def _known_places(cls, value: str | None) -> str | None:
        if unknown := set(re.findall(r"\{[^{}]*\}", value or "")) - {"{channel}", "{platform}"}:
            raise ValueError(f"{', '.join(sorted(unknown))} stands for nothing; {{channel}} and {{platform}} do")
        return value

    @field_validator("only_hosts")
    @classmethod
    def _hosts(cls, hosts: list[str] | None) -> list[str] | None:
        for host in hosts or ():
            if not re.fullmatch(r"(\*\.|\.)?[^\s/:@?#.]+(\.[^\s/:@?#.]+)*", host):
                raise ValueError(f"{host!r} is not the name of a host, like shop.example")
        return hosts


class ChannelSettings(BaseModel):
    model_config = ConfigDict(extra="allow", coerce_numbers_to_str=True)
    parse_mode: Literal["HTML", "Markdown", "None"] | None = None
    disable_preview: bool | None = None
    message_thread_id: Annotated[str, Field(pattern=r"^[0-9]{1,18}$")] | None = None
    long_text: Literal["refuse", "split", "truncate_with_link"] | None = None
    large_image: Literal["document"] | None = None
    utm: Utm | None = None
    vars: dict[str, str] | None = None


class Channel(_Declared):
    id: str
    platform: Platform
    target: str
    auth_ref: str
    rate_group: str | None = Field(None, description="The shared throttle; the auth_ref unless said otherwise.")
    enabled: bool = True
    title: str | None = None
    send_mode: Literal["text", "media", "mixed"] = "mixed"
    rate_rps: Rate | None = 1
    max_parallel: int = Field(1, ge=1)
    timezone: str | None = Field(None, description="IANA name; what the posting window means by a time.")
    window_mode: Literal["immediate", "windowed"] | None = None
    posting_window: dict[str, Any] | None = None
    min_gap: Duration | None = Field(None, gt=timedelta(0), le=_YEAR)
    template: str | None = None
    dedup_ttl_hours: int | None = Field(168, ge=0)
    on_unknown: Literal["resend", "hold"] = "resend"
    settings: dict[str, Any] = {}
    tags: list[str] | None = None
    route_filter: RouteFilter | None = None

    @model_validator(mode="after")
    def _leads_somewhere(self) -> Channel:
        form, words = _TARGETS.get(self.platform, (".*", ""))
        if not re.fullmatch(form, self.target, re.ASCII | re.DOTALL):
            name = re.fullmatch(r"(?:(?:https?://)?t\.me/)?([A-Za-z]\w*)", self.target, re.ASCII)
            asked = f"; did you mean @{name[1]}?" if name and self.platform == "telegram" else ""
            raise ValueError(f"target {self.target!r} is not {words}{asked}")
        return self

    @field_validator("settings")
    @classmethod
    def _known_settings(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """Those that Vestnik reads must be what it reads; others are the adapter's, or yours."""
        try:
            ChannelSettings.model_validate(settings)
        except ValidationError as e:
            raise ValueError(told(ChannelSettings, settings, e, "settings")) from None
        return settings


class Endpoint(_Declared):
    id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")
    kind: Literal["webhook_push", "bot_webhook"] = "webhook_push"
    secret: str | None = Field(None, min_length=16, description="Without it one is made and shown once.")
    enabled: bool = True
    ingress_rps: float = Field(5, gt=0, allow_inf_nan=False)
    max_payload_bytes: int = Field(262144, gt=0)
    hash_drop_window_sec: int = Field(10, ge=0)
    meta: dict[str, Any] = {}


class Limit(_Declared):
    platform: Platform
    rate_group: str
    rate_rps: Rate | None = None


class Credential(_Declared):
    platform: str
    auth_ref: str
    token: str = Field(min_length=1)

    @model_validator(mode="after")
    def _is_filled_in(self) -> Credential:
        if self.platform in available() and (name := re.fullmatch(r"\$\{?(\w+)\}?", self.token)):
            raise ValueError(f"its token is the name of a variable; write ${{{name[1]}}} to have it filled in")
        return self


Keep = Annotated[Duration | None, Field(ge=timedelta(days=1), le=100 * _YEAR)]


DELIVERIES_KEPT = timedelta(days=90)  # the service's own measure


class Retention(_Declared):
    """How long what is kept; null is the service's own measure again. See docs/howto/retention.md."""

    events: Keep = None
    deliveries: Keep = None
    messages: Keep = None
    ingest_runs: Keep = None
    jobs: Keep = None
    media: Keep = None
    large_videos: Keep = None
    payloads: Keep = Field(None, description="What platforms answered in full; not longer than the deliveries.")
    raw_payloads: Literal["errors", "off"] | None = None
    payloads_may_outlive_deliveries: bool | None = None
    large_video_bytes: int | None = Field(
        None, gt=0, le=2**63 - 1, description="From how many bytes on a video is large."
    )
    archive_events: bool | None = Field(None, description="Days of the log go into the object store before they go.")

    @model_validator(mode="after")
    def _payloads_go_first(self) -> Retention:
        most = self.deliveries or DELIVERIES_KEPT
        if self.payloads and self.payloads > most and not self.payloads_may_outlive_deliveries:
            raise ValueError(
                "payloads would be kept longer than the deliveries that they tell of;"
                " write payloads_may_outlive_deliveries: true if that is meant"
            )
        return self


class Policy(_Declared):
    """No bound is wider than the table's."""

    claim_per_channel: int | None = Field(None, gt=0, le=_MOST)
    claim_horizon: Duration | None = Field(None, ge=timedelta(0), le=timedelta(days=1))
    max_attempts: int | None = Field(None, gt=0, le=_MOST)
    backoff_base: Duration | None = Field(None, ge=timedelta(0), le=_YEAR)
    backoff_factor: float | None = Field(None, ge=1, le=100)
    backoff_max: Duration | None = Field(None, ge=timedelta(0), le=_YEAR)
    backoff_jitter: float | None = Field(None, ge=0, le=1)
    not_ready_patience: Duration | None = Field(None, ge=timedelta(0), le=timedelta(days=1))
    pause_on_permanent_for: Duration | None = Field(None, ge=timedelta(0), le=_YEAR)
    disable_after_permanent_streak: int | None = Field(None, gt=0, le=_MOST)
    platform_cooldown_for: Duration | None = Field(None, ge=timedelta(0), le=_YEAR)
    sending_lease: Duration | None = Field(None, ge=timedelta(seconds=1), le=timedelta(days=7))
    claimed_lease: Duration | None = Field(None, ge=timedelta(seconds=1), le=timedelta(days=7))
    expired_send_backoff: Duration | None = Field(None, ge=timedelta(0), le=_YEAR)
    dedup_ttl_hours: int | None = Field(None, ge=0, le=_MOST)
    receipt_ttl: Duration | None = Field(None, ge=timedelta(0), le=10 * _YEAR)
    min_gap: Duration | None = Field(None, gt=timedelta(0), le=_YEAR)
    upload_policy: (
        dict[Literal["image", "video", "audio", "file"], Literal["upload_required", "url_allowed"]] | None
    ) = None
    media_max_bytes: dict[str, dict[MediaType, Annotated[int, Field(gt=0)]]] | None = None


class Template(_Declared):
    id: str = Field(min_length=1, max_length=64)
    parse_mode: Literal["HTML", "Markdown", "None"] = "None"
    body: str = Field(min_length=1)
    defaults: dict[str, str] = {}


class Source(_Declared):
    """What its ``config`` may hold depends on its kind: see vestnik.autopost.sources."""

    id: str = Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    kind: Literal["rss", "api", "db"]
    every: Duration | None = Field(None, ge=timedelta(seconds=10), le=_YEAR)
    cron: str | None = None
    timezone: str = "UTC"
    enabled: bool = True
    backlog: Literal["all"] | Annotated[int, Field(ge=0)] | None = Field(
        None, description="How many of the items already there are taken the first time; 1 for rss, else all."
    )
    config: dict[str, Any]

    @model_validator(mode="after")
    def _can_be_read(self) -> Source:
        if self.every and self.cron:
            raise ValueError("either every or cron, not both")
        try:
            validate(self.kind, self.config)
        except ConfigError as e:
            message = str(e)
        else:
            return self
        # Not chained: the fault of a DSN would carry the DSN.
        raise ValueError(message)


class Workspace(_Declared):
    id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    name: str | None = None
    status: Literal["active", "paused", "disabled"] = "active"
    policy: Policy = Policy()
    retention: Retention = Retention()
    credentials: list[Credential] = []
    endpoints: list[Endpoint] = []
    limits: list[Limit] = []
    templates: list[Template] = []
    sources: list[Source] = []
    channels: list[Channel] = []
    alerts: Alerts = Alerts()
    webhooks: list[NamedWebhook] = []


class Declaration(_Declared):
    workspaces: list[Workspace]
    alerts: ServiceAlerts = Field(ServiceAlerts(), description="Of the service itself.")


def read_declaration(document: Any) -> Declaration:
    document = _with_text_for_dates(document)
    if document is None:
        raise ConfigError("nothing is declared", hint="begin with the key workspaces")
    try:
        return Declaration.model_validate(document)
    except ValidationError as e:
        raise ConfigError(told(Declaration, document, e, "the declaration")) from e


def _with_text_for_dates(node: Any) -> Any:
    """YAML makes a date of 2027-01-31, but nothing that is declared is one, and JSON has none."""
    if isinstance(node, dict):
        return {_with_text_for_dates(key): _with_text_for_dates(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_with_text_for_dates(value) for value in node]
    return node.isoformat() if isinstance(node, date) else node
