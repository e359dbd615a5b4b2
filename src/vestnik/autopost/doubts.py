"""What in a declaration can hardly be meant: two channels on one destination is refused, a likely slip is told."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vestnik.autopost.declaration import ChannelSettings, Workspace
from vestnik.autopost.faults import meant
from vestnik.db.pool import Connection
from vestnik.errors import ConfigError

_SETTINGS = set(ChannelSettings.model_fields)


async def refuse_shared_destinations(connection: Connection, workspace: Workspace) -> None:
    """By the names of both channels, whichever of them are in the database already."""
    found = await connection.execute(
        "select channel_id, platform, target_id from autopost.channels where workspace_id = %s and channel_id <> all(%s)",
        (workspace.id, [channel.id for channel in workspace.channels]),
    )
    taken = {(row["platform"], row["target_id"]): row["channel_id"] for row in await found.fetchall()}
    for channel in workspace.channels:
        other = taken.setdefault((channel.platform, channel.target), channel.id)
        if other != channel.id:
            raise ConfigError(f"channels {other} and {channel.id} both lead to {channel.target} on {channel.platform}")


async def slips(connection: Connection, workspace: Workspace) -> list[str]:
    """After the declaration was made true: what is in the database counts as well."""
    return [
        *_unread_settings(workspace),
        *_unfilled_tokens(workspace),
        *await _missing_credentials(connection, workspace),
    ]


def _unread_settings(workspace: Workspace) -> Iterator[str]:
    for channel in workspace.channels:
        for key in channel.settings.keys() - _SETTINGS:
            if asked := meant(key, _SETTINGS):
                yield f"channel {channel.id}: nothing reads the setting {key}{asked}"


def _unfilled_tokens(workspace: Workspace) -> Iterator[str]:
    for credential in workspace.credentials:
        if name := re.fullmatch(r"\$\{?(\w+)\}?", credential.token):
            yield (
                f"credential {credential.auth_ref}: its token looks like the name of a variable;"
                f" write ${{{name[1]}}} to have it filled in"
            )


async def _missing_credentials(connection: Connection, workspace: Workspace) -> list[str]:
    found = await connection.execute(
        "select c.channel_id, c.platform, c.auth_ref from autopost.channels c"
        " where c.workspace_id = %s and c.channel_id = any(%s) and not exists ("
        "  select from core.credential_bindings b where b.workspace_id = c.workspace_id"
        "  and b.platform = c.platform and b.auth_ref = c.auth_ref) order by 1",
        (workspace.id, [channel.id for channel in workspace.channels]),
    )
    return [
        f"channel {row['channel_id']}: there is no {row['platform']} credential {row['auth_ref']} in this workspace"
        for row in await found.fetchall()
    ]
