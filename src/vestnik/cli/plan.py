"""``vestnik planned``, ``cancel``, ``reschedule``, ``replace``, ``conflicts``: before a post goes out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any, Literal
from uuid import UUID

import typer
from rich.markup import escape

from vestnik.autopost import planning
from vestnik.autopost.bulk import STATUSES, Selection
from vestnik.cli import bulk
from vestnik.cli.operator import Operator, operator_name
from vestnik.cli.output import AsJson, console, emit, show
from vestnik.cli.publish import At, Html, Link, Markdown, Media, Payload, Tag, Text, moment_of, narrowed, post_of
from vestnik.cli.session import with_pool
from vestnik.db.pool import Pool
from vestnik.errors import ConfigError

Message = Annotated[UUID, typer.Argument(help="The message, as push or planned names it.")]
Channels = Annotated[list[str] | None, typer.Option("--channel", help="Only in this channel; may be given again.")]
Workspace = Annotated[str | None, typer.Option("--workspace", "-w", help="Its workspace; found out if not given.")]


def planned(
    workspace: Annotated[str, typer.Argument(help="The workspace to look into.")],
    *,
    channel: Annotated[str | None, typer.Option(help="Only of this channel.")] = None,
    limit: Annotated[int, typer.Option(help="At most so many.", min=1)] = 50,
    as_json: AsJson = False,
) -> None:
    """Show what waits to be sent, in the order in which it goes."""
    rows = with_pool(lambda pool: planning.planned(pool, workspace, channel_id=channel, limit=limit))
    if as_json:
        emit(rows)
        return
    if not rows:
        console.print("Nothing waits. Publish: vestnik push WORKSPACE 'Hello'")
    for (at, message, text), channels in _together(rows, ("goes_at", "message_id", "shows")).items():
        console.print(f"[bold]{_utc(at) if at else 'not yet known'}[/]  {escape(', '.join(channels))}")
        console.print(f"  {escape(text or '')}\n  [dim]message {message}[/]")


def cancel(
    message: Annotated[
        UUID | None, typer.Argument(help="The message; without one, all that waits and that the options select.")
    ] = None,
    *,
    reason: Annotated[str, typer.Option(help="Kept in the log.")] = "cancelled by an operator",
    channel: Channels = None,
    workspace: Workspace = None,
    status: Annotated[Literal["queued", "retry"] | None, typer.Option(help="Which; both if not given.")] = None,
    platform: bulk.Platform = None,
    rate_group: bulk.RateGroup = None,
    code: bulk.Code = None,
    category: bulk.Category = None,
    tag: bulk.Tag = None,
    since: bulk.Since = None,
    until: bulk.Until = None,
    dry_run: bulk.DryRun = False,
    yes: bulk.Yes = False,
    operator: Operator = None,
    as_json: AsJson = False,
) -> None:
    """Withdraw what waits: of a message, or all that has something in common."""
    selecting = (status, platform, rate_group, code, category, tag, since, until, dry_run or None)
    by = operator_name(operator)
    if message is not None:
        if any(option is not None for option in selecting):
            raise ConfigError("a message is named, so nothing is left to select", hint="only --channel goes with it")
        verb = partial(planning.cancel, message_id=message, operator=by, reason=reason, channels=channel)
        rows = _on_message(message, workspace, verb)
        _show_outcomes(rows, ("channel_id", "outcome", "delivery_id"), as_json=as_json)
        return
    if workspace is None:
        raise ConfigError(
            "cancel what?", hint="name a message, or a workspace: vestnik cancel --workspace NAME --dry-run"
        )
    moments = (bulk.ago(since), bulk.ago(until))
    selections = [
        Selection(each, channel, platform, rate_group, code, category, tag, *moments)
        for each in ([status] if status else STATUSES["cancel"])
    ]
    bulk.move(
        "cancel", workspace, selections,
        operator=by, reason=reason, dry_run=dry_run, yes=yes, as_json=as_json,
    )  # fmt: skip


def reschedule(
    message: Message,
    at: Annotated[
        str,
        typer.Argument(help="Like 2027-01-31T09:00+03:00; without an offset, this machine's time. 'now' for at once."),
    ],
    *,
    reason: Annotated[str, typer.Option(help="Kept in the log.")] = "rescheduled by an operator",
    channel: Channels = None,
    workspace: Workspace = None,
    as_json: AsJson = False,
) -> None:
    """Give what waits of a message another moment."""
    moment = None if at == "now" else moment_of(at)
    rows = _on_message(
        message,
        workspace,
        lambda pool, ws: planning.reschedule(
            pool, ws, message, moment, operator=operator_name(None), reason=reason, channels=channel
        ),
    )
    _show_outcomes(rows, ("channel_id", "outcome", "goes_at", "delivery_id"), as_json=as_json)


def replace(
    message: Message,
    text: Text = None,
    *,
    html: Html = False,
    markdown: Markdown = False,
    tag: Tag = None,
    link: Link = None,
    media: Media = None,
    at: At = None,
    channel: Channels = None,
    payload: Payload = None,
    workspace: Workspace = None,
    as_json: AsJson = False,
) -> None:
    """Put another post in the place of one that waits: in the same channels, at the same moment, with the same tags."""
    post = post_of(text, html=html, markdown=markdown, tag=tag, link=link, media=media, payload=payload)
    post |= narrowed(at, channel)
    done = _on_message(
        message, workspace, lambda pool, ws: planning.replace(pool, ws, message, post, operator=operator_name(None))
    )
    if as_json:
        emit(done)
        return
    console.print(f"[green]{done['enqueued']}[/] queued, {done['suppressed']} suppressed, {done['failed']} refused")
    if done["media_pending"]:
        console.print(f"{done['media_pending']} wait until their media are fetched")
    if done["too_late"]:
        console.print(f"[yellow]too late for {escape(', '.join(done['too_late']))}[/]")
    for channel_id, reason in done["kept"].items():
        console.print(f"[yellow]{escape(channel_id)} keeps the old post: {escape(reason)}[/]")
    console.print(f"[dim]message {done['message_id']}[/]")
    for warning in done["warnings"]:
        console.print(f"[yellow]{escape(warning)}[/]")


def conflicts(
    workspace: Annotated[str, typer.Argument(help="The workspace to look into.")],
    *,
    gap: Annotated[
        float | None,
        typer.Option(help="Minutes that should lie between two posts, whatever channels say.", min=0, max=525600),
    ] = None,
    limit: Annotated[int, typer.Option(help="At most so many.", min=1)] = 200,
    as_json: AsJson = False,
) -> None:
    """Show posts that come too close to each other in one channel."""
    asked = timedelta(minutes=gap) if gap is not None else None
    rows, more = with_pool(lambda pool: planning.conflicts(pool, workspace, asked, limit=limit))
    if as_json:
        emit({"conflicts": rows, "more": more})
        return
    if not rows:
        console.print("No two posts come too close to each other.")
    pair = ("first_at", "second_at", "minimum", "first_message_id", "second_message_id")
    for (first, second, minimum, one, other), channels in _together(rows, pair).items():
        apart = f"{_whole(second - first)} apart, at least {_whole(minimum)}"
        console.print(f"[bold]{escape(', '.join(channels))}[/]: [yellow]{apart}[/]")
        console.print(f"  {_utc(first)}  [dim]message {one}[/]\n  {_utc(second)}  [dim]message {other}[/]")
    if more:
        console.print(f"There are more; these are the first {limit}.")


def _together(rows: list[dict[str, Any]], alike: tuple[str, ...]) -> dict[tuple[Any, ...], list[str]]:
    """One entry for all channels in which these columns are the same."""
    found: dict[tuple[Any, ...], list[str]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in alike), []).append(row["channel_id"])
    return found


def _utc(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S UTC}"


def _whole(duration: timedelta) -> timedelta:
    return timedelta(seconds=round(duration.total_seconds()))


def _show_outcomes(rows: list[dict[str, Any]], columns: tuple[str, ...], *, as_json: bool) -> None:
    if as_json:
        emit(rows)
        return
    show(rows, columns, as_json=False, empty="")


def _on_message(message: UUID, workspace: str | None, act: Callable[[Pool, str], Awaitable[Any]]) -> Any:
    async def work(pool: Pool) -> Any:
        return await act(pool, workspace or await planning.workspace_of_message(pool, message))

    return with_pool(work)
