"""``vestnik retention``: how long what is kept, what would go now, and let it go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Annotated, Any, TypeVar

import typer

from vestnik.autopost.retention import rules
from vestnik.cli.bulk import confirm
from vestnik.cli.operator import Operator, operator_name
from vestnik.cli.output import AsJson, Row, console, emit, notes, show
from vestnik.cli.session import with_pool
from vestnik.db.pool import Pool
from vestnik.ops import retention
from vestnik.ops.durations import in_words
from vestnik.ops.retention import Budget, Rule
from vestnik.settings import load_settings
from vestnik.storage import open_store

app = typer.Typer(help="Retention: how long what is kept, and what goes.", no_args_is_help=True)

T = TypeVar("T")
Workspace = Annotated[
    str | None, typer.Option("--workspace", "-w", help="Only this workspace; '*' is the service itself.")
]
OnlyRule = Annotated[str | None, typer.Option("--rule", help="Only this rule, as listed by: vestnik retention status.")]


@app.command("status")
def status(workspace: Workspace = None, rule: OnlyRule = None, as_json: AsJson = False) -> None:
    """Show how long what is kept, what would go now, and how far the removal has come."""
    rows = _with_rules(rule, lambda pool, chosen: retention.status(pool, chosen, workspace_id=workspace))
    columns = ("workspace_id", "rule", "keep", "going", "oldest", "bytes", "removed", "passed_at", "last_error")
    _show(rows, columns, as_json=as_json)


@app.command("run")
def run(
    *,
    workspace: Workspace = None,
    rule: OnlyRule = None,
    rows: Annotated[int, typer.Option(help="Remove about so many rows at most.", min=1)] = retention.ROWS,
    seconds: Annotated[float, typer.Option(help="Work for so many seconds at most.", min=1)] = 3600,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would go, and remove nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    operator: Operator = None,
    as_json: AsJson = False,
) -> None:
    """Remove now what is over. It may be interrupted at any moment, and goes on when it is called again."""
    if dry_run or not yes:
        found = _with_rules(rule, lambda pool, chosen: retention.status(pool, chosen, workspace_id=workspace))
        going = [row for row in found if row["going"]]
        if dry_run or not as_json:
            columns = ("workspace_id", "rule", "keep", "going", "oldest", "bytes")
            _show(going, columns, as_json=as_json, empty="Nothing is over.")
        if dry_run or not going:
            return
        confirm(f"remove this for good: {sum(row['going'] for row in going)} rows", yes=False)
    actor = operator_name(operator)

    async def work(pool: Pool, chosen: list[Rule]) -> dict[str, Any]:
        budget = Budget(rows=rows, seconds=seconds)
        return await retention.run(pool, chosen, workspace_id=workspace, budget=budget, actor=actor)

    done = _with_rules(rule, work)
    if as_json:
        emit(done)
    else:
        _tell(done)
    if done.get("failed") or done.get("held"):
        raise typer.Exit(1)


def _tell(done: dict[str, Any]) -> None:
    if done.get("held"):
        notes.print(
            "[red]nothing was removed[/]: the clock of the database jumped; see vestnik alerts list", markup=True
        )
        return
    for name, count in done["removed"].items():
        console.print(f"{name}: [green]{count}[/] removed")
    if not done["removed"]:
        console.print("nothing was over")
    for where, why in done.get("failed", {}).items():
        notes.print(f"[red]{where}[/]: {why}", markup=True)
    if done["more"]:
        console.print("there may be more: the same command goes on")


def _show(
    rows: Sequence[Row], columns: tuple[str, ...], *, as_json: bool, empty: str = "There is no workspace."
) -> None:
    if as_json:
        emit([{**row, "keep": row["keep"] and in_words(row["keep"])} for row in rows])
        return
    told = [{column: row.get(column) for column in columns} | _in_words(row) for row in rows]
    show(told, columns, as_json=False, empty=empty)


def _in_words(row: Row) -> dict[str, Any]:
    keep: timedelta | None = row["keep"]
    going = str(row["going"]) if row["complete"] else f"{row['going']} or more"
    return {"keep": keep and in_words(keep) + (" (own)" if row["own"] else ""), "going": going}


def _with_rules(name: str | None, work: Callable[[Pool, list[Rule]], Awaitable[T]]) -> T:
    settings = load_settings()
    chosen = list(retention.chosen(rules(open_store(settings.object_store)), name))
    return with_pool(lambda pool: work(pool, chosen))
