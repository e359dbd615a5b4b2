"""What is declared, as the rows of the database that it stands for; and one row, made true."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from psycopg import sql
from psycopg.types.json import Jsonb

from vestnik.autopost.declaration import Channel, Endpoint, Limit, Source, Workspace
from vestnik.autopost.intake import secret_hash
from vestnik.db.pool import Connection

DEFAULT_GROUP_RATE = 30.0  # what Telegram and MAX both take from one bot in a second
EVERY = timedelta(minutes=5)
# A feed shows what is old as well; an API and a query are asked for what shall be published.
FIRST_OF: dict[str, int | Literal["all"]] = {"rss": 1, "api": "all", "db": "all"}
_JSON = {
    "settings",
    "route_filter",
    "posting_window",
    "meta",
    "config_json",
    "upload_policy",
    "media_max_bytes",
    "options",
}
_RETENTION_OPTIONS = {
    "archive_events": ("events", "archive"),
    "large_video_bytes": ("large_videos", "from_bytes"),
    "raw_payloads": ("payloads", "raw_payloads"),
    "payloads_may_outlive_deliveries": ("payloads", "may_outlive_deliveries"),
}


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
    yield from _retention_rows(workspace)
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


def _retention_rows(workspace: Workspace) -> Iterator[Row]:
    """What is written of a rule: how long, and what else some want to know."""
    columns: dict[str, dict[str, Any]] = {}
    for name, value in workspace.retention.written().items():
        rule, option = _RETENTION_OPTIONS.get(name, (name, None))
        kept = columns.setdefault(rule, {})
        if option:
            kept["options"] = kept.get("options", {}) | ({option: value} if value is not None else {})
        else:
            kept["keep"] = value
    for rule, values in sorted(columns.items()):
        key = {"workspace_id": workspace.id, "rule": rule}
        yield Row(f"retention {workspace.id}/{rule}", ("ops", "retention"), key, values)


def _channel_row(workspace: Workspace, channel: Channel) -> Row:
    columns = channel.written() | {"rate_group": channel.rate_group or channel.auth_ref}
    columns["target_id"] = columns.pop("target")
    if "template" in columns:
        columns["template_ref"] = columns.pop("template")
    if channel.window_mode is None:
        columns.pop("window_mode", None)
        if "posting_window" in columns:
            columns["window_mode"] = "windowed" if channel.posting_window else "immediate"
    if channel.route_filter:
        columns["route_filter"] = {k: v for k, v in channel.route_filter.written().items() if v}
    key = {"workspace_id": workspace.id, "channel_id": columns.pop("id")}
    return Row(f"channel {workspace.id}/{channel.id}", ("autopost", "channels"), key, columns)


def source_row(workspace: Workspace, source: Source) -> Row:
    key = {"workspace_id": workspace.id, "source_id": source.id}
    backlog = source.backlog if source.backlog is not None else FIRST_OF[source.kind]
    rhythm = source.every or (None if source.cron else EVERY)
    columns = {
        "kind": source.kind,
        "config_json": source.config,
        "every": rhythm,
        "cron": source.cron,
        "timezone": source.timezone,
        "enabled": source.enabled,
        "backlog": None if backlog == "all" else backlog,
    }
    return Row(f"source {workspace.id}/{source.id}", ("autopost", "pull_sources"), key, columns)


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


async def note_changes(connection: Connection, workspace_id: str, actor: str, changes: Sequence[Change]) -> None:
    """On record, in the transaction of the changes. What may hold a secret is told by its name alone."""
    noted = [
        {
            "action": "changed" if change.before else "created",
            "subject": change.what.replace(f" {workspace_id}/", " ", 1),
            "before": tellable(change.before),
            "after": tellable(change.after),
        }
        for change in changes
    ]
    if noted:
        await connection.execute(_NOTE, (workspace_id, actor, Jsonb(noted)))


def tellable(values: Mapping[str, Any]) -> dict[str, Any]:
    return {column: "(secret)" if column in _SECRET else value for column, value in values.items()}


_SECRET = {"secret_hash", "config_json", "token", "url", "address"}
_NOTE = """
select core.note_change(%s, %s, n ->> 'action', n ->> 'subject',
           jsonb_build_object('before', n -> 'before', 'after', n -> 'after'))
from jsonb_array_elements(%s) n
"""


async def _insert(connection: Connection, table: sql.Identifier, values: Mapping[str, Any]) -> None:
    names = sql.SQL(", ").join(map(sql.Identifier, values))
    places = sql.SQL(", ").join(sql.Placeholder() for _ in values)
    query = sql.SQL("insert into {} ({}) values ({})").format(table, names, places)
    await connection.execute(query, [_adapted(k, v) for k, v in values.items()])


def _adapted(column: str, value: Any) -> Any:
    return Jsonb(value) if column in _JSON and value is not None else value
