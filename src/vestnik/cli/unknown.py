"""``vestnik unknown``: sends whose outcome nobody knows, in channels that hold them until somebody has looked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

import typer

from vestnik.autopost import unknown, verbs
from vestnik.cli.bulk import Yes, confirm, many
from vestnik.cli.look import delivery_named
from vestnik.cli.operator import Operator, Reason, operator_name, reason_of
from vestnik.cli.output import AsJson, console, emit, show
from vestnik.cli.session import with_pool
from vestnik.db.pool import Pool
from vestnik.errors import ConfigError, NotFound

app = typer.Typer(help="Sends whose outcome is not known: look, then confirm or send again.", no_args_is_help=True)

Deliveries = Annotated[
    list[UUID] | None,
    typer.Argument(help="These deliveries; without any, all of a channel.", parser=delivery_named, metavar="DELIVERY"),
]
OfWorkspace = Annotated[str | None, typer.Option("--workspace", "-w", help="The workspace; found out for deliveries.")]
OfChannel = Annotated[str | None, typer.Option("--channel", help="All that this channel holds.")]


@app.command("list")
def list_held(
    workspace: Annotated[str, typer.Argument(help="The workspace to look into.")],
    *,
    channel: Annotated[str | None, typer.Option(help="Only of this channel.")] = None,
    limit: Annotated[int, typer.Option(help="At most so many.", min=1, max=100_000)] = 50,
    as_json: AsJson = False,
) -> None:
    """List what is held, the oldest first."""
    rows = with_pool(lambda pool: unknown.held(pool, workspace, channel_id=channel, limit=limit))
    if as_json:
        emit(rows)
        return
    columns = ("held_at", "channel_id", "delivery_id", "attempt", "parts", "message", "shows")
    show([row | {"parts": row["parts"] or None} for row in rows], columns, as_json=False, empty="Nothing is held.")
    if rows and rows[0]["total"] > len(rows):
        console.print(f"{rows[0]['total']} are held; these are the oldest {len(rows)}.")


@app.command("confirm")
def confirm_held(
    deliveries: Deliveries = None,
    *,
    workspace: OfWorkspace = None,
    channel: OfChannel = None,
    provider_message_id: Annotated[
        str | None, typer.Option("--message-id", help="What the platform calls it; for one delivery.")
    ] = None,
    reason: Reason = None,
    operator: Operator = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Say that a held post did arrive: it counts as sent."""
    if provider_message_id and len(deliveries or ()) != 1:
        raise ConfigError("a message id is of one delivery", hint="name that delivery")
    who, why = operator_name(operator), reason_of(reason)

    async def one(pool: Pool, ws: str, delivery: UUID) -> str:
        return await unknown.confirm(
            pool, ws, delivery, operator=who, reason=why, provider_message_id=provider_message_id
        )

    async def whole(pool: Pool, ws: str, channel_id: str, until: datetime) -> list[unknown.Row]:
        return await unknown.confirm_channel(pool, ws, channel_id, operator=who, reason=why, until=until)

    _settle("confirm", deliveries, workspace, channel, one, whole, yes=yes, as_json=as_json)


@app.command("resend")
def resend_held(
    deliveries: Deliveries = None,
    *,
    workspace: OfWorkspace = None,
    channel: OfChannel = None,
    reason: Reason = None,
    operator: Operator = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Let a held post go again: it did not arrive, or may as well come twice."""
    who, why = operator_name(operator), reason_of(reason)

    async def one(pool: Pool, ws: str, delivery: UUID) -> str:
        return await unknown.resend(pool, ws, delivery, operator=who, reason=why)

    async def whole(pool: Pool, ws: str, channel_id: str, until: datetime) -> list[unknown.Row]:
        return await unknown.resend_channel(pool, ws, channel_id, operator=who, reason=why, until=until)

    _settle("resend", deliveries, workspace, channel, one, whole, yes=yes, as_json=as_json)


def _settle(
    deed: str,
    deliveries: list[UUID] | None,
    workspace: str | None,
    channel: str | None,
    one: Callable[[Pool, str, UUID], Awaitable[str]],
    whole: Callable[[Pool, str, str, datetime], Awaitable[list[unknown.Row]]],
    *,
    yes: bool,
    as_json: bool,
) -> None:
    if bool(deliveries) == bool(channel):
        raise ConfigError(f"{deed} what?", hint="deliveries, or --workspace NAME --channel CHANNEL")
    if channel and not workspace:
        raise ConfigError("a channel of which workspace?", hint="--workspace NAME")

    async def work(pool: Pool) -> list[unknown.Row]:
        if deliveries:
            done = []
            for delivery in deliveries:
                ws = workspace or await verbs.workspace_of_delivery(pool, delivery)
                done.append({"delivery_id": delivery, "outcome": await one(pool, ws, delivery)})
            return done
        until = datetime.now(UTC)
        held = await unknown.held(pool, workspace or "", channel_id=channel, limit=1)
        if not held:
            raise NotFound(f"channel {channel} of workspace {workspace} holds nothing")
        confirm(f"{deed} {many(held[0]['total'], 'delivery', 'deliveries')} of channel {channel}", yes=yes)
        return await whole(pool, workspace or "", channel or "", until)

    rows = with_pool(work)
    if as_json:
        emit(rows)
    else:
        show(rows, ("delivery_id", "outcome"), as_json=False, empty="Somebody was first: nothing is held any more.")
