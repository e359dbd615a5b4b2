"""What of a post's way is counted, measured and traced. Nothing here decides anything; all of it is cheap when nobody looks."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from vestnik.telemetry import instruments, tracing
from vestnik.telemetry.instruments import platforms, since_made, workspaces

if TYPE_CHECKING:
    from vestnik.autopost.sender import Result

Row = Mapping[str, Any]
_UNCOUNTED = {401: "unauthorized", 503: "unavailable"}  # what no gate of an endpoint has counted


def claimed(workspace_id: str, rows: Sequence[Row], asked: int) -> None:
    """``asked``: when, in nanoseconds of Unix time, as everywhere here."""
    now = time.time_ns()
    instruments.claim_seconds.observe((now - asked) / 1e9)
    for row in rows:
        if row["lease"] == 1:  # of the first begin: of later ones the delivery's own failures are the greater part
            waited = since_made(row["delivery_id"], now / 1e9)
            instruments.enqueue_to_begin_seconds.observe(waited, platforms(row["platform"]))
    if tracing.is_on():
        for row in rows:
            _child(row["trace_id"], "claim", asked, now, _of(workspace_id, row["delivery_id"]))


def answered(result: Result, began: int) -> None:
    now, platform = time.time_ns(), platforms(result.platform)
    outcome = "ok" if result.error is None else "error"
    instruments.adapter_call_seconds.observe((now - began) / 1e9, platform, outcome)
    if tracing.is_on():
        told = {**_of(result.workspace_id, result.delivery_id), "vestnik.platform": platform}
        _child(result.trace_id, f"send {platform}", began, now, told, _code(result))


def written(workspace_id: str, batch: Sequence[Result], outcomes: Mapping[UUID, str], began: int) -> None:
    """``outcomes`` names those that are not plainly sent."""
    now = time.time_ns()
    instruments.settle_seconds.observe((now - began) / 1e9)
    counts: Counter[tuple[str, str]] = Counter()
    for result in batch:
        platform, outcome = platforms(result.platform), outcomes.get(result.delivery_id, "sent")
        counts[platform, outcome] += 1
        if outcome == "sent":
            instruments.enqueue_to_sent_seconds.observe(since_made(result.delivery_id, now / 1e9), platform)
    for (platform, outcome), count in counts.items():
        instruments.sends.add(workspaces(workspace_id), platform, outcome, by=count)
    if tracing.is_on():
        for result in batch:
            told = {
                **_of(workspace_id, result.delivery_id),
                "vestnik.outcome": outcomes.get(result.delivery_id, "sent"),
            }
            _child(result.trace_id, "settle", began, now, told)


def enqueued(workspace_id: str, rows: Sequence[Row], began: int) -> None:
    """Posts that pushes brought."""
    workspace = workspaces(workspace_id)
    instruments.pushes.add(workspace, "accepted", "", by=len(rows))
    for kind in ("enqueued", "suppressed", "failed"):
        if count := sum(row[kind] for row in rows):
            instruments.enqueued.add(workspace, kind, by=count)
    if tracing.is_on():
        now = time.time_ns()
        for row in rows:
            _child(row["trace_id"], "enqueue", began, now, {"vestnik.workspace": workspace_id})


def refused(workspace_id: str, action: str, reason: str, count: int) -> None:
    outcome = "duplicate" if action == "ingress_dedup_dropped" else "refused"
    instruments.pushes.add(workspaces(workspace_id), outcome, reason, by=count)


def pushed(done: Row | None, workspace_id: str, status: int, began: int) -> None:
    """One request, from its head to its answer."""
    outcome = {202: "accepted", 200: "duplicate"}.get(status, "failed" if status >= 500 else "refused")
    if status in _UNCOUNTED:
        instruments.pushes.add(workspaces(workspace_id), outcome, _UNCOUNTED[status])
    instruments.push_seconds.observe((time.time_ns() - began) / 1e9, outcome)
    if done is not None and tracing.takes(done["trace_id"]):
        told = {
            "vestnik.workspace": workspace_id,
            "vestnik.outcome": outcome,
            "vestnik.deliveries": done["enqueued"] or 0,
        }
        tracing.root(done["trace_id"], "POST /v1/push", began, told)


def _child(
    trace_id: str | UUID | None, name: str, began: int, ended: int, told: tracing.Attributes, error: str | None = None
) -> None:
    known = UUID(trace_id) if isinstance(trace_id, str) else trace_id
    if known is not None and tracing.takes(known):
        tracing.child(known, name, began, ended, told, error=error)


def _of(workspace_id: str, delivery_id: UUID) -> dict[str, str]:
    return {"vestnik.workspace": workspace_id, "vestnik.delivery_id": str(delivery_id)}


def _code(result: Result) -> str | None:
    return None if result.error is None else str(result.error.get("code"))
