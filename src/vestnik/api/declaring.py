"""A declaration that came over HTTP: by the code of ``vestnik apply``, and with what a caller from elsewhere may not declare.

A database, or a file of one, is read from where the service runs, with its network and its rights: whoever named one could
name the service's own, and read every workspace. A credential goes where a source's address says: whoever may change the
address would be given it.
"""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException

from vestnik.api.configuration_schema import AppliedChanges, Made
from vestnik.autopost.apply import apply
from vestnik.autopost.declaration import Credential, Source, Workspace, read_declaration
from vestnik.autopost.sources.databases.dsn import parse_dsn
from vestnik.db.pool import Pool, call
from vestnik.errors import InvalidPayload
from vestnik.ops.access import Caller
from vestnik.ops.secrets.credentials import Credentials


async def declare(
    pool: Pool,
    credentials: Credentials,
    by: Caller,
    workspace: dict[str, Any],
    *,
    dry_run: bool,
    owns_service: bool = False,
) -> AppliedChanges:
    """One workspace. ``owns_service``: the caller is owner on ``*`` as well."""
    declared = read_declaration({"workspaces": [named(workspace, id=by.workspace_id)]})
    for each in declared.workspaces:
        if "own" not in by.rights and each.credentials:
            raise HTTPException(403, "Only an operator who is owner may store credentials.")
        if not owns_service and any(_names_database(credential) for credential in each.credentials):
            raise HTTPException(403, f"This credential is the address of a database. {_BY_HAND}")
        if not owns_service:
            await _refuse_readers(pool, by, each)
    applied = await apply(pool, credentials, declared, dry_run=dry_run, actor=by.name)
    return AppliedChanges(
        dry_run=dry_run,
        changes=[Made.of(change) for change in applied.changes],
        secrets={} if dry_run else applied.secrets | applied.signatures,
        moved=applied.moved,
        resumed=applied.resumed,
        warnings=applied.warnings,
    )


def named(body: dict[str, Any], **names: str) -> dict[str, Any]:
    for key, value in names.items():
        if body.setdefault(key, value) != value:
            raise InvalidPayload([f"{key}: the path says another"])
    return body


async def _refuse_readers(pool: Pool, by: Caller, workspace: Workspace) -> None:
    for source in await _altered(pool, workspace):
        if source.kind == "db":
            raise HTTPException(403, f"Source {source.id} reads a database. {_BY_HAND}")
        if source.config.get("auth") is not None and "own" not in by.rights:
            raise HTTPException(
                403, f"Source {source.id} sends a credential; only an operator who is owner may say where."
            )


async def _altered(pool: Pool, workspace: Workspace) -> list[Source]:
    """Those that would read something else than they do now: a rhythm is anybody's to change."""
    query = "select source_id, kind, config_json from autopost.pull_sources where workspace_id = %s"
    rows = await call(pool, query, (workspace.id,)) if workspace.sources else []
    known = {row["source_id"]: (row["kind"], row["config_json"]) for row in rows}
    return [source for source in workspace.sources if known.get(source.id) != (source.kind, source.config)]


def _names_database(credential: Credential) -> bool:
    try:
        parse_dsn(credential.token)
    except ValueError:
        return False
    return True


_BY_HAND = "Only an owner of the service (on *) may name one; or declare it with vestnik apply, on the machine itself."
