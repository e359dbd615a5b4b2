"""``vestnik queue``, ``events``, ``why``: what waits, what happened, what is in the way."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

import typer
from rich.markup import escape

from vestnik.autopost import verbs
from vestnik.cli.output import AsJson, console, show
from vestnik.cli.session import with_pool
from vestnik.db.pool import Pool

Workspace = Annotated[str | None, typer.Option("--workspace", "-w", help="Only this workspace.")]


def delivery_named(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not the id of a delivery; give an id as vestnik events shows it"
        ) from None


def queue(workspace: Workspace = None, as_json: AsJson = False) -> None:
    """Show how many deliveries stand where."""
    rows = with_pool(lambda pool: verbs.queue_snapshot(pool, workspace))
    columns = ("workspace_id", "status", "count", "oldest")
    show(
        rows,
        columns,
        as_json=as_json,
        empty="Nothing was ever queued. Publish: vestnik push WORKSPACE 'Hello'",
    )


def events(
    workspace: Annotated[str, typer.Argument(help="The workspace to look into.")],
    *,
    minutes: Annotated[int, typer.Option(help="How far back.", min=1, max=43200)] = 30,
    errors: Annotated[bool, typer.Option("--errors", help="Only what went wrong.")] = False,
    delivery: Annotated[
        UUID | None, typer.Option(help="Only of this delivery.", parser=delivery_named, metavar="UUID")
    ] = None,
    channel: Annotated[str | None, typer.Option(help="Only of this channel.")] = None,
    limit: Annotated[int, typer.Option(help="At most so many.", min=1, max=100_000)] = 200,
    as_json: AsJson = False,
) -> None:
    """Show what happened lately, newest first."""
    rows = with_pool(
        lambda pool: verbs.list_events(
            pool,
            workspace,
            minutes=minutes,
            errors_only=errors,
            delivery_id=delivery,
            channel_id=channel,
            limit=limit,
        )
    )
    if as_json or not rows:
        verb = "went wrong" if errors else "happened"
        show(rows, (), as_json=as_json, empty=f"Nothing {verb} in the last {minutes} minutes.")
        return
    _show_events(rows)


def why(
    delivery: Annotated[UUID, typer.Argument(help="The delivery to explain.", parser=delivery_named)],
    workspace: Workspace = None,
    as_json: AsJson = False,
) -> None:
    """Say why a delivery has not gone out, and when it can."""

    async def ask(pool: Pool) -> verbs.Row:
        return await verbs.why(pool, workspace or await verbs.workspace_of_delivery(pool, delivery), delivery)

    found = with_pool(ask)
    if as_json:
        typer.echo(json.dumps(found, default=str, ensure_ascii=False))
        return
    console.print(f"[bold]{found['status']}[/]  {escape(found['detail'] or '')}")
    if found["earliest"]:
        console.print(f"earliest: {_moment(found['earliest'])}")
    if found["ahead"] and found["gate"] != "queue":
        console.print(f"{found['ahead']} of its channel go before it")
    if found["remedy"]:
        console.print(f"try: {escape(found['remedy'])}", soft_wrap=True)
    for gate in found["gates"][1:]:
        opens = _moment(gate["opens"]) if gate["opens"] else "somebody changes it"
        console.print(f"[dim]also {gate['gate']}: {escape(gate['detail'] or '')}, until {opens}[/]")


def _moment(value: datetime | str) -> str:
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _show_events(rows: list[verbs.Row]) -> None:
    """What went wrong stands below its event: no terminal is wide enough for it beside an id."""
    today = datetime.now(UTC).date()
    when = "%H:%M:%S" if all(row["ts"].date() == today for row in rows) else "%m-%d %H:%M:%S"
    widest = {key: max(len(row[key] or "") for row in rows) for key in ("action", "channel_id")}
    for row in rows:
        colour = "red" if row["result"] == "error" else "green"
        action, channel = row["action"].ljust(widest["action"]), (row["channel_id"] or "").ljust(widest["channel_id"])
        told = [
            f"[dim]{row['ts']:{when}}[/]", f"[{colour}]{action}[/]", escape(channel), f"[dim]{row['attempt'] or ' '}[/]",
            str(row["delivery_id"] or ""),
        ]  # fmt: skip
        console.print("  ".join(told), soft_wrap=True, highlight=False)
        if row["error"]:
            console.print(
                f"    [red]{escape(row['error'].get('code', ''))}[/] {escape(row['error'].get('message', ''))}"
            )
        elif "operator" in (row["meta"] or {}):
            by = ": ".join(str(row["meta"][key]) for key in ("operator", "reason") if row["meta"].get(key))
            console.print(f"    [dim]by {escape(by)}[/]")
        elif row["action"].startswith("ingress_"):
            meta = row["meta"]
            times = f", {meta['count']} times" if meta.get("count", 1) > 1 else ""
            console.print(
                f"    endpoint {escape(str(meta.get('endpoint_id')))}: {escape(str(meta.get('reason')))}{times}"
            )
