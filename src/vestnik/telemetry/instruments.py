"""What this process counts and measures. No label holds a channel, a delivery or a text."""

from __future__ import annotations

import time
from uuid import UUID

from vestnik.telemetry.meters import Bounded, Counter, Histogram

_QUICK = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_PATIENT = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0, 21600.0, 86400.0)

workspaces = Bounded(200)
platforms = Bounded(20)

pushes = Counter(
    "vestnik_pushes",
    "Requests to publish, by what became of them; the reason of a refusal.",
    ("workspace", "outcome", "reason"),
)
enqueued = Counter(
    "vestnik_enqueued_deliveries",
    "Deliveries that pushes made: enqueued, suppressed as seen before, failed at once.",
    ("workspace", "outcome"),
)
sends = Counter(
    "vestnik_sends",
    "Results of sends as they were written: sent, retry, failed_permanent, dead, held, late, repeat or illegal.",
    ("workspace", "platform", "result"),
)
job_runs = Counter(
    "vestnik_job_runs",
    "Runs of jobs by how they ended: done, retry, failed, snoozed, released or cancelled.",
    ("workspace", "kind", "outcome"),
)
swept = Counter(
    "vestnik_swept",
    "Deliveries that a sweep took back: whose sender fell silent, or whose window has changed.",
    ("workspace", "sweep"),
)
push_seconds = Histogram(
    "vestnik_push_seconds",
    "From the head of a push to its answer: accepted, duplicate, refused or failed.",
    ("outcome",),
    bounds=_QUICK,
)
retry_after_seconds = Histogram(
    "vestnik_push_retry_after_seconds",
    "How long pushes that met an endpoint's rate gate were told to wait.",
    bounds=_PATIENT,
)
enqueue_to_begin_seconds = Histogram(
    "vestnik_enqueue_to_begin_seconds",
    "From the enqueue to the first begin: what rate gates, windows, plans and places cost.",
    ("platform",),
    bounds=_PATIENT,
)
enqueue_to_sent_seconds = Histogram(
    "vestnik_enqueue_to_sent_seconds",
    "From the enqueue until it was written down that the platform has it.",
    ("platform",),
    bounds=_PATIENT,
)
adapter_call_seconds = Histogram(
    "vestnik_adapter_call_seconds",
    "One send through an adapter: ok or error.",
    ("platform", "result"),
    bounds=_QUICK,
)
claim_seconds = Histogram("vestnik_claim_seconds", "One claim of deliveries from the database.", bounds=_QUICK)
settle_seconds = Histogram(
    "vestnik_settle_seconds", "One batch of results on its way into the database.", bounds=_QUICK
)

COUNTERS = (pushes, enqueued, sends, job_runs, swept)
HISTOGRAMS = (
    *(push_seconds, retry_after_seconds, enqueue_to_begin_seconds, enqueue_to_sent_seconds),
    *(adapter_call_seconds, claim_seconds, settle_seconds),
)


def since_made(made: UUID, now: float | None = None) -> float:
    """Seconds since an id was made: ids of version 7 hold their millisecond."""
    return max(0.0, (time.time() if now is None else now) - (made.int >> 80) / 1000)
