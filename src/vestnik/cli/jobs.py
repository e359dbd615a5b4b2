"""``vestnik jobs``: what is done aside, what failed, and what comes round by the clock."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.markup import escape

from vestnik.cli.operator import operator_name
from vestnik.cli.output import AsJson, console, show
from vestnik.cli.session import with_pool
from vestnik.db.pool import Pool
from vestnik.ops.jobs import verbs

app = typer.Typer(help="Jobs: work that is done aside, and its schedules.", no_args_is_help=True)

Job = Annotated[UUID, typer.Argument(help="The job's id, as listed.")]
Kind = Annotated[str, typer.Argument(help="The kind of jobs, as listed by: vestnik jobs kinds.")]
OfWorkspace = Annotated[str, typer.Argument(help="The workspace; '*' is the service itself.")]
Workspace = Annotated[
    str | None, typer.Option("--workspace", "-w", help="Only this workspace; '*' is the service itself.")
]


@app.command("list")
def list_jobs(
    workspace: Workspace = None,
    status: Annotated[str | None, typer.Option(help=f"One of {', '.join(verbs.STATUSES)}.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only this kind.")] = None,
    limit: Annotated[int, typer.Option(help="At most so many.", min=1)] = 50,
    as_json: AsJson = False,
) -> None:
    """List jobs, the newest first; what the service does by the clock only with -w '*', --status or --kind once it is done."""
    rows = with_pool(lambda pool: verbs.list_jobs(pool, workspace, status=status, kind=kind, limit=limit))
    columns = ("job_id", "workspace_id", "kind", "status", "attempt", "run_at", "progress", "last_error")
    show(rows, columns, as_json=as_json, empty="There is no such job.")


@app.command("show")
def show_job(job: Job, as_json: AsJson = False) -> None:
    """Show one job and all its runs."""
    found = _on(job, verbs.show_job)
    if as_json:
        typer.echo(json.dumps(found, default=str, ensure_ascii=False))
        return
    runs = found.pop("runs")
    for name, value in found.items():
        if value is not None:
            text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)
            console.print(f"[bold]{name.replace('_', ' ')}[/]  {escape(text)}")
    columns = ("attempt", "outcome", "started_at", "finished_at", "worker", "error", "stats")
    show(runs, columns, as_json=False, empty="It has not run yet.")


@app.command("run")
def run_now(job: Job) -> None:
    """Let a waiting job go at once, whatever its time is."""
    _on(job, partial(verbs.run_job_now, actor=operator_name(None)))
    console.print("it goes as soon as a runner is free")


@app.command("retry")
def retry(job: Job) -> None:
    """Let a dead or cancelled job go again, with one more try."""
    _on(job, partial(verbs.retry_job, actor=operator_name(None)))
    console.print("it goes as soon as a runner is free")


@app.command("cancel")
def cancel(job: Job) -> None:
    """Cancel a job; one that runs is told to end."""
    status = _on(job, partial(verbs.cancel_job, actor=operator_name(None)))
    console.print("cancelled" if status == "cancelled" else "it runs; its runner ends it")


@app.command("errors")
def list_errors(
    workspace: Workspace = None,
    limit: Annotated[int, typer.Option(help="At most so many.", min=1)] = 50,
    as_json: AsJson = False,
) -> None:
    """List why jobs died, the newest first; secrets are taken out."""
    rows = with_pool(lambda pool: verbs.list_errors(pool, workspace, limit=limit))
    columns = ("ts", "workspace_id", "workflow", "job_id", "message")
    show(rows, columns, as_json=as_json, empty="There is no error.")


@app.command("kinds")
def list_kinds(workspace: Workspace = None, as_json: AsJson = False) -> None:
    """List the kinds of jobs with how many stand where."""
    rows = with_pool(lambda pool: verbs.list_kinds(pool, workspace))
    columns = ("workspace_id", "kind", "concurrency", "waiting", "running", "dead", "paused_at")
    show(rows, columns, as_json=as_json, empty="No job was ever enqueued.")


@app.command("pause")
def pause(workspace: OfWorkspace, kind: Kind) -> None:
    """Begin nothing of a kind any more; what runs may finish."""
    new = with_pool(lambda pool: verbs.pause_kind(pool, workspace, kind, actor=operator_name(None)))
    console.print("paused" if new else "it was paused already")


@app.command("resume")
def resume(workspace: OfWorkspace, kind: Kind) -> None:
    """Let a paused kind go on."""
    new = with_pool(lambda pool: verbs.resume_kind(pool, workspace, kind, actor=operator_name(None)))
    console.print("it goes on" if new else "it was not paused")


@app.command("schedules")
def schedules(workspace: Workspace = None, as_json: AsJson = False) -> None:
    """List what comes round by the clock."""
    rows = with_pool(lambda pool: verbs.list_schedules(pool, workspace))
    columns = (
        "workspace_id",
        "schedule_id",
        "kind",
        "cron",
        "every",
        "timezone",
        "missed",
        "enabled",
        "last_at",
        "next_at",
    )
    show(rows, columns, as_json=as_json, empty="There is no schedule.")


@app.command("fire")
def fire(
    workspace: OfWorkspace,
    schedule: Annotated[str, typer.Argument(help="The schedule, as listed by: vestnik jobs schedules.")],
) -> None:
    """Let what comes round by the clock come now, beside its ticks."""
    done = with_pool(lambda pool: verbs.fire_schedule_now(pool, workspace, schedule, actor=operator_name(None)))
    console.print(f"job {done.job_id}" + ("" if done.is_new else ", which has not finished yet"))


def _on(job: UUID, verb: Callable[[Pool, str, UUID], Awaitable[Any]]) -> Any:
    """People name a job by its id alone."""

    async def work(pool: Pool) -> Any:
        return await verb(pool, await verbs.workspace_of_job(pool, job), job)

    return with_pool(work)
