"""``vestnik payloads``: what platforms answered in full, on the machine where the key lies, and who has looked."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Annotated
from uuid import UUID

import typer

from vestnik.autopost.payloads import verbs
from vestnik.autopost.payloads.equipment import open_desk
from vestnik.cli.operator import Reason, operator_name, reason_of
from vestnik.cli.output import AsJson, show
from vestnik.cli.session import with_pool
from vestnik.db.pool import Pool
from vestnik.settings import load_settings

app = typer.Typer(help="Full payloads: which there are, what is in one, who has looked.", no_args_is_help=True)

Workspace = Annotated[str, typer.Argument(help="The workspace.")]
Days = Annotated[int, typer.Option(help="How far back.", min=1, max=3660)]
Limit = Annotated[int, typer.Option(help="How many at most.", min=1, max=10000)]


@app.command("list")
def list_(
    workspace: Workspace,
    *,
    days: Days = 14,
    delivery: Annotated[UUID | None, typer.Option(help="Only of this delivery.")] = None,
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """Show which events name a full payload, the newest first."""

    async def work(pool: Pool) -> list[verbs.Row]:
        since = timedelta(days=days)
        return await verbs.list_payloads(pool, workspace, since=since, delivery_id=delivery, limit=limit)

    columns = ("ts", "payload_ref", "action", "code", "channel_id", "delivery_id")
    show(with_pool(work), columns, as_json=as_json, empty="No event names a payload.")


@app.command("show")
def show_(
    workspace: Workspace,
    payload_ref: Annotated[str, typer.Argument(help="As an event names it.")],
    reason: Reason = None,
) -> None:
    """Print one payload. That you looked, and why, goes on record first."""
    why, actor = reason_of(reason), f"machine {operator_name(None)}"
    settings = load_settings()

    async def work(pool: Pool) -> bytes:
        return await open_desk(settings, pool).show(workspace, payload_ref, actor=actor, reason=why)

    sys.stdout.buffer.write(with_pool(work) + b"\n")


@app.command("reads")
def reads(workspace: Workspace, *, days: Days = 30, limit: Limit = 200, as_json: AsJson = False) -> None:
    """Show who asked for which payload, when and why, and what came of it."""

    async def work(pool: Pool) -> list[verbs.Row]:
        return await verbs.list_reads(pool, workspace, since=timedelta(days=days), limit=limit)

    columns = ("ts", "actor", "via", "action", "outcome", "payload_ref", "reason", "link_id")
    show(with_pool(work), columns, as_json=as_json, empty="Nobody has looked.")
