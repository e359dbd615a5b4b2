"""A workspace as one declares it in YAML: what is written there is made true, what is not written is left alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from psycopg import sql
from psycopg.types.json import Jsonb
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vestnik.autopost.intake import secret_hash
from vestnik.db.pool import Connection
from vestnik.errors import ConfigError

DEFAULT_GROUP_RATE = 30.0  # what Telegram and MAX both take from one bot in a second
_JSON = {"settings", "route_filter", "posting_window", "meta"}


class _Declared(BaseModel):
    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)

    def written(self) -> dict[str, Any]:
        return self.model_dump(exclude_unset=True)


class RouteFilter(_Declared):
    include_any: list[str] = []
    include_all: list[str] = []
    exclude: list[str] = []


class Channel(_Declared):
    id: str
    platform: str
    target: str
    auth_ref: str
    rate_group: str | None = Field(None, description="The shared throttle; the auth_ref unless said otherwise.")
    enabled: bool = True
    title: str | None = None
    send_mode: Literal["text", "media", "mixed"] = "mixed"
    rate_rps: float | None = Field(1, ge=0)
    max_parallel: int = Field(1, ge=1)
    timezone: str | None = None
    dedup_ttl_hours: int | None = Field(168, ge=0)
    on_unknown: Literal["resend", "hold"] = "resend"
    settings: dict[str, Any] = {}
    tags: list[str] | None = None
    route_filter: RouteFilter | None = None


class Endpoint(_Declared):
    id: str
    kind: Literal["webhook_push", "bot_webhook"] = "webhook_push"
    secret: str | None = Field(None, min_length=16, description="Without it one is made and shown once.")
    enabled: bool = True
    ingress_rps: float = Field(5, gt=0)
    max_payload_bytes: int = Field(262144, gt=0)
    hash_drop_window_sec: int = Field(10, ge=0)
    meta: dict[str, Any] = {}


class Limit(_Declared):
    platform: str
    rate_group: str
    rate_rps: float | None = Field(None, ge=0)


class Credential(_Declared):
    platform: str
    auth_ref: str
    token: str = Field(min_length=1)


class Policy(_Declared):
    claim_per_channel: int | None = Field(None, gt=0)
    claim_horizon: timedelta | None = None
    max_attempts: int | None = Field(None, gt=0)
    backoff_base: timedelta | None = None
    backoff_factor: float | None = Field(None, ge=1)
    backoff_max: timedelta | None = None
    backoff_jitter: float | None = Field(None, ge=0, le=1)
    pause_on_permanent_for: timedelta | None = None
    disable_after_permanent_streak: int | None = Field(None, gt=0)
    platform_cooldown_for: timedelta | None = None
    sending_lease: timedelta | None = None
    claimed_lease: timedelta | None = None
    expired_send_backoff: timedelta | None = None
    dedup_ttl_hours: int | None = Field(None, ge=0)
    receipt_ttl: timedelta | None = None


class Workspace(_Declared):
    id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    name: str | None = None
    status: Literal["active", "paused", "disabled"] = "active"
    policy: Policy = Policy()
    credentials: list[Credential] = []
    endpoints: list[Endpoint] = []
    limits: list[Limit] = []
    channels: list[Channel] = []


class Declaration(_Declared):
    workspaces: list[Workspace]


def read_declaration(document: Any) -> Declaration:
    try:
        return Declaration.model_validate(document)
    except ValidationError as e:
        faults = [f"{'.'.join(map(str, f['loc']))}: {f['msg']}" for f in e.errors()]
        raise ConfigError("; ".join(faults)) from e


@dataclass(frozen=True, slots=True)
class Change:
    """One row that is made or altered: ``before`` is empty for a new one."""

    what: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One declared thing as the row that it stands for; ``once`` is written only when the row is made."""

    what: str
    table: tuple[str, str]
    key: dict[str, Any]
    columns: dict[str, Any]
    once: dict[str, Any] = field(default_factory=dict)


