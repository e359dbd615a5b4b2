"""Many deliveries at once: chosen by what they have in common, counted, confirmed, moved page by page."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal

import psycopg
import typer
from pydantic import TypeAdapter, ValidationError
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from vestnik.autopost import bulk
from vestnik.autopost.bulk import Deed, Selection
from vestnik.cli.output import console, emit, notes, show
from vestnik.cli.publish import moment_of
from vestnik.cli.session import with_pool
from vestnik.db.pool import Pool
from vestnik.errors import ConfigError
from vestnik.ops.durations import Duration

Channels = Annotated[list[str] | None, typer.Option("--channel", help="Only in this channel; may be given again.")]
Platform = Annotated[str | None, typer.Option(help="Only in channels of this platform.")]
RateGroup = Annotated[str | None, typer.Option(help="Only in channels of this rate group.")]
Code = Annotated[str | None, typer.Option(help="Only what failed last with this code, like 500 or lease_expired.")]
Category = Annotated[
    Literal["TRANSIENT", "PERMANENT"] | None, typer.Option(help="Only what failed last with this category of error.")
]
Tag = Annotated[str | None, typer.Option(help="Only posts with this tag.")]
Since = Annotated[
    str | None,
    typer.Option(help="Only what failed (or, while it waits, came in) since then: 2h, 3d, or 2027-01-31T09:00+03:00."),
]
Until = Annotated[str | None, typer.Option(help="Only what failed (or came in) until then; as --since.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Count, and change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
_DONE: dict[Deed, str] = {"requeue": "requeued", "cancel": "cancelled"}


def ago(text: str | None) -> datetime | None:
    """A moment, or how long ago it was."""
    if text is None:
        return None
    try:
        return datetime.now(UTC) - TypeAdapter(Duration).validate_python(text)
    except (ValidationError, OverflowError):
        return moment_of(text)


def move(
    deed: Deed,
    workspace: str,
    selections: Sequence[Selection],
    *,
    operator: str,
    reason: str,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Count; ask; move. It may be interrupted at any moment, and goes on when it is called again."""
    moved = 0

    async def work(pool: Pool) -> None:
        nonlocal moved
        rows: list[bulk.Row] = []
        counted: list[Selection] = []
        for selection in selections:
            found, upto = await bulk.count(pool, workspace, deed, selection)
            rows += [{"status": selection.status, **row} for row in found]
            counted.append(upto)
        total = sum(row["count"] for row in rows)
        if dry_run or not as_json:
            refused = ["refused"] if any(row["refused"] for row in rows) else []
            columns = ("status", "channel_id", "count", *refused, "oldest")
            show(rows, columns, as_json=as_json, empty=f"There is nothing to {deed}.")
            if refused and not as_json:
                console.print("refused: not the post but its channel or bot was; put that right and push it again")
        if dry_run or not total:
            if not dry_run and as_json:
                emit({"moved": 0})
            return
        channels = len({row["channel_id"] for row in rows if row["count"]})
        confirm(f"{deed} {many(total, 'delivery', 'deliveries')} of {many(channels, 'channel', 'channels')}", yes=yes)
        with _progress() as progress:
            bar = progress.add_task(deed, total=total)
            async for page in bulk.move_all(pool, workspace, deed, counted, operator=operator, reason=reason):
                moved += page
                progress.update(bar, completed=moved)

    try:
        with_pool(work)
    except (KeyboardInterrupt, psycopg.OperationalError) as e:
        notes.print(f"{moved} {_DONE[deed]}; the same command goes on with the rest")
        if isinstance(e, KeyboardInterrupt):
            raise typer.Exit(130) from None
        raise
    if moved:
        typer.echo(json.dumps({"moved": moved})) if as_json else console.print(f"[green]{moved}[/] {_DONE[deed]}")


def many(count: int, one: str, more: str) -> str:
    return f"{count} {one if count == 1 else more}"


def confirm(what: str, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(f"this would {what}", hint="--yes does it without asking")
    if not typer.confirm(f"{what[0].upper()}{what[1:]}?", err=True):
        raise typer.Exit(1)


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=notes, disable=not notes.is_terminal)
