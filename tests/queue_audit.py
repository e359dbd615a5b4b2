"""Says from the tables alone what is wrong with a queue: its deliveries held against their events.

It knows nothing of the functions that moved the rows, so it may judge any run: with many hands, with kills, with
operators in between. Times are not looked at; events of concurrent transactions have no order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import DictRow

Row = Mapping[str, Any]

_BORN = {"enqueue", "validation_failed"}
_OUTCOMES = {"sent", "retry_scheduled", "failed_permanent", "dead_letter"}
_TOLD_BY = {
    "sent": {"sent", "confirmed"},
    "failed_permanent": {"failed_permanent", "validation_failed", "cancelled"},
    "dead": {"dead_letter"},
    "deduped": {"dedup_suppressed"},
}


async def violations(connection: AsyncConnection[DictRow], workspace_id: str) -> list[str]:
    """Every broken promise in words; an empty list is a good queue."""
    deliveries = await _all(connection, "autopost.deliveries", workspace_id)
    events = await _all(connection, "autopost.events", workspace_id)
    return [*_of_deliveries(deliveries, events), *_sent_twice(deliveries), *_strays(deliveries, events)]


async def _all(connection: AsyncConnection[DictRow], table: str, workspace_id: str) -> list[DictRow]:
    query = f"select * from {table} where workspace_id = %s"
    return await (await connection.execute(query.encode(), (workspace_id,))).fetchall()


def _of_deliveries(deliveries: Iterable[Row], events: Iterable[Row]) -> list[str]:
    history: dict[UUID, list[Row]] = defaultdict(list)
    for event in events:
        if event["delivery_id"] is not None:
            history[event["delivery_id"]].append(event)
    return [
        f"{row['delivery_id']} ({row['channel_id']}, {row['status']}): {fault}"
        for row in deliveries
        for fault in _faults(row, history[row["delivery_id"]])
    ]


def _faults(row: Row, events: list[Row]) -> Iterable[str]:
    said = Counter(event["action"] for event in events)
    begins = sorted(event["attempt"] for event in events if event["action"] == "send_attempt")
    if begins != list(range(1, row["attempt"] + 1)) or row["lease"] != row["attempt"]:
        yield f"attempt {row['attempt']}, lease {row['lease']}, but its begins are {begins}"

    born = sum(said[action] for action in _BORN) + (
        row["attempt"] == 0 and row["status"] == "deduped" and not said["enqueue"]
    )
    if born != 1:
        yield f"came into being {born} times"
    if (told_by := _TOLD_BY.get(row["status"])) and not told_by & said.keys():
        yield "no event tells of its state"
    if said["sent"] != (row["status"] == "sent") and not said["confirmed"]:
        yield f"{said['sent']} events say that it was sent"

    cut_off = sum((event["meta"] or {}).get("reason") == "manual_stuck_release" for event in events)
    open_begins = len(begins) - _outcomes(events) - said["sending_lease_expired"] - (row["status"] == "sending")
    if not 0 <= open_begins <= cut_off:
        yield f"{open_begins} begins of {len(begins)} came to no known end: {dict(said)}"


def _outcomes(events: list[Row]) -> int:
    """Results that ended a begin. What the lease sweep ended was ended by its own event."""
    return sum(
        event["action"] in _OUTCOMES
        and (event["error"] or {}).get("code") not in ("lease_expired", "validation_failed")
        and (event["meta"] or {}).get("from_status", "sending") == "sending"
        for event in events
    )


def _sent_twice(deliveries: Iterable[Row]) -> Iterable[str]:
    sent: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in deliveries:
        if row["status"] == "sent":
            sent[row["channel_id"], row["content_hash"]].append(row)
    for (channel_id, content_hash), rows in sent.items():
        if len(rows) > 1 and not any(row["lost_leases"] or row["lease"] != row["settled_lease"] for row in rows):
            yield f"{content_hash} went into {channel_id} {len(rows)} times, and no lease was ever lost"


def _strays(deliveries: Iterable[Row], events: Iterable[Row]) -> Iterable[str]:
    known = {row["delivery_id"] for row in deliveries}
    for event in events:
        if event["delivery_id"] is not None and event["delivery_id"] not in known:
            yield f"event {event['action']} tells of {event['delivery_id']}, which is not there"