def rows_of(workspace: Workspace) -> Iterator[Row]:
    """In the order in which they can be written."""
    of = {"workspace_id": workspace.id}
    columns = {k: v for k, v in workspace.written().items() if k in ("name", "status")}
    yield Row(
        f"workspace {workspace.id}",
        ("core", "workspaces"),
        of,
        columns,
        {"name": workspace.name or workspace.id},
    )
    yield Row(f"policy of {workspace.id}", ("autopost", "policies"), of, workspace.policy.written())
    for limit in _all_limits(workspace):
        key = of | {"platform": limit.platform, "rate_group": limit.rate_group}
        rate = {"rate_rps": limit.rate_rps}
        written = "rate_rps" in limit.model_fields_set
        yield Row(
            f"limit {workspace.id}/{limit.platform}/{limit.rate_group}",
            ("autopost", "platform_limits"),
            key,
            rate if written else {},
            {"rate_rps": DEFAULT_GROUP_RATE},
        )
    for channel in workspace.channels:
        yield _channel_row(workspace, channel)


def _channel_row(workspace: Workspace, channel: Channel) -> Row:
    columns = channel.written() | {"rate_group": channel.rate_group or channel.auth_ref}
    columns["target_id"] = columns.pop("target")
    if channel.route_filter:
        columns["route_filter"] = {k: v for k, v in channel.route_filter.written().items() if v}
    key = {"workspace_id": workspace.id, "channel_id": columns.pop("id")}
    return Row(f"channel {workspace.id}/{channel.id}", ("autopost", "channels"), key, columns)


def _all_limits(workspace: Workspace) -> list[Limit]:
    """Those declared, and one for each group that a channel names: a group's lock exists with its first channel."""
    declared = {(limit.platform, limit.rate_group): limit for limit in workspace.limits}
    for channel in workspace.channels:
        group = channel.rate_group or channel.auth_ref
        declared.setdefault((channel.platform, group), Limit(platform=channel.platform, rate_group=group))
    return [declared[key] for key in sorted(declared)]


def endpoint_row(workspace: Workspace, endpoint: Endpoint, new_secret: str) -> Row:
    columns = endpoint.written()
    key = {"workspace_id": workspace.id, "endpoint_id": columns.pop("id")}
    secret = columns.pop("secret", None)
    if secret:
        columns["secret_hash"] = secret_hash(secret)
    return Row(
        f"endpoint {workspace.id}/{endpoint.id}",
        ("autopost", "workspace_endpoints"),
        key,
        columns,
        {"kind": endpoint.kind, "secret_hash": secret_hash(new_secret)},
    )


async def make_true(connection: Connection, row: Row) -> Change | None:
    """Write one row if it is not there or not like that; None when nothing was to be done."""
    table = sql.Identifier(*row.table)
    where = sql.SQL(" and ").join(
        sql.SQL("{} = {}").format(sql.Identifier(k), sql.Literal(v)) for k, v in row.key.items()
    )
    found = await connection.execute(sql.SQL("select * from {} where {}").format(table, where))
    before = await found.fetchone()
    if before is None:
        values = row.once | row.columns
        await _insert(connection, table, row.key | values)
        return Change(row.what, {}, values)
    after = {k: v for k, v in row.columns.items() if before[k] != v}
    if not after:
        return None
    sets = sql.SQL(", ").join(sql.SQL("{} = {}").format(sql.Identifier(k), sql.Placeholder()) for k in after)
    touched = sql.SQL(", updated_at = now()") if "updated_at" in before else sql.SQL("")
    query = sql.SQL("update {} set {}{} where {}").format(table, sets, touched, where)
    await connection.execute(query, [_adapted(k, v) for k, v in after.items()])
    return Change(row.what, {k: before[k] for k in after}, after)


async def _insert(connection: Connection, table: sql.Identifier, values: Mapping[str, Any]) -> None:
    names = sql.SQL(", ").join(map(sql.Identifier, values))
    places = sql.SQL(", ").join(sql.Placeholder() for _ in values)
    query = sql.SQL("insert into {} ({}) values ({})").format(table, names, places)
    await connection.execute(query, [_adapted(k, v) for k, v in values.items()])


def _adapted(column: str, value: Any) -> Any:
    return Jsonb(value) if column in _JSON and value is not None else value
