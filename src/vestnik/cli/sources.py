"""``vestnik sources``: what is read, what the next run would take, and how the last ones went."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import typer
from rich.markup import escape

from vestnik.autopost.sources import verbs
from vestnik.cli.operator import operator_name
from vestnik.cli.output import AsJson, console, show
from vestnik.cli.session import open_pool, with_pool
from vestnik.equipment import Equipment, equipment
from vestnik.settings import load_settings

app = typer.Typer(help="Pull sources: feeds, APIs and databases that are read.", no_args_is_help=True)

T = TypeVar("T")
Workspace = Annotated[str, typer.Argument(help="The workspace of the source.")]
Source = Annotated[str, typer.Argument(help="The source, as it is declared.")]
COUNTS = ("read", "taken", "skipped", "invalid", "enqueued", "suppressed", "failed")
_COLOURS = {"enqueued": "green", "suppressed": "yellow", "refused": "red"}


@app.command("list")
def list_sources(
    workspace: Annotated[str | None, typer.Option("--workspace", "-w", help="Only this workspace.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the sources, with their next time and how the last run ended."""
    rows = with_pool(lambda pool: verbs.list_sources(pool, workspace))
    columns = (
        *("workspace_id", "source_id", "kind", "enabled", "every", "cron", "next_at"),
        *("last_run_at", "failures", "last_error"),
    )
    show(rows, columns, as_json=as_json, empty="There is no source; vestnik apply FILE makes some.")


@app.command("try")
def try_source(
    workspace: Workspace,
    source: Source,
    *,
    from_the_start: Annotated[
        bool, typer.Option("--from-the-start", help="As if it had never been read before.")
    ] = False,
    limit: Annotated[int, typer.Option(help="Show at most so many items.", min=1)] = 20,
    as_json: AsJson = False,
) -> None:
    """Show what the next run would take and where it would go. Nothing is sent or kept."""
    found = _equipped(
        lambda tools: verbs.try_source(
            tools.puller, tools.adapters, workspace, source, from_the_start=from_the_start, most=limit
        )
    )
    if as_json:
        typer.echo(json.dumps(found, default=str, ensure_ascii=False))
        return
    _show_summary(found)
    for item in found["items"]:
        _show_item(item)


@app.command("run")
def run(workspace: Workspace, source: Source, as_json: AsJson = False) -> None:
    """Read a source now, in this process, and enqueue what is new."""
    stats = _equipped(lambda tools: tools.puller.pull(workspace, source))
    if as_json:
        typer.echo(json.dumps(stats, default=str, ensure_ascii=False))
        return
    _show_stats(stats)


@app.command("runs")
def runs(
    workspace: Workspace,
    source: Annotated[str | None, typer.Argument(help="Only this source.")] = None,
    limit: Annotated[int, typer.Option(help="At most so many.", min=1)] = 20,
    as_json: AsJson = False,
) -> None:
    """List the runs, the newest first."""
    rows = with_pool(lambda pool: verbs.list_runs(pool, workspace, source, limit=limit))
    if not as_json:
        rows = [row | {name: row["stats"].get(name) for name in (*COUNTS, "error")} for row in rows]
    columns = ("started_at", "source_id", "outcome", *COUNTS, "error")
    show(rows, columns, as_json=as_json, empty="No source was read yet.")


@app.command("remove")
def remove(workspace: Workspace, source: Source) -> None:
    """Forget a source and what it knows of its items; its posts stay. Take it out of the declaration too."""
    with_pool(lambda pool: verbs.remove_source(pool, workspace, source, actor=operator_name(None)))
    console.print("removed")


def _equipped(work: Callable[[Equipment], Awaitable[T]]) -> T:
    async def run() -> T:
        settings = load_settings()
        async with open_pool(settings) as pool, equipment(settings, pool) as tools:
            return await work(tools)

    return asyncio.run(run())


def _show_summary(found: dict[str, Any]) -> None:
    if found["unchanged"]:
        console.print("unchanged since the last run: there is nothing new")
        return
    more = " so far; there is more" if found["more"] else ""
    console.print(
        f"[bold]{found['take']}[/] would be taken, {found['invalid']} cannot be, {found['skip']} left out,"
        f" {found['seen']} known ({found['read']} read{more})"
    )
    for why, count in found["why_skipped"].items():
        console.print(f"  [dim]{count} left out: {escape(why)}[/]")
    for note in found["notes"]:
        console.print(f"  [yellow]{escape(note)}[/]")


def _show_item(item: dict[str, Any]) -> None:
    date = f" [dim]{item['published_at']:%Y-%m-%d %H:%M}[/]" if item["published_at"] else ""
    if item["outcome"] == "invalid":
        console.print(f"[red]invalid[/] {escape(item['key'])}{date}: {escape(item['reason'])}")
        return
    console.print(f"[green]take[/] {escape(item['key'])}{date}")
    payload = item["payload"]
    for line in (payload.get("text", "") + "".join(f"\n{link}" for link in payload.get("links", ()))).splitlines():
        console.print(f"    {escape(line)}")
    for media in payload.get("media", ()):
        console.print(f"    [cyan]{escape(media['type'])}[/] {escape(media['url'])}")
    if not item["channels"]:
        console.print("  [yellow]there is no channel in this workspace[/]")
    for channel in item["channels"]:
        colour = _COLOURS.get(channel["outcome"], "dim")
        reason = f": {escape(channel['reason'])}" if channel["reason"] else ""
        console.print(f"  → {escape(channel['channel_id'])} [{colour}]{channel['outcome']}{reason}[/]")


def _show_stats(stats: dict[str, Any]) -> None:
    if stats["outcome"] == "unchanged":
        console.print("unchanged since the last run: there is nothing new")
        return
    console.print(", ".join(f"{stats.get(name, 0)} {name}" for name in COUNTS))
    for why, count in stats.get("why_skipped", {}).items():
        console.print(f"  [dim]{count} skipped: {escape(why)}[/]")
    for reason in stats.get("reasons", ()):
        key = f"{escape(reason['key'])}: " if "key" in reason else ""
        console.print(f"  [yellow]{key}{escape(reason['reason'])}[/]")
