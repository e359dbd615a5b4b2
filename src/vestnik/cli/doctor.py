"""``vestnik doctor``: is everything as it should be, and what to do about what is not."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Annotated

import typer
from rich.markup import escape

from vestnik.cli.output import AsJson, console, notes, show
from vestnik.doctor.examination import examine
from vestnik.doctor.findings import WORST_FIRST, Finding, Status
from vestnik.doctor.opening import opened
from vestnik.doctor.rounds import OF_A_WORKSPACE, of_everything
from vestnik.settings import load_settings

MOST_LINES = 5  # that say of one check that all is well
_COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red", "skipped": "dim"}
_SIGNS = {"ok": "✓", "warn": "!", "fail": "✗", "skipped": "·"}


def doctor(
    workspace: Annotated[str | None, typer.Option("--workspace", "-w", help="Only what belongs to it.")] = None,
    *,
    offline: Annotated[bool, typer.Option("--offline", help="Ask nobody outside: no platform, no bucket.")] = False,
    channels: Annotated[
        int, typer.Option(help="Of each credential, the rights in at most so many channels.", min=1, max=100_000)
    ] = 100,
    as_json: AsJson = False,
) -> None:
    """Examine the installation: database, machine, credentials, rights, work. Fails when something must be put right."""
    found = asyncio.run(_examine(workspace, offline=offline, channels=channels))
    if as_json:
        show([each.as_row() for each in found], (), as_json=True, empty="")
    else:
        _show(found)
    raise typer.Exit(1 if any(each.status == "fail" for each in found) else 0)


async def _examine(workspace: str | None, *, offline: bool, channels: int) -> list[Finding]:
    settings = load_settings()
    async with opened(settings, workspace_id=workspace, offline=offline, most_channels=channels) as case:
        checks = of_everything(case.installation) if workspace is None else OF_A_WORKSPACE
        found, left = case.possible(checks)
        with _progress(len(left)) as ended:
            return found + await examine(case.patient, left, lambda check: ended(check.name))


@contextmanager
def _progress(checks: int) -> Iterator[Callable[[str], None]]:
    """On a terminal only."""
    if not notes.is_terminal:
        yield lambda name: None
        return
    done = 0
    with notes.status("looking") as status:

        def ended(name: str) -> None:
            nonlocal done
            done += 1
            status.update(f"{done} of {checks} checks, {name} was the last")

        yield ended


def _show(found: Sequence[Finding]) -> None:
    width = max(len(each.check) for each in found)
    causes = {said for said, count in Counter(each.said for each in found if _is_skipped(each)).items() if count > 2}
    for check, findings in groupby(found, lambda each: each.check):
        for finding in _collapsed([each for each in findings if not (_is_skipped(each) and each.said in causes)]):
            _show_line(finding, check.ljust(width))
    for said in sorted(causes):
        names = [each.check for each in found if each.said == said]
        _show_line(Finding("skipped", f"{said}: {', '.join(names)}"), f"{len(names)} checks".ljust(width))
    counts = Counter(each.status for each in found)
    told = [f"[{_COLOURS[status]}]{counts[status]} {_WORDS[status]}[/]" for status in WORST_FIRST if counts[status]]
    console.print(", ".join(told), highlight=False)


_WORDS: dict[Status, str] = {"fail": "to put right", "warn": "to look at", "skipped": "skipped", "ok": "in order"}


def _is_skipped(finding: Finding) -> bool:
    return finding.status == "skipped" and finding.subject is None


def _collapsed(findings: list[Finding]) -> list[Finding]:
    """A hundred channels that are well are one line."""
    well = [each for each in findings if each.status == "ok"]
    if len(well) <= MOST_LINES:
        return findings
    return [each for each in findings if each.status != "ok"] + [Finding("ok", f"{len(well)} in order")]


def _show_line(finding: Finding, check: str) -> None:
    colour, sign = _COLOURS[finding.status], _SIGNS[finding.status]
    of = " ".join(filter(None, (finding.workspace_id, finding.subject)))
    subject = f"[bold]{escape(of)}[/]: " if of else ""
    console.print(f"[{colour}]{sign} {check}[/]  {subject}{escape(finding.said)}", soft_wrap=True, highlight=False)
    if finding.fix and finding.status in ("warn", "fail"):
        console.print(f"    [dim]try:[/] {escape(finding.fix)}", soft_wrap=True, highlight=False)
