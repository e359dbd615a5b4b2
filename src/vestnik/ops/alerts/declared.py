"""What one declares of alerts and webhooks, in YAML and over HTTP alike."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from vestnik.errors import ConfigError
from vestnik.ops.alerts.contract import Kind, Language
from vestnik.ops.alerts.mail import recipients
from vestnik.ops.durations import Duration
from vestnik.ops.webhooks.signing import checked

_YEAR = timedelta(days=365)
Event = Literal["delivery.dead", "delivery.failed_permanent", "channel.disabled"]
_ALL_EVENTS: list[Event] = ["delivery.dead", "delivery.failed_permanent", "channel.disabled"]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
AlertName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_.]{0,63}$")]
_ADDRESSES = {
    "telegram": (r"-?\d{1,18}|@\w{1,64}", "the number of a chat or the @name of a public channel"),
    "max": (r"-?\d{1,18}", "the number of a chat"),
    "email": (r"[^\x00-\x1f\x7f]+", "a mail address, or several with commas between"),
    "webhook": (r"https?://[^\s\x00]{1,1900}", "an http or https address"),
}


def _usable(secret: str) -> str:
    try:
        return checked(secret)
    except ConfigError as e:
        raise ValueError(str(e)) from None


Secret = Annotated[str, Field(max_length=200), AfterValidator(_usable)]


class Declared(BaseModel):
    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)

    def written(self) -> dict[str, Any]:
        return self.model_dump(exclude_unset=True)


class AlertPolicy(Declared):
    """No bound is wider than the table's."""

    failed_permanent_max: int = Field(10, ge=0, le=2**31 - 1)
    failed_permanent_within: Duration = Field(timedelta(minutes=10), ge=timedelta(seconds=1), le=timedelta(days=30))
    paused_channels_max: int = Field(3, ge=0, le=2**31 - 1)
    waiting_longest: Duration = Field(timedelta(minutes=10), ge=timedelta(seconds=1), le=_YEAR)
    missed_intervals: int = Field(3, ge=1, le=1000)
    oldest_xmin: Duration = Field(timedelta(hours=1), ge=timedelta(seconds=1), le=_YEAR)
    disk_free_percent: float = Field(10, ge=0, le=100, allow_inf_nan=False)
    repeat_every: Duration = Field(timedelta(hours=4), ge=timedelta(minutes=1), le=_YEAR)
    clear_after: Duration = Field(timedelta(minutes=5), ge=timedelta(0), le=timedelta(days=1))


class AlertTarget(Declared):
    kind: Kind
    address: str = Field(min_length=1, max_length=2000, description="A chat, mail addresses, or the URL of a webhook.")
    auth_ref: str | None = Field(None, min_length=1, max_length=200, description="The bot that writes to the chat.")
    language: Language = "en"
    min_severity: Literal["warning", "critical"] = "warning"
    alerts: list[AlertName] | None = Field(None, max_length=100, description="Only these; without it, all.")
    enabled: bool = True

    @model_validator(mode="after")
    def _leads_somewhere(self) -> AlertTarget:
        form, words = _ADDRESSES[self.kind]
        if not re.fullmatch(form, self.address, re.ASCII):
            raise ValueError(f"its address is not {words}")
        if self.kind == "email":
            recipients(self.address)
        if self.kind in ("telegram", "max") and not self.auth_ref:
            raise ValueError(f"a target of kind {self.kind} names the auth_ref of its bot")
        return self


class Webhook(Declared):
    url: str = Field(pattern=r"^https?://[^\s\x00]+$", max_length=2000)
    events: list[Event] = Field(_ALL_EVENTS, min_length=1, max_length=3)
    enabled: bool = True


class NamedTarget(AlertTarget):
    """As it stands in a file. ``secret``: of a webhook; without it one is made and shown once."""

    id: Name
    secret: Secret | None = None


class ServiceTarget(NamedTarget):
    credential_workspace: Name | None = Field(None, description="Whose credential: the service has none of its own.")

    @model_validator(mode="after")
    def _names_a_workspace(self) -> ServiceTarget:
        if self.auth_ref and not self.credential_workspace:
            raise ValueError("a target of the service names the workspace of its credential: credential_workspace")
        return self


class NamedWebhook(Webhook):
    id: Name
    secret: Secret | None = Field(None, description="Without it one is made and shown once.")


class Alerts(Declared):
    policy: AlertPolicy = AlertPolicy()
    targets: list[NamedTarget] = []


class ServiceAlerts(Declared):
    policy: AlertPolicy = AlertPolicy()
    targets: list[ServiceTarget] = []
