"""What a workspace is configured with, as it is now. It is changed by declaring it: see ``apply``."""

from __future__ import annotations

from typing import Any

from vestnik.db.pool import Pool, call
from vestnik.errors import Conflict, NotFound

Row = dict[str, Any]


async def list_workspaces(pool: Pool, only: list[str] | None = None) -> list[Row]:
    query = (
        "select workspace_id, name, status, created_at from core.workspaces"
        " where %s::text[] is null or workspace_id = any (%s) order by 1"
    )
    return await call(pool, query, (only, only))


async def make_workspace(pool: Pool, workspace_id: str, name: str, *, actor: str) -> Row:
    query = """
        with made as (
            insert into core.workspaces (workspace_id, name) values (%s, %s)
            on conflict (workspace_id) do nothing returning workspace_id, name, status, created_at
        ), ruled as (
            insert into autopost.policies (workspace_id) select workspace_id from made
        )
        select made.*, core.note_change(made.workspace_id, %s, 'created', 'workspace ' || made.workspace_id) as noted from made"""
    rows = await call(pool, query, (workspace_id, name, actor))
    if not rows:
        raise Conflict(f"there is a workspace {workspace_id} already")
    return {name: value for name, value in rows[0].items() if name != "noted"}


async def list_channels(
    pool: Pool, workspace_id: str, *, platform: str | None = None, after: str = "", limit: int = 200
) -> list[Row]:
    """By their ids, those behind ``after``."""
    query = (
        f"{_CHANNELS} and c.channel_id > %s and (%s::text is null or c.platform = %s) order by c.channel_id limit %s"
    )
    return await call(pool, query, (workspace_id, after, platform, platform, limit))


async def show_channel(pool: Pool, workspace_id: str, channel_id: str) -> Row:
    rows = await call(pool, f"{_CHANNELS} and c.channel_id = %s", (workspace_id, channel_id))
    return _the(rows, f"channel {channel_id}", workspace_id)


async def remove_channel(pool: Pool, workspace_id: str, channel_id: str, *, actor: str) -> None:
    """Raises IllegalMove when it has had a delivery."""
    await call(pool, "select autopost.remove_channel(%s, %s, %s)", (workspace_id, actor, channel_id))


async def list_limits(pool: Pool, workspace_id: str) -> list[Row]:
    query = (
        "select platform, rate_group, rate_rps, nullif(cooldown_until, 'infinity') as cooldown_until, updated_at from autopost.platform_limits"
        " where workspace_id = %s order by 1, 2"
    )
    return await call(pool, query, (workspace_id,))


async def show_policy(pool: Pool, workspace_id: str) -> Row:
    row = (await call(pool, "select (autopost.policy_of(%s)).*", (workspace_id,)))[0]
    return {name: value for name, value in row.items() if name != "workspace_id"}


async def list_templates(pool: Pool, workspace_id: str) -> list[Row]:
    """The newest version of each."""
    query = (
        "select distinct on (template_id) template_id, version, parse_mode, created_at from autopost.templates"
        " where workspace_id = %s order by template_id, version desc"
    )
    return await call(pool, query, (workspace_id,))


async def show_template(pool: Pool, workspace_id: str, template_id: str, version: int | None = None) -> Row:
    rows = await call(
        pool,
        "select template_id, version, parse_mode, body, defaults, created_at from autopost.templates"
        " where workspace_id = %s and template_id = %s and (%s::integer is null or version = %s)"
        " order by version desc limit 1",
        (workspace_id, template_id, version, version),
    )
    return _the(rows, f"template {template_id}", workspace_id)


async def list_credentials(pool: Pool, workspace_id: str) -> list[Row]:
    """Their names alone: a token comes out to no one but an adapter."""
    query = (
        "select platform, auth_ref, secret_ref, rotated_at, updated_at from core.credential_bindings"
        " where workspace_id = %s order by 1, 2"
    )
    return await call(pool, query, (workspace_id,))


async def remove_credential(
    pool: Pool, workspace_id: str, platform: str, auth_ref: str, *, although_used: bool, actor: str
) -> None:
    """Raises IllegalMove when channels send with it, unless that is known."""
    query = "select autopost.remove_credential(%s, %s, %s, %s, %s)"
    await call(pool, query, (workspace_id, actor, platform, auth_ref, although_used))


async def show_source(pool: Pool, workspace_id: str, source_id: str) -> Row:
    query = (
        "select source_id, kind, enabled, every, cron, timezone, backlog, last_run_at, failures, last_error"
        " from autopost.pull_sources where workspace_id = %s and source_id = %s"
    )
    return _the(await call(pool, query, (workspace_id, source_id)), f"source {source_id}", workspace_id)


def _the(rows: list[Row], what: str, workspace_id: str) -> Row:
    if not rows:
        raise NotFound(f"no {what} in workspace {workspace_id}")
    return rows[0]


_CHANNELS = """
select c.channel_id, c.platform, c.target_id, coalesce(a.auth_ref, c.auth_ref) as auth_ref, c.rate_group, c.enabled, c.title,
       c.send_mode, c.rate_rps, c.max_parallel, c.timezone, c.window_mode, c.posting_window, c.min_gap,
       c.template_ref as template, c.dedup_ttl_hours, c.on_unknown, c.settings, c.tags, c.route_filter,
       nullif(c.paused_until, 'infinity') as paused_until, nullif(c.cooldown_until, 'infinity') as cooldown_until, c.error_streak, c.created_at, c.updated_at
from autopost.channels c
left join autopost.channel_auth a on a.workspace_id = c.workspace_id and a.channel_id = c.channel_id
where c.workspace_id = %s
"""
