"""Make a declaration true, in one transaction, and say what changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import psycopg
from psycopg.types.json import Jsonb

from vestnik.autopost.alerting import Made, apply_alerts, apply_webhooks
from vestnik.autopost.declaration import Channel, Declaration, Source, Template, Workspace
from vestnik.autopost.doubts import refuse_shared_destinations, slips
from vestnik.autopost.rows import Change, Row, endpoint_row, make_true, note_changes, rows_of, source_row
from vestnik.autopost.sources.schedule import schedule_source
from vestnik.autopost.verbs import new_secret
from vestnik.db.pool import Connection, Pool, retrying
from vestnik.errors import ConfigError
from vestnik.ops.jobs.verbs import SERVICE
from vestnik.ops.secrets.credentials import Credentials

_HOURS = {"window_mode", "posting_window", "timezone"}
_REMEDIES = {"auth_ref": "another auth_ref", "target_id": "another target", "enabled": "enabled again"}


@dataclass(frozen=True, slots=True)
class Applied:
    changes: list[Change] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict)  # of the endpoints that were made, by their name
    signatures: dict[str, str] = field(default_factory=dict)  # secrets of webhooks that were made, by what they are
    moved: dict[str, int] = field(default_factory=dict)  # waiting posts with another moment, by their channel
    resumed: dict[str, str] = field(default_factory=dict)  # why a channel is not held back any more
    warnings: list[str] = field(default_factory=list)


class _OnlyLooking(Exception):
    pass


async def apply(
    pool: Pool, credentials: Credentials, declaration: Declaration, *, dry_run: bool = False, actor: str = "apply"
) -> Applied:
    """Each change is on record, as ``actor``'s."""
    applied = Applied()

    async def work(connection: Connection) -> None:
        applied.changes.clear()
        applied.secrets.clear()
        applied.signatures.clear()
        applied.moved.clear()
        applied.resumed.clear()
        applied.warnings.clear()
        for workspace in declaration.workspaces:
            known = len(applied.changes)
            await _apply_workspace(connection, credentials, workspace, applied, actor)
            await note_changes(connection, workspace.id, actor, applied.changes[known:])
        if "alerts" in declaration.model_fields_set:
            known = len(applied.changes)
            _note(applied, await apply_alerts(connection, credentials.box, SERVICE, declaration.alerts))
            await note_changes(connection, SERVICE, actor, applied.changes[known:])
        if dry_run:
            raise _OnlyLooking

    if any(workspace.credentials for workspace in declaration.workspaces):
        await credentials.verify()
    try:
        await retrying(pool, work)
    except _OnlyLooking:
        pass
    except psycopg.IntegrityError as e:
        raise ConfigError(_in_words(e)) from e
    return applied


async def _apply_workspace(
    connection: Connection, credentials: Credentials, workspace: Workspace, applied: Applied, actor: str
) -> None:
    await refuse_shared_destinations(connection, workspace)
    made = [await _apply_row(connection, row, applied) for row in rows_of(workspace)]
    changes = [change for change in made if change]
    for channel in workspace.channels:
        await _refuse_bad_window(connection, workspace.id, channel)
    await _follow_new_hours(connection, workspace, changes, applied, actor)
    for template in workspace.templates:
        await _apply_template(connection, workspace.id, template, applied)
    await _refuse_missing_templates(connection, workspace)
    for source in workspace.sources:
        await _apply_source(connection, workspace, source, applied)
    for name, row, secret in _endpoints(workspace):
        change = await _apply_row(connection, row, applied)
        if change and not change.before and secret:
            applied.secrets[name] = secret
    for credential in workspace.credentials:
        if await credentials.store(
            connection, workspace.id, credential.platform, credential.auth_ref, credential.token
        ):
            what = f"credential {workspace.id}/{credential.platform}/{credential.auth_ref}"
            applied.changes.append(Change(what, {}, {"token": "(secret)"}))
            names = (workspace.id, actor, credential.platform, credential.auth_ref)
            found = await connection.execute(_NEW_TOKEN, names)
            applied.resumed.update({row["channel"]: "a new token" for row in await found.fetchall()})
    await _resume_altered(connection, workspace, changes, applied, actor)
    if "alerts" in workspace.model_fields_set:
        _note(applied, await apply_alerts(connection, credentials.box, workspace.id, workspace.alerts))
    _note(applied, await apply_webhooks(connection, credentials.box, workspace.id, workspace.webhooks))
    applied.warnings.extend(await slips(connection, workspace))


def _note(applied: Applied, made: list[Made]) -> None:
    applied.changes.extend(change for change, _ in made)
    applied.signatures.update({change.what: secret for change, secret in made if secret})


async def _apply_row(connection: Connection, row: Row, applied: Applied) -> Change | None:
    change = await make_true(connection, row)
    if change:
        applied.changes.append(change)
    return change


async def _refuse_bad_window(connection: Connection, workspace_id: str, channel: Channel) -> None:
    if channel.posting_window is None and channel.window_mode is None and channel.timezone is None:
        return
    found = await connection.execute(
        "select case when window_mode = 'windowed' then autopost.window_problem(posting_window, timezone)"
        " else autopost.timezone_problem(timezone) end as problem"
        " from autopost.channels where workspace_id = %s and channel_id = %s",
        (workspace_id, channel.id),
    )
    row = await found.fetchone()
    if row and row["problem"]:
        raise ConfigError(f"workspaces.{workspace_id}.channels.{channel.id}.{row['problem']}")


