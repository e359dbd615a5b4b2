"""Make a declaration true, in one transaction, and say what changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import psycopg

from vestnik.autopost.declaration import Change, Declaration, Row, Workspace, endpoint_row, make_true, rows_of
from vestnik.autopost.verbs import new_secret
from vestnik.db.pool import Connection, Pool, retrying
from vestnik.errors import ConfigError
from vestnik.ops.secrets.credentials import Credentials


@dataclass(frozen=True, slots=True)
class Applied:
    changes: list[Change] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict)  # of the endpoints that were made, by their name


class _OnlyLooking(Exception):
    pass


async def apply(pool: Pool, credentials: Credentials, declaration: Declaration, *, dry_run: bool = False) -> Applied:
    applied = Applied()

    async def work(connection: Connection) -> None:
        applied.changes.clear()
        applied.secrets.clear()
        for workspace in declaration.workspaces:
            await _apply_workspace(connection, credentials, workspace, applied)
        if dry_run:
            raise _OnlyLooking

    try:
        await retrying(pool, work)
    except _OnlyLooking:
        pass
    except psycopg.IntegrityError as e:
        raise ConfigError(_in_words(e)) from e
    return applied


async def _apply_workspace(
    connection: Connection, credentials: Credentials, workspace: Workspace, applied: Applied
) -> None:
    for row in rows_of(workspace):
        await _apply_row(connection, row, applied)
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


async def _apply_row(connection: Connection, row: Row, applied: Applied) -> Change | None:
    change = await make_true(connection, row)
    if change:
        applied.changes.append(change)
    return change


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
            return f"two channels lead to one destination: {error.diag.message_detail}"
        case "workspace_endpoints_active_secret":
            return "two enabled endpoints have the same secret"
    return error.diag.message_detail or error.diag.message_primary or str(error)
