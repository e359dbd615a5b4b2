"""What the state machine test knows of its queue by itself, and holds against the tables after every step.

Written from the specification, not from the SQL: every move a delivery may make, the event each move must leave, and the
bounds on pace, places and attempts. ``Ledger.look`` takes what the tables say now and raises on the first lie.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

Row = Mapping[str, Any]

IN_FLIGHT = {"queued", "claimed", "sending", "retry"}
ENDS = {"sent", "deduped", "failed_permanent", "dead"}
MICROSECOND = timedelta(microseconds=1)
PATIENCE = timedelta(minutes=15)  # with a file that the platform still works on
_FIXED = ("message_id", "channel_id", "content_hash", "created_at", "trace_id", "rendered_text")
_NOTED = ("not_ready_since", "not_ready_attempts")  # beside what was rendered

# Which moves each deed may make, and the events each of them leaves.
BIRTHS = {"queued": "enqueue", "deduped": "dedup_suppressed", "failed_permanent": "validation_failed"}
MOVES: dict[str, dict[tuple[str, str], tuple[str, ...]]] = {
    "push": {},
    "claim": {
        ("queued", "claimed"): (),
        ("retry", "claimed"): (),
        ("queued", "deduped"): ("dedup_suppressed",),
        ("retry", "deduped"): ("dedup_suppressed",),
    },
    "begin": {("claimed", "sending"): ("send_attempt",)},
    "settle": {
        ("sending", "sent"): ("sent",),
        ("sending", "retry"): ("retry_scheduled",),
        ("sending", "failed_permanent"): ("failed_permanent",),
        ("sending", "dead"): ("dead_letter",),
        ("retry", "sent"): ("sent",),
        ("queued", "sent"): ("sent",),
        ("claimed", "sent"): ("sent",),
        ("claimed", "queued"): ("claim_released",),
    },
    "sweep_sending": {
        ("sending", "retry"): ("sending_lease_expired",),
        ("sending", "dead"): ("sending_lease_expired", "dead_letter"),
    },
    "sweep_claimed": {("claimed", "queued"): ("claimed_lease_expired",)},
    "requeue": {("dead", "retry"): ("manual_requeue",), ("failed_permanent", "retry"): ("manual_requeue",)},
    "release": {("sending", "retry"): ("manual_requeue",), ("claimed", "retry"): ("manual_requeue",)},
    "configure": {},
    "cancel": {("queued", "failed_permanent"): ("cancelled",), ("retry", "failed_permanent"): ("cancelled",)},
    "reschedule": {},
}
MOVES["take"] = (
    MOVES["claim"]
    | MOVES["begin"]
    | {("queued", "sending"): ("send_attempt",), ("retry", "sending"): ("send_attempt",)}
)


@dataclass
class Begin:
    """One send as the adapter saw it."""

    lease: int
    at: datetime


@dataclass
class Delivery:
    """One delivery as the ledger knows it."""

    row: Row
    begins: list[Begin] = field(default_factory=list)
    settled: int = 0  # the lease whose result was taken for the truth
    lost: bool = False  # a begin of it came to no known end, at least once
    not_ready_since: datetime | None = None
    not_ready: int = 0  # tries that a file was not ready for: they do not count
    stepped_aside: bool = False  # it gave up its place in the queue: an expired claim, or an operator

    @property
    def leases(self) -> int:
        return len(self.begins)

    @property
    def tries(self) -> int:
        return int(self.row["attempt"]) - self.not_ready

    def waits(self, error: Mapping[str, Any], now: datetime) -> bool:
        """The file is not ready, and there is patience left: to be asked before the result is reported."""
        return error["code"] == "attachment.not.ready" and now < (self.not_ready_since or now) + PATIENCE

    def waited(self, now: datetime) -> None:
        self.not_ready_since = self.not_ready_since or now
        self.not_ready += 1


class Ledger:
    def __init__(self, channels: Iterable[Row], groups: Iterable[Row], policy: Mapping[str, Any]) -> None:
        self.channels = {row["channel_id"]: row for row in channels}
        self.groups = {row["rate_group"]: row for row in groups}
        self.policy = policy
        self.known: dict[UUID, Delivery] = {}
        self._channel_begins: dict[str, list[datetime]] = defaultdict(list)
        self._group_begins: dict[str, list[datetime]] = defaultdict(list)

    # What the queue may do now

    def is_open(self, channel_id: str, now: datetime) -> bool:
        channel = self.channels[channel_id]
        group = self.groups.get(channel["rate_group"], {})
        gates = (channel["paused_until"], channel["cooldown_until"], group.get("cooldown_until"))
        open_gates = all(gate is None or gate <= now for gate in gates)
        return channel["enabled"] and open_gates and self.is_within_hours(channel_id, now)

    def is_within_hours(self, channel_id: str, now: datetime) -> bool:
        """For one window a day, of whole hours, by UTC."""
        channel = self.channels[channel_id]
        if channel["window_mode"] != "windowed":
            return True
        opens, closes = (int(time[:2]) for time in channel["posting_window"]["daily"][0])
        return opens <= now.hour < closes if opens < closes else now.hour >= opens or now.hour < closes

    def is_paced(self, channel_id: str) -> bool:
        channel = self.channels[channel_id]
        return bool(channel["rate_rps"] or self.groups.get(channel["rate_group"], {}).get("rate_rps"))

    def in_channel(self, channel_id: str, *statuses: str) -> list[Delivery]:
        return [d for d in self.known.values() if d.row["channel_id"] == channel_id and d.row["status"] in statuses]

    def duplicate_of(self, channel_id: str, content_hash: str, now: datetime) -> bool:
        """What a push has to find, exactly."""
        ttl = self.channels[channel_id]["dedup_ttl_hours"]
        since = now - timedelta(hours=self.policy["dedup_ttl_hours"] if ttl is None else ttl)
        return any(
            d.row["content_hash"] == content_hash
            and (d.row["status"] in IN_FLIGHT or (d.row["status"] == "sent" and d.row["sent_at"] >= since))
            for d in self.known.values()
            if d.row["channel_id"] == channel_id
        )

    # What the tables say

    def look(
        self,
        deed: str,
        deliveries: Iterable[Row],
        events: Iterable[Row],
        now: datetime,
        told: Counter[tuple[UUID, str]],
    ) -> None:
        """``told``: events of this deed that go with no move of a status, late results among them."""
        seen = {row["delivery_id"]: row for row in deliveries}
        assert self.known.keys() <= seen.keys(), "a delivery is lost"
        expected = Counter(told)
        begun: list[Delivery] = []
        for delivery_id, row in seen.items():
            delivery = self.known.get(delivery_id)
            if delivery is None:
                expected[delivery_id, self._born(deed, row)] += 1
                continue
            for action in self._moved(deed, delivery, row, now):
                expected[delivery_id, action] += 1
            if len(delivery.begins) < row["attempt"]:
                self._begun(delivery, row, now)
                begun.append(delivery)
            delivery.row = row
        self._check_events(expected, events)
        for delivery in begun:
            self._check_begin(delivery, now)
        self._check_places()

    def _born(self, deed: str, row: Row) -> str:
        assert deed == "push", f"{deed} made a delivery"
        assert row["status"] in BIRTHS
        assert (row["attempt"], row["lease"], row["sent_at"], row["provider_message_id"]) == (0, 0, None, None)
        self.known[row["delivery_id"]] = Delivery(row)
        return BIRTHS[row["status"]]

    def _moved(self, deed: str, delivery: Delivery, row: Row, now: datetime) -> tuple[str, ...]:
        old = delivery.row
        assert all(old[column] == row[column] for column in _FIXED), "what never changes has changed"
        assert _rendered(old) == _rendered(row), "what was rendered has changed"
        move = (old["status"], row["status"])
        if move[0] == move[1]:
            assert old["attempt"] == row["attempt"]
            return ()
        assert move in MOVES[deed], f"{deed} moved a delivery {move[0]} -> {move[1]}"
        if move[0] == "sending" and deed in ("sweep_sending", "release"):
            delivery.lost = True
        if deed in ("sweep_claimed", "requeue", "release"):
            delivery.stepped_aside = True
        if row["status"] in ENDS:
            assert row["claim_token"] is None
        told = MOVES[deed][move]
        if deed == "sweep_claimed" and not self._minds_itself(row["channel_id"], now):
            return ("claim_released",)
        if row["held_at"] is not None and old["held_at"] is None:
            return (*told, "held")
        return told

    def _minds_itself(self, channel_id: str, now: datetime) -> bool:
        """Nobody has paused or disabled the channel, nor has it closed: a claim that goes back there has expired."""
        channel = self.channels[channel_id]
        paused = channel["paused_until"] is not None and channel["paused_until"] > now
        return channel["enabled"] and not paused and self.is_within_hours(channel_id, now)

    def _begun(self, delivery: Delivery, row: Row, now: datetime) -> None:
        assert row["status"] == "sending"
        assert row["attempt"] == row["lease"] == len(delivery.begins) + 1, "attempts are begins, leases only grow"
        assert row["sending_started_at"] == now
        assert row["scheduled_for"] is None or row["scheduled_for"] <= now, "it went before its moment"
        if delivery.begins and delivery.settled != len(delivery.begins):
            assert delivery.lost, "it was sent again although its last send was neither settled nor lost"
        delivery.begins.append(Begin(row["lease"], now))

    @staticmethod
    def _check_events(expected: Counter[tuple[UUID, str]], events: Iterable[Row]) -> None:
        found = Counter((e["delivery_id"], e["action"]) for e in events if e["delivery_id"] is not None)
        assert found == expected, f"events too many {found - expected}, too few {expected - found}"

    # What a begin must keep

    def _check_begin(self, delivery: Delivery, now: datetime) -> None:
        channel = self.channels[delivery.row["channel_id"]]
        assert self.is_open(channel["channel_id"], now), "it began behind a closed gate"
        self._check_pace(self._channel_begins[channel["channel_id"]], channel["rate_rps"], now)
        group_rate = self.groups.get(channel["rate_group"], {}).get("rate_rps")
        self._check_pace(self._group_begins[channel["rate_group"]], group_rate, now)
        self._check_twice(delivery, now)
        if delivery.leases == 1:
            self._check_order(delivery)

    @staticmethod
    def _check_pace(begins: list[datetime], rate: float | None, now: datetime) -> None:
        """At most rate * W + 1 begins in any window W."""
        begins.append(now)
        if rate:
            for n, earlier in enumerate(reversed(begins[:-1]), start=2):
                assert n <= rate * (now - earlier).total_seconds() + 1 + 1e-9, f"{n} begins in {now - earlier}"

    def _check_twice(self, delivery: Delivery, now: datetime) -> None:
        row = delivery.row
        ttl = self.channels[row["channel_id"]]["dedup_ttl_hours"]
        since = now - timedelta(hours=self.policy["dedup_ttl_hours"] if ttl is None else ttl)
        twins = [
            other
            for other in self.known.values()
            if other is not delivery
            and (other.row["channel_id"], other.row["content_hash"]) == (row["channel_id"], row["content_hash"])
            and (other.row["status"] == "sending" or (other.row["status"] == "sent" and other.row["sent_at"] > since))
        ]
        assert not twins or any(d.lost for d in (delivery, *twins)), "the same content goes out twice"

    def _check_order(self, delivery: Delivery) -> None:
        """Of what was never tried, never stepped aside and has no moment of its own, a channel sends the oldest first."""
        if delivery.stepped_aside or delivery.row["scheduled_for"] is not None:
            return
        for other in self.in_channel(delivery.row["channel_id"], "queued", "claimed"):
            if other.leases == 0 and not other.stepped_aside and other.row["scheduled_for"] is None:
                assert delivery.row["created_at"] <= other.row["created_at"], "a younger delivery overtook an older one"

    def _check_places(self) -> None:
        for channel_id, channel in self.channels.items():
            assert len(self.in_channel(channel_id, "sending")) <= channel["max_parallel"]


def _rendered(row: Row) -> dict[str, Any]:
    return {key: value for key, value in row["render_meta"].items() if key not in _NOTED}


def verdict(delivery: Delivery, lease: int | None, success: bool) -> str:
    """What a result is worth. Only the newest begin can be settled, and only once; a success may still come after its
    lease was lost, an error may not; without a lease one is believed until the first loss."""
    newest, status = delivery.leases, delivery.row["status"]
    if newest == 0 or (lease or 0) > newest:
        return "illegal"
    if delivery.settled == newest and lease in (None, newest):
        if success and status == "sent":
            return "duplicate"
        return "illegal" if lease is None else "late"
    if lease is None and (delivery.lost or status != "sending"):
        return "late"
    if lease not in (None, newest):
        return "late"
    if status == "sending" or (success and status in IN_FLIGHT):
        return "settles"
    return "late"