async def _follow_new_hours(
    connection: Connection, workspace: Workspace, changes: list[Change], applied: Applied, actor: str
) -> None:
    """What waits in a channel whose hours are others now goes when these say."""
    changed = {change.what for change in changes if change.before and _HOURS & set(change.after)}
    for channel in sorted(workspace.channels, key=lambda channel: channel.id):
        if f"channel {workspace.id}/{channel.id}" in changed:
            query = "select autopost.replan_channel(%s, %s, %s) as moved, pg_notify('vestnik_wake', %s)"
            found = await connection.execute(query, (workspace.id, channel.id, actor, workspace.id))
            row = await found.fetchone()
            if row and row["moved"]:
                applied.moved[f"{workspace.id}/{channel.id}"] = row["moved"]


async def _resume_altered(
    connection: Connection, workspace: Workspace, changes: list[Change], applied: Applied, actor: str
) -> None:
    """A channel that was refused for what it is now without."""
    altered = {change.what: change.after for change in changes if change.before}
    for channel in sorted(workspace.channels, key=lambda channel: channel.id):
        after = altered.get(f"channel {workspace.id}/{channel.id}", {})
        if "auth_ref" in after:
            await connection.execute(_FOLLOW, (after["auth_ref"], workspace.id, channel.id))
        if reason := ", ".join(words for column, words in _REMEDIES.items() if column in after):
            found = await connection.execute(_ALTERED, (workspace.id, actor, reason, [channel.id]))
            applied.resumed.update({row["channel"]: reason for row in await found.fetchall()})


_NEW_TOKEN = """
select w.id || '/' || f as channel
from (values (%s)) w (id), autopost.forgive_credential(w.id, %s, %s, %s) f
"""
# Where a rotation has left a row, that row is what counts.
_FOLLOW = """
update autopost.channel_auth set auth_ref = %s, rotated_at = now(), updated_at = now() where workspace_id = %s and channel_id = %s
"""
_ALTERED = """
select w.id || '/' || f as channel, pg_notify('vestnik_wake', w.id)
from (values (%s)) w (id), autopost.forgive_channels(w.id, %s, %s, %s, now()) f
"""


async def _apply_template(connection: Connection, workspace_id: str, template: Template, applied: Applied) -> None:
    """A body that differs is a new version; posts that were rendered with an older one keep their text."""
    before = await _newest_version(connection, workspace_id, template.id)
    try:
        await connection.execute(
            "select autopost.save_template(%s, %s, %s, %s, %s)",
            (workspace_id, template.id, template.body, Jsonb(template.defaults), template.parse_mode),
        )
    except psycopg.Error as e:
        if e.sqlstate != "VP001":
            raise
        problem = "; ".join(json.loads(e.diag.message_detail or "[]")) or e.diag.message_primary
        raise ConfigError(f"workspaces.{workspace_id}.templates.{template.id}.{problem}") from e
    after = await _newest_version(connection, workspace_id, template.id)
    if before != after:
        old = {"version": before} if before else {}
        applied.changes.append(Change(f"template {workspace_id}/{template.id}", old, {"version": after}))


async def _newest_version(connection: Connection, workspace_id: str, template_id: str) -> int | None:
    found = await connection.execute(
        "select max(version) as version from autopost.templates where workspace_id = %s and template_id = %s",
        (workspace_id, template_id),
    )
    row = await found.fetchone()
    return row["version"] if row else None


async def _refuse_missing_templates(connection: Connection, workspace: Workspace) -> None:
    for channel in workspace.channels:
        if channel.template and await _newest_version(connection, workspace.id, channel.template) is None:
            place = f"workspaces.{workspace.id}.channels.{channel.id}.template"
            raise ConfigError(f"{place}: there is no template {channel.template}")


async def _apply_source(connection: Connection, workspace: Workspace, source: Source, applied: Applied) -> None:
    await _apply_row(connection, source_row(workspace, source), applied)
    await schedule_source(connection, workspace.id, source.id)


def _endpoints(workspace: Workspace) -> Iterator[tuple[str, Row, str | None]]:
    for endpoint in workspace.endpoints:
        secret = new_secret()
        yield (
            f"{workspace.id}/{endpoint.id}",
            endpoint_row(workspace, endpoint, secret),
            None if endpoint.secret else secret,
        )


def _in_words(error: psycopg.IntegrityError) -> str:
    match error.diag.constraint_name:
        case "channels_route_filter_shape" | "channels_tags_check":
            return "tags and route_filter take lower-case strings only"
        case "channels_workspace_id_platform_target_id_key":
            return "a channel cannot take over the target of another in one step; give that one its new target first"
        case "workspace_endpoints_active_secret":
            return "two enabled endpoints have the same secret"
    if isinstance(error, psycopg.errors.NotNullViolation):
        return f"{error.diag.column_name} cannot be null; leave it out to keep what is there"
    detail = error.diag.message_detail or ""
    return (None if detail.startswith("Failing row") else detail) or error.diag.message_primary or str(error)
