"""``vestnik alerts``, ``webhooks`` and ``health``: what needs a person, who is told of it, and how a workspace does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Annotated, TypeVar

import typer
from pydantic import TypeAdapter, ValidationError
from rich.markup import escape

from vestnik.autopost.alerting import OVERLAP
from vestnik.autopost.monitor import health
from vestnik.cli.operator import Operator, Reason, operator_name, reason_of
from vestnik.cli.output import AsJson, Row, console, emit, show
from vestnik.cli.session import open_pool, with_pool
from vestnik.equipment import Equipment, equipment
from vestnik.errors import ConfigError
from vestnik.ops.alerts import verbs
from vestnik.ops.alerts.contract import TellFailed
from vestnik.ops.durations import Duration
from vestnik.settings import load_settings

app = typer.Typer(help="Alerts: what needs a person, and who is told of it.", no_args_is_help=True)
webhooks = typer.Typer(help="Failure webhooks: programs that are told of failures.", no_args_is_help=True)

T = TypeVar("T")
OnlyWorkspace = Annotated[
    str | None, typer.Option("--workspace", "-w", help="Only this workspace; '*' is the service itself.")
]
Workspace = Annotated[str, typer.Argument(help="The workspace; '*' is the service itself.")]
Alert = Annotated[str, typer.Argument(help="The alert, as listed.")]
Subject = Annotated[str | None, typer.Option("--subject", help="Only of this subject; without it, of each.")]
Target = Annotated[str, typer.Argument(help="The target, as listed by: vestnik alerts targets.")]
Webhook = Annotated[str, typer.Argument(help="The webhook, as listed by: vestnik webhooks list.")]


def _duration(text: str) -> timedelta:
    try:
        found: timedelta = TypeAdapter(Duration).validate_python(text)
    except ValidationError:
        raise typer.BadParameter(f"{text!r} is no duration; write 30m, 2h or 1d") from None
    return found


@app.command("list")
def list_alerts(
    workspace: OnlyWorkspace = None,
    over_too: Annotated[bool, typer.Option("--all", help="Also what is over.")] = False,
    limit: Annotated[int, typer.Option(help="At most so many.", min=1, max=10_000)] = 200,
    as_json: AsJson = False,
) -> None:
    """List what is wrong now, the gravest first."""
    rows = with_pool(lambda pool: verbs.list_alerts(pool, workspace, over_too=over_too, limit=limit))
    columns = (
        *("workspace_id", "severity", "alert", "subject", "summary", "raised_at", "cleared_at", "raises", "acked_by"),
        "silent_until",
    )
    show(rows, columns, as_json=as_json, empty="Nothing is wrong that the monitor knows of.")


@app.command("ack")
def ack(workspace: Workspace, alert: Alert, subject: Subject = None, operator: Operator = None) -> None:
    """Say that you have seen it: it is not repeated until it grows, or comes back another time."""
    by = operator_name(operator)
    count = with_pool(lambda pool: verbs.ack(pool, workspace, alert, subject, actor=by))
    console.print(f"{count} acknowledged")


@app.command("silence")
def silence(
    workspace: Workspace,
    alert: Alert,
    *,
    lasting: Annotated[timedelta, typer.Option("--for", help="30m, 2h, 1d; 0s ends it.", parser=_duration)],
    subject: Subject = None,
    reason: Reason = None,
    operator: Operator = None,
) -> None:
    """Tell nobody of an alert for a while."""
    by, why = operator_name(operator), reason_of(reason)
    until = with_pool(
        lambda pool: verbs.silence(pool, workspace, alert, subject, duration=lasting, reason=why, actor=by)
    )
    console.print(f"silent until {until:%Y-%m-%d %H:%M:%S %Z}" if lasting else "it is told again")


@app.command("silences")
def silences(workspace: OnlyWorkspace = None, as_json: AsJson = False) -> None:
    """List what nobody is told of, until when, and who said so."""
    rows = with_pool(lambda pool: verbs.list_silences(pool, workspace))
    columns = ("workspace_id", "alert", "subject", "until", "actor", "reason")
    show(rows, columns, as_json=as_json, empty="Nothing is silenced.")


@app.command("targets")
def targets(workspace: OnlyWorkspace = None, as_json: AsJson = False) -> None:
    """List who is told, and whether that works."""
    rows = with_pool(lambda pool: verbs.list_targets(pool, workspace))
    columns = (
        *("workspace_id", "target_id", "kind", "address", "language", "min_severity", "alerts", "enabled"),
        *("last_sent_at", "failures", "next_try_at", "last_error"),
    )
    empty = "Nobody is told. Declare alerts: targets: in a workspace, and vestnik apply it."
    show(rows, columns, as_json=as_json, empty=empty)


@app.command("test")
def test(workspace: Workspace, target: Target) -> None:
    """Send a target a message that only says that it arrives."""

    async def work(tools: Equipment) -> None:
        try:
            await tools.desk.notifier.try_out(workspace, target)
        except TellFailed as e:
            raise ConfigError(f"{target} did not take it: {e.code}: {e}", hint="vestnik alerts targets") from None

    _equipped(work)
    console.print(f"{escape(target)} has taken it")


@app.command("remove")
def remove_target(workspace: Workspace, target: Target, operator: Operator = None) -> None:
    """Tell a target nothing any more, and forget it. Take it out of the declaration too."""
    by = operator_name(operator)
    _equipped(lambda tools: tools.desk.remove(workspace, f"target:{target}", actor=by))
    console.print("removed")


@webhooks.command("list")
def list_webhooks(workspace: OnlyWorkspace = None, as_json: AsJson = False) -> None:
    """List the webhooks, and whether they answer."""
    rows = with_pool(lambda pool: verbs.list_webhooks(pool, workspace))
    columns = (
        *("workspace_id", "webhook_id", "url", "events", "enabled", "secrets", "last_sent_at", "failures"),
        *("next_try_at", "last_error"),
    )
    empty = "There is no webhook. Declare webhooks: in a workspace, and vestnik apply it."
    show(rows, columns, as_json=as_json, empty=empty)


@webhooks.command("rotate")
def rotate(
    workspace: Workspace,
    webhook: Webhook,
    *,
    target: Annotated[bool, typer.Option("--target", help="It is an alert target.")] = False,
    overlap: Annotated[
        timedelta, typer.Option("--overlap", help="For how long the old secret signs too.", parser=_duration)
    ] = OVERLAP,
    operator: Operator = None,
) -> None:
    """Make a new secret and show it this once. The old one signs beside it for a while."""
    by, owner = operator_name(operator), f"{'target' if target else 'webhook'}:{webhook}"
    secret = _equipped(lambda tools: tools.desk.rotate_secret(workspace, owner, overlap=overlap, actor=by))
    typer.echo(secret)


@webhooks.command("remove")
def remove_webhook(workspace: Workspace, webhook: Webhook, operator: Operator = None) -> None:
    """Tell a webhook nothing any more, and forget it. Take it out of the declaration too."""
    by = operator_name(operator)
    _equipped(lambda tools: tools.desk.remove(workspace, f"webhook:{webhook}", actor=by))
    console.print("removed")


def show_health(
    workspace: Annotated[str, typer.Argument(help="The workspace to look at.")], as_json: AsJson = False
) -> None:
    """Show how a workspace does: what stands where, what goes wrong most, what is shut, which alerts are on."""
    found = with_pool(lambda pool: health(pool, workspace))
    if as_json:
        emit(found)
        return
    counts = "  ".join(f"{status} {count}" for status, count in sorted(found["deliveries"].items()))
    console.print(f"[bold]{escape(found['workspace_id'])}[/] is {found['status']}")
    console.print(f"deliveries  {counts or 'none yet'}")
    if found["oldest_due"]:
        console.print(f"oldest due  {datetime.fromisoformat(found['oldest_due']):%Y-%m-%d %H:%M:%S %Z}")
    channels, sources = found["channels"], found["sources"]
    console.print(f"channels    {channels['total']}, {channels['paused']} paused, {channels['disabled']} disabled")
    for stop in ("paused", "disabled"):
        if names := channels[f"{stop}_first"]:
            more = ", …" if channels[stop] > len(names) else ""
            console.print(f"{stop:<12}{escape(', '.join(names))}{more}")
    console.print(f"sources     {sources['enabled']}, {sources['failing']} failing")
    console.print(f"dead jobs   {found['jobs_dead']}")
    _show_troubles(found["alerts"], found["top_errors"])


def _show_troubles(alerts: list[Row], errors: list[Row]) -> None:
    for error in errors:
        message = f": {error['message']}" if error["message"] else ""
        console.print(f"[red]{error['count']}×[/] {error['action']} {escape(str(error['code']))}{escape(message)}")
    for alert in alerts:
        colour = "bold red" if alert["severity"] == "critical" else "yellow"
        console.print(
            f"[{colour}]alert[/] {escape(' '.join((alert['alert'], alert['subject'])).rstrip())}: {escape(alert['summary'])}"
        )
    if not alerts:
        console.print("[green]no alert is on[/]")


def _equipped(work: Callable[[Equipment], Awaitable[T]]) -> T:
    async def run() -> T:
        settings = load_settings()
        async with open_pool(settings) as pool, equipment(settings, pool) as tools:
            return await work(tools)

    return asyncio.run(run())
