"""Random sequences of everything that may be done to a queue, with a ledger kept beside it (``ledger.py``).

``VESTNIK_HYPOTHESIS=deep`` makes the sequences longer and many more, for a run by hand.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, NamedTuple

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from ledger import ENDS, Delivery, Ledger, verdict
from psycopg import ClientCursor, sql
from psycopg.rows import dict_row
from psycopg.types.datetime import TimestamptzLoader
from psycopg.types.json import Jsonb
from runbook import as_psycopg, at_any_time, statements

pytestmark = pytest.mark.pg16

DEEP = os.environ.get("VESTNIK_HYPOTHESIS") == "deep"
PROFILE = settings(
    max_examples=3000 if DEEP else 60,
    stateful_step_count=80 if DEEP else 35,
    deadline=None,
    print_blob=True,
    report_multiple_bugs=False,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
START = datetime(2027, 3, 1, 12, tzinfo=UTC)
# What may be posted, and on which platforms preflight takes it.
POSTS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "one": ({"text": "one"}, {"telegram", "max"}),
    "two": ({"text": "two"}, {"telegram", "max"}),
    "three": ({"text": "three", "links": ["https://example.org/"]}, {"telegram", "max"}),
    "long": ({"text": "x" * 4050}, {"telegram"}),
    "broken": ({"text": "<b>broken", "parse_mode": "HTML"}, set()),
}
ERRORS: dict[str, dict[str, Any]] = {
    "500": {"category": "TRANSIENT", "scope": "platform", "code": "500"},
    "not ready": {"category": "TRANSIENT", "scope": "delivery", "code": "attachment.not.ready"},
    "429": {"category": "TRANSIENT", "scope": "channel", "code": "429", "retry_after_ms": 7000},
    "429 for all": {
        "category": "TRANSIENT",
        "scope": "platform",
        "code": "429",
        "retry_after_ms": 9000,
        "scope_named": True,
    },
    "400": {"category": "PERMANENT", "scope": "delivery", "code": "400"},
    "403": {"category": "PERMANENT", "scope": "channel", "code": "403"},
    "banned": {"category": "PERMANENT", "scope": "platform", "code": "401"},
}

channels = st.lists(
    st.fixed_dictionaries({
        "platform": st.sampled_from(["telegram", "max"]),
        "rate_group": st.sampled_from(["first", "second"]),
        "rate_rps": st.sampled_from([None, None, 0, 0.5, 2, 3]),
        "max_parallel": st.integers(1, 3),
        "dedup_ttl_hours": st.sampled_from([None, 0, 1]),
        "on_unknown": st.sampled_from(["resend", "resend", "hold"]),
        "posting_window": st.sampled_from([None, None, ("11:00", "13:00"), ("22:00", "02:00")]),
    }),
    min_size=2, max_size=4,
)  # fmt: skip
policies = st.fixed_dictionaries({
    "claim_per_channel": st.sampled_from([1, 2, 20]),
    "claim_horizon": st.sampled_from([timedelta(0), timedelta(seconds=5), timedelta(seconds=60)]),
    "max_attempts": st.integers(1, 4),
    "disable_after_permanent_streak": st.integers(1, 3),
    "sending_lease": st.sampled_from([timedelta(seconds=30), timedelta(seconds=300)]),
    "dedup_ttl_hours": st.sampled_from([2, 168]),
})  # fmt: skip
waits = st.one_of(
    st.sampled_from([0.0005, 0.34, 0.5, 1, 2, 7, 15, 31, 301, 3600, 7200, 168 * 3600]),
    st.floats(0.000001, 400, allow_nan=False),
).map(lambda seconds: timedelta(seconds=seconds))
moments = st.sampled_from([-60, 1, 90, 3600, 12 * 3600]).map(lambda seconds: timedelta(seconds=seconds))
runs = st.sampled_from(["run-1", "run-2"])
limits = st.sampled_from([1, 2, 5, 100])


class Queue(RuleBasedStateMachine):
    """Each example is a workspace of its own in one database."""

    connection: ClassVar[psycopg.Connection[dict[str, Any]]]
    numbers: ClassVar[Iterator[int]]

    # Beginning and end

    @initialize(
        channels=channels,
        policy=policies,
        group_rates=st.lists(st.sampled_from([None, 0, 1, 4]), min_size=4, max_size=4),
    )
    def make_workspace(
        self, channels: list[dict[str, Any]], policy: dict[str, Any], group_rates: list[float | None]
    ) -> None:
        self.workspace, self.now, self.active = f"w{next(self.numbers)}", START, True
        self.told: set[Any] = set()
        self.punished: dict[str, datetime] = {}
        self._sql("insert into core.workspaces (workspace_id, name) values (%(w)s, 'a test')")
        self.policy = self._sql("select * from autopost.policy_of(%(w)s)")[0] | policy
        for name, value in policy.items():
            query = sql.SQL("update autopost.policies set {} = %(value)s where workspace_id = %(w)s")
            self._sql(query.format(sql.Identifier(name)), value=value)
        for n, channel in enumerate(channels):
            group = f"{channel['platform']}-{channel['rate_group']}"
            names = {**channel, "channel_id": f"c{n}", "target_id": f"@{n}", "auth_ref": "bot", "rate_group": group}
            if hours := names["posting_window"]:
                names |= {"window_mode": "windowed", "posting_window": Jsonb({"daily": [hours]})}
            self._insert("channels", names)
        groups = itertools.product(["telegram", "max"], ["first", "second"])
        for (platform, name), rate in zip(groups, group_rates, strict=True):
            if rate is not None:
                self._insert(
                    "platform_limits", {"platform": platform, "rate_group": f"{platform}-{name}", "rate_rps": rate}
                )
        self.ledger = Ledger(self._rows("channels"), self._rows("platform_limits"), self.policy)
        self._sql("select autopost.note_paces(%(w)s, %(now)s)")

    def teardown(self) -> None:
        """Everything is put right and the platforms take it all: nothing may be left lying, but what is held."""
        if not hasattr(self, "ledger"):
            return
        self._prove()
        for query in (
            "update core.workspaces set status = 'active' where workspace_id = %(w)s",
            "update autopost.channels set enabled = true, rate_rps = null, paused_until = null, cooldown_until = null,"
            " window_mode = 'immediate' where workspace_id = %(w)s",
            "update autopost.platform_limits set rate_rps = null, cooldown_until = null where workspace_id = %(w)s",
        ):
            self._sql(query)
        for _ in range(200):
            self.now += timedelta(minutes=6)
            self._sql("select autopost.sweep_sending(%(w)s, 500, %(now)s), autopost.sweep_claimed(%(w)s, 500, %(now)s),"
                      " autopost.sweep_windows(%(w)s, 500, %(now)s)")  # fmt: skip
            begun = self._sql("select * from claim_and_begin(%(w)s, 'last', 100, %(now)s)")
            self._settle([{"delivery_id": str(row["delivery_id"]), "lease": row["lease"]} for row in begun])
            left = [row for row in self._rows("deliveries") if row["status"] not in ENDS and row["held_at"] is None]
            if not left:
                return
        raise AssertionError(f"these never go out: {left}")

    def _prove(self) -> None:
        """The live proof finds nothing in all that was done."""
        ids = [row["delivery_id"] for row in self._rows("deliveries")]
        for query in (
            "select * from autopost.contradictions(%(w)s, %(ids)s, %(now)s)",
            "select * from autopost.doubled_posts(%(w)s, %(ids)s, %(now)s)",
            "select * from autopost.hasty_begins(%(w)s, '-infinity', %(now)s)",
            "select * from autopost.crowded_begins(%(w)s, '-infinity', %(now)s)",
        ):
            assert self._sql(query, ids=ids) == []

    # Deeds

    @rule(
        names=st.lists(st.sampled_from(sorted(POSTS)), min_size=1, max_size=3),
        only=st.none() | st.sets(st.integers(0, 3), min_size=1),
        later=st.none() | st.none() | moments,
    )
    def push(self, names: list[str], only: set[int] | None, later: timedelta | None) -> None:
        self.now += timedelta(milliseconds=1)  # the items of a batch share its moment; two batches never do
        wanted = None if only is None else [f"c{n}" for n in sorted(only)]
        about = {} if wanted is None else {"channels": wanted}
        about |= {} if later is None else {"scheduled_for": (self.now + later).isoformat()}
        raws = [POSTS[name][0] | about for name in names]
        expected = [self._expected_births(names[:n], name, wanted) for n, name in enumerate(names)]
        answers = self._sql(
            "select * from autopost.enqueue_batch(%(w)s, null, 'push', array(select jsonb_array_elements(%(raws)s)), %(now)s) order by item",
            raws=Jsonb(raws),
        )
        before = set(self.ledger.known)
        self._look("push")
        counts = [Counter(births.values()) for births in expected]
        assert [(a["enqueued"], a["suppressed"], a["failed"]) for a in answers] == [
            (c["queued"], c["deduped"], c["failed_permanent"]) for c in counts
        ]
        born = Counter(
            (str(d.row["trace_id"]), d.row["channel_id"], d.row["status"])
            for i, d in self.ledger.known.items()
            if i not in before
        )
        assert born == Counter(
            (str(a["trace_id"]), channel, status)
            for a, births in zip(answers, expected, strict=True)
            for channel, status in births.items()
        )

    def _expected_births(self, earlier: list[str], name: str, wanted: list[str] | None) -> dict[str, str]:
        births = {}
        for channel_id, channel in self.ledger.channels.items():
            if not channel["enabled"] or (wanted is not None and channel_id not in wanted):
                continue
            if channel["platform"] not in POSTS[name][1]:
                births[channel_id] = "failed_permanent"
            elif name in earlier or self._is_duplicate(channel_id, name):
                births[channel_id] = "deduped"
            else:
                births[channel_id] = "queued"
        return births

    def _is_duplicate(self, channel_id: str, name: str) -> bool:
        hashes = {d.row["content_hash"] for d in self.ledger.known.values() if _name_of(d) == name}
        return any(self.ledger.duplicate_of(channel_id, content_hash, self.now) for content_hash in hashes)

    @rule(limit=limits, run=runs)
    def claim(self, limit: int, run: str) -> None:
        self._claiming(
            "claim",
            "select delivery_id, not_before from claim_deliveries(%(w)s, %(run)s, %(limit)s, %(now)s)",
            limit,
            run,
        )

    @rule(limit=limits, run=runs)
    def begin(self, limit: int, run: str) -> None:
        rows = self._sql("select * from begin_sending(%(w)s, %(run)s, %(limit)s, %(now)s)", run=run, limit=limit)
        self._begun("begin", rows, limit)

    @rule(limit=limits, run=runs)
    def take(self, limit: int, run: str) -> None:
        self._claiming("take", "select * from claim_and_begin(%(w)s, %(run)s, %(limit)s, %(now)s)", limit, run)

    def _claiming(self, deed: str, query: str, limit: int, run: str) -> int:
        before = {i: d.row for i, d in self.ledger.known.items()}
        channels, groups = self.ledger.channels, self.ledger.groups
        rows = self._sql(query, run=run, limit=limit)
        if deed == "take":
            self._begun(deed, rows, limit)
        else:
            self._look(deed)
            moved = {i for i, d in self.ledger.known.items() if d.row["status"] == "claimed" != before[i]["status"]}
            assert {row["delivery_id"] for row in rows} == moved
            assert len(rows) <= limit
        self._check_slots(before, channels, groups)
        return sum(before[i]["status"] != d.row["status"] for i, d in self.ledger.known.items())

    def _begun(self, deed: str, rows: list[dict[str, Any]], limit: int) -> None:
        before = {i: d.leases for i, d in self.ledger.known.items()}
        self._look(deed)
        assert {row["delivery_id"]: row["lease"] for row in rows} == {
            i: d.leases for i, d in self.ledger.known.items() if d.leases > before[i]
        }
        assert len(rows) <= limit
        assert self.active or not rows
        for row in rows:
            assert row["rendered_text"] == self.ledger.known[row["delivery_id"]].row["rendered_text"]

    def _check_slots(self, before: dict[Any, Any], channels: dict[str, Any], groups: dict[str, Any]) -> None:
        """Slots as the specification assigns them, from the cursors of before; and the cursors move by what was given out."""
        taken = [
            d.row
            for i, d in self.ledger.known.items()
            if before[i]["status"] in ("queued", "retry") and d.row["status"] in ("claimed", "sending")
        ]
        for row in taken:
            was = before[row["delivery_id"]]
            assert _due_at(was) <= self.now, "it was not due"
            assert self.active
            assert self.ledger.is_open(row["channel_id"], self.now)
        for channel_id, channel in channels.items():
            slots = [row["not_before"] for row in taken if row["channel_id"] == channel_id]
            self._check_cursor(channel, self.ledger.channels[channel_id], slots)
            assert len(self.ledger.in_channel(channel_id, "claimed")) <= self.policy["claim_per_channel"]
        for name, group in self.ledger.groups.items():
            members = {c for c, row in channels.items() if row["rate_group"] == name}
            slots = [row["not_before"] for row in taken if row["channel_id"] in members]
            self._check_cursor(groups.get(name, group | {"next_allowed_at": None}), group, slots)

    def _check_cursor(self, before: dict[str, Any], after: dict[str, Any], slots: list[datetime]) -> None:
        if not before["rate_rps"]:
            assert after["next_allowed_at"] == before["next_allowed_at"]
            return
        step = timedelta(seconds=1 / before["rate_rps"])
        base = max(self.now, before["next_allowed_at"] or self.now)
        for n, slot in enumerate(sorted(slots)):
            assert slot >= base + n * step - timedelta(microseconds=n + 1)
            assert slot <= self.now + self.policy["claim_horizon"]
        if slots:
            assert abs(after["next_allowed_at"] - (base + len(slots) * step)) < timedelta(milliseconds=1)
        else:
            assert after["next_allowed_at"] == before["next_allowed_at"]

    @precondition(lambda self: self.ledger.known)
    @rule(
        pick=st.integers(0, 99),
        lease=st.sampled_from(["right", "right", "missing", "stale", "future"]),
        took=st.booleans(),
    )
    def report_success(self, pick: int, lease: str, took: bool) -> None:
        """``took`` prefers what is being sent: most results come for that."""
        delivery = self._pick(pick, prefer="sending" if took else None)
        chosen = self._lease(delivery, lease)
        worth = verdict(delivery, chosen, True)
        query = "select mark_sent(%(w)s, %(id)s, 'm1', %(now)s, null, %(lease)s, %(now)s)"
        self._report(delivery, worth, {"settles": "sent", "duplicate": "duplicate", "late": "late"}, query, chosen)

    @precondition(lambda self: self.ledger.known)
    @rule(
        pick=st.integers(0, 99),
        lease=st.sampled_from(["right", "right", "right", "missing", "stale", "future"]),
        error=st.sampled_from(sorted(ERRORS)),
    )
    def report_error(self, pick: int, lease: str, error: str) -> None:
        delivery = self._pick(pick, prefer="sending")
        chosen = self._lease(delivery, lease)
        worth = verdict(delivery, chosen, False)
        waits = delivery.waits(ERRORS[error], self.now)
        if ERRORS[error]["category"] == "PERMANENT":
            settled, query = "failed_permanent", "select fail_permanent(%(w)s, %(id)s, %(error)s, %(lease)s, %(now)s)"
        else:
            settled = "retry" if waits or delivery.tries < self.policy["max_attempts"] else "dead"
            query = "select schedule_retry(%(w)s, %(id)s, null, %(error)s, %(lease)s, %(now)s)"
        began = delivery.row["sending_started_at"]
        expectation = self._expected_gates(delivery, ERRORS[error], worth, began)
        self._report(delivery, worth, {"settles": settled, "late": "late"}, query, chosen, ERRORS[error], expectation)
        if worth == "settles" and settled == "retry":
            if waits:
                delivery.waited(self.now)
            self._check_backoff(delivery, ERRORS[error], delivery.not_ready if waits else delivery.tries)

    def _report(
        self, delivery: Delivery, worth: str, answers: dict[str, str], query: str, lease: int | None,
        error: dict[str, Any] | None = None, gates: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        arguments = {"id": delivery.row["delivery_id"], "lease": lease, "error": Jsonb(error)}
        forgiven = {delivery.row["channel_id"]: {"error_streak": 0}} if worth == "settles" and error is None else {}
        if worth == "illegal":
            with pytest.raises(psycopg.Error, match="illegal move") as refused:
                self._sql(query, **arguments)
            assert refused.value.sqlstate == "VM001"
        else:
            assert list(self._sql(query, **arguments)[0].values()) == [answers[worth]]
        if worth == "settles":
            delivery.settled = delivery.leases
        late = Counter([(delivery.row["delivery_id"], "late_result")] if worth == "late" else [])
        self._look("settle", late, gates if gates is not None else forgiven)

    @rule(errors=st.lists(st.none() | st.sampled_from(sorted(set(ERRORS) - {"403", "banned"})), min_size=1, max_size=6))
    def report_many(self, errors: list[str | None]) -> None:
        """One batch for what is being sent now."""
        sending = [d for d in self.ledger.known.values() if d.row["status"] == "sending"]
        results, changed = [], {}
        for delivery, error in zip(sending, errors, strict=False):
            result = {"delivery_id": str(delivery.row["delivery_id"]), "lease": delivery.leases}
            if error is None:
                changed[delivery.row["channel_id"]] = {"error_streak": 0}
            elif delivery.waits(ERRORS[error], self.now):
                delivery.waited(self.now)
            results.append(result if error is None else result | {"error": ERRORS[error]})
            delivery.settled = delivery.leases
        outcomes = {row["delivery_id"]: row["outcome"] for row in self._settle(results)}
        self._look("settle", gates=changed | {"cooling": ...})
        assert outcomes == {d.row["delivery_id"]: d.row["status"] for d, _ in zip(sending, errors, strict=False)}

    @rule()
    def sweep(self) -> None:
        since = self.now - self.policy["sending_lease"]
        expired = {
            i
            for i, d in self.ledger.known.items()
            if d.row["status"] == "sending" and d.row["sending_started_at"] < since
        }
        self._sql("select autopost.sweep_sending(%(w)s, 500, %(now)s)")
        before = {i: d.row for i, d in self.ledger.known.items()}
        self._look("sweep_sending")
        assert {i for i, row in before.items() if row["status"] != self.ledger.known[i].row["status"]} == expired
        for i in expired:
            row = self.ledger.known[i].row
            held = self.ledger.channels[row["channel_id"]]["on_unknown"] == "hold"
            assert (row["held_at"] is not None) == held
            assert (row["status"] == "dead") == (self.ledger.known[i].tries >= self.policy["max_attempts"] and not held)
            assert row["next_retry_at"] == (None if row["status"] == "dead" else row["next_retry_at"])
        stale = {i for i, d in self.ledger.known.items() if d.row["status"] == "claimed" and self._is_stale(d.row)}
        self._sql("select autopost.sweep_claimed(%(w)s, 500, %(now)s)")
        before = {i: d.row for i, d in self.ledger.known.items()}
        self._look("sweep_claimed")
        assert {i for i, row in before.items() if row["status"] != self.ledger.known[i].row["status"]} == stale
        moved = self._sql("select autopost.sweep_windows(%(w)s, 500, %(now)s) as n")[0]["n"]
        assert moved == 0, "nobody has changed the hours"

    def _is_stale(self, row: dict[str, Any]) -> bool:
        channel = self.ledger.channels[row["channel_id"]]
        if not channel["enabled"] or (channel["paused_until"] or self.now) > self.now:
            return True
        if not self.ledger.is_within_hours(row["channel_id"], self.now):
            return True
        sending = self.ledger.in_channel(row["channel_id"], "sending")
        alive = any(d.row["sending_started_at"] >= self.now - self.policy["sending_lease"] for d in sending)
        waits_for_its_turn = len(sending) >= channel["max_parallel"] and alive
        expired = row["claimed_at"] < self.now - self.policy["claimed_lease"] and row["not_before"] <= self.now
        return expired and not waits_for_its_turn

    @rule(pause=waits)
    def wait(self, pause: timedelta) -> None:
        self.now += pause

    @rule()
    def settle_down_and_wait_as_told(self) -> None:
        """What a dispatcher does: take until there is nothing, sleep until next_begin_at, and then there is something."""
        for _ in range(60):
            if not self._claiming("take", "select * from claim_and_begin(%(w)s, %(run)s, 100, %(now)s)", 100, "run-1"):
                break
        else:
            raise AssertionError("it takes for ever")
        if self.active:
            for channel_id in self.ledger.channels:
                self._check_nothing_is_left(channel_id)
        told = self._sql("select autopost.next_begin_at(%(w)s, %(now)s) as at")[0]["at"]
        if told is not None and self.active:
            assert told > self.now, "it would never sleep"
            self.now = told
            begun = self._sql("select * from claim_and_begin(%(w)s, 'run-1', 100, %(now)s)")
            self._begun("take", begun, 100)
            closed = [c for c in self.ledger.channels if not self.ledger.is_within_hours(c, self.now)]
            assert begun or closed, "it was woken for nothing"

    def _check_nothing_is_left(self, channel_id: str) -> None:
        channel = self.ledger.channels[channel_id]
        places = channel["max_parallel"] - len(self.ledger.in_channel(channel_id, "sending"))
        if places <= 0 or not self.ledger.is_open(channel_id, self.now) or self.ledger.is_paced(channel_id):
            return
        waiting = self.ledger.in_channel(channel_id, "queued", "claimed", "retry")
        due = [d for d in waiting if _due_at(d.row) <= self.now]
        assert not due, "there is a place, nothing in the way, and yet it does not go out"

    # The operator

    @rule(section=st.sampled_from([5, 6]), channel=st.integers(0, 3), seconds=st.sampled_from([0, 5, 3600]))
    def pause_or_resume(self, section: int, channel: int, seconds: int) -> None:
        self._runbook(section, channel_id=f"c{channel}", pause_seconds=seconds)
        changed = {"paused_until": self.now + timedelta(seconds=seconds)} if section == 5 else _RESUMED
        self._look("configure", gates={f"c{channel}": changed})

    @rule(section=st.sampled_from([7, 8, 8]), group=st.sampled_from(["telegram-first", "telegram-second", "max-first"]))
    def disable_or_enable_group(self, section: int, group: str) -> None:
        self._runbook(section, rate_group=group)
        members = [c for c, row in self.ledger.channels.items() if row["rate_group"] == group]
        self._look("configure", gates=dict.fromkeys(members, {"enabled": False} if section == 7 else _RESUMED))

    @rule(section=st.sampled_from([3, 4]), pick=st.integers(0, 99), every=st.booleans())
    def requeue(self, section: int, pick: int, every: bool) -> None:
        status = "dead" if section == 3 else "failed_permanent"
        found = [i for i, d in self.ledger.known.items() if d.row["status"] == status]
        chosen = found if every or not found else [found[pick % len(found)]]
        self._runbook(section, delivery_ids=chosen)
        self._look("requeue")
        if section == 3:
            assert all(self.ledger.known[i].row["status"] == "retry" for i in chosen)

    @precondition(lambda self: self.ledger.known)
    @rule(pick=st.integers(0, 99))
    def cancel(self, pick: int) -> None:
        """What waits of a message, and nothing else of it."""
        unsent, waiting = self._unsent(self._pick(pick, prefer="queued").row["message_id"])
        answers = self._sql(
            "select * from autopost.cancel_deliveries(%(w)s, 'me', 'because', %(id)s, p_now => %(now)s)",
            id=unsent.message_id,
        )
        self._look("cancel")
        assert {row["delivery_id"]: row["outcome"] for row in answers} == {
            i: "cancelled" if i in waiting else "too_late" for i in unsent.ids
        }
        assert all(self.ledger.known[i].row["status"] == "failed_permanent" for i in waiting)

    @precondition(lambda self: self.ledger.known)
    @rule(pick=st.integers(0, 99), later=st.none() | moments)
    def reschedule(self, pick: int, later: timedelta | None) -> None:
        unsent, waiting = self._unsent(self._pick(pick, prefer="queued").row["message_id"])
        held = {i for i in waiting if self.ledger.known[i].row["held_at"] is not None}
        at = None if later is None else self.now + later
        answers = self._sql(
            "select * from autopost.reschedule_deliveries(%(w)s, 'me', 'because', %(at)s, %(id)s, p_now => %(now)s)",
            id=unsent.message_id, at=at,
        )  # fmt: skip
        for i in waiting - held:
            self.ledger.known[i].stepped_aside = True
        self._look("reschedule", Counter((i, "rescheduled") for i in waiting - held))
        said = {"rescheduled": waiting - held, "held": held, "too_late": unsent.ids - waiting}
        assert {row["delivery_id"]: row["outcome"] for row in answers} == {i: s for s, of in said.items() for i in of}
        for row in answers:
            if row["outcome"] == "rescheduled":
                kept = self.ledger.known[row["delivery_id"]].row
                assert (kept["scheduled_for"], row["goes_at"]) == (at, _due_at(kept))
                assert row["goes_at"] >= max(self.now, at or self.now)

    def _unsent(self, message_id: Any) -> tuple[Unsent, set[Any]]:
        """All that is not at its end, and what of it waits."""
        rows = {i: d.row for i, d in self.ledger.known.items() if d.row["message_id"] == message_id}
        ids = {i for i, row in rows.items() if row["status"] not in ENDS}
        return Unsent(message_id, ids), {i for i in ids if rows[i]["status"] in ("queued", "retry")}

    @rule()
    def release_stuck(self) -> None:
        self._runbook(10)
        self._look("release")

    @rule(status=st.sampled_from(["active", "active", "paused"]))
    def switch_workspace(self, status: str) -> None:
        self._sql("update core.workspaces set status = %(status)s where workspace_id = %(w)s", status=status)
        self.active = status == "active"

    # Looking

    def _look(self, deed: str, told: Counter[Any] | None = None, gates: dict[str, Any] | None = None) -> None:
        """Everything as it stands now, held against the ledger. ``gates``: what the deed had to change of the channels."""
        events = [e for e in self._rows("events") if e["id"] not in self.told]
        self.told |= {e["id"] for e in events}
        before = self.ledger.channels
        self.ledger.channels = {row["channel_id"]: row for row in self._rows("channels")}
        self.ledger.groups = {row["rate_group"]: row for row in self._rows("platform_limits")}
        self._check_gates(before, gates or {})
        self.ledger.look(deed, self._rows("deliveries"), events, self.now, told or Counter())
        for event in events:
            if event["delivery_id"] is not None:
                delivery = self.ledger.known[event["delivery_id"]]
                assert event["attempt"] == delivery.row["attempt"]
                assert event["meta"] is not None

    def _check_gates(self, before: dict[str, Any], changed: dict[str, Any]) -> None:
        for channel_id, row in self.ledger.channels.items():
            expected = {name: before[channel_id][name] for name in ("enabled", "paused_until", "error_streak")}
            expected |= changed.get(channel_id, {})
            assert {name: row[name] for name in expected} == expected, f"the gates of {channel_id}"
            if "cooling" not in changed:
                assert row["cooldown_until"] == before[channel_id]["cooldown_until"]

    def _expected_gates(
        self, delivery: Delivery, error: dict[str, Any], worth: str, began: datetime | None
    ) -> dict[str, Any]:
        channel_id = delivery.row["channel_id"]
        channel = self.ledger.channels[channel_id]
        if error["code"] == "429" and worth in ("settles", "late"):
            return {"cooling": ...}
        if (error["category"], error["scope"], worth) != ("PERMANENT", "channel", "settles"):
            return {}
        assert began is not None
        if self.punished.get(channel_id, began - timedelta(seconds=1)) >= began:
            return {}  # the same incident
        self.punished[channel_id] = self.now
        streak = channel["error_streak"] + 1
        until = self.now + self.policy["pause_on_permanent_for"]
        return {
            channel_id: {
                "error_streak": streak,
                "paused_until": max(until, channel["paused_until"] or until),
                "enabled": channel["enabled"] and streak < self.policy["disable_after_permanent_streak"],
            }
        }

    def _check_backoff(self, delivery: Delivery, error: dict[str, Any], nth: int) -> None:
        row = delivery.row
        seconds = error.get("retry_after_ms", 0) / 1000
        if not seconds and error["code"] == "attachment.not.ready":
            seconds = min(nth, 5)
        if not seconds:
            seconds = min(2**nth, 300)
        least = timedelta(seconds=seconds)
        assert self.now + least <= row["next_retry_at"] <= self.now + least * 1.2 + timedelta(microseconds=1)

    # The database

    def _pick(self, n: int, prefer: str | None) -> Delivery:
        every = list(self.ledger.known.values())
        preferred = [d for d in every if d.row["status"] == prefer]
        found = preferred if preferred and n % 4 else every
        return found[n % len(found)]

    @staticmethod
    def _lease(delivery: Delivery, which: str) -> int | None:
        newest = delivery.leases
        return {"right": newest, "missing": None, "stale": max(newest - 1, 0), "future": newest + 1}[which]

    def _settle(self, results: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return self._sql(
            "select * from autopost.settle_deliveries(%(w)s, %(results)s, %(now)s)", results=Jsonb(results)
        )

    def _sql(self, query: Any, **arguments: Any) -> list[dict[str, Any]]:
        cursor = self.connection.execute(query, {"w": self.workspace, "now": self.now} | arguments)
        return cursor.fetchall() if cursor.description else []

    def _rows(self, table: str) -> list[dict[str, Any]]:
        return self._sql(sql.SQL("select * from autopost.{} where workspace_id = %(w)s").format(sql.Identifier(table)))

    def _insert(self, table: str, row: dict[str, Any]) -> None:
        row = {"workspace_id": self.workspace, **row}
        query = sql.SQL("insert into autopost.{} ({}) values ({})").format(
            sql.Identifier(table),
            sql.SQL(", ").join(map(sql.Identifier, row)),
            sql.SQL(", ").join(map(sql.Placeholder, row)),
        )
        self.connection.execute(query, row)

    def _runbook(self, section: int, **arguments: Any) -> None:
        who = {"workspace_id": self.workspace, "operator": "me", "reason": "because", "now": self.now}
        with ClientCursor(self.connection) as cursor:
            for statement in statements(section):
                cursor.execute(as_psycopg(at_any_time(statement)).encode(), who | arguments)


_RESUMED = {"enabled": True, "paused_until": None, "error_streak": 0}


class Unsent(NamedTuple):
    message_id: Any
    ids: set[Any]


def _due_at(row: Any) -> datetime:
    moment: datetime = max(row["not_before"], row["next_retry_at"] or row["not_before"])
    return moment


def _name_of(delivery: Delivery) -> str:
    shown = delivery.row["rendered_text"].split("\n")[0]
    return {"<b>broken": "broken", "x" * 4050: "long"}.get(shown, shown)


class Timestamp(TimestamptzLoader):
    """Held deliveries wait until infinity, for which Python has no word."""

    def load(self, data: Any) -> datetime:
        return datetime.max.replace(tzinfo=UTC) if bytes(data) == b"infinity" else super().load(data)


def test_a_queue_keeps_its_promises(database: str) -> None:
    with psycopg.connect(database, autocommit=True, row_factory=dict_row) as connection:
        connection.adapters.register_loader("timestamptz", Timestamp)
        Queue.connection, Queue.numbers = connection, itertools.count()
        run_state_machine_as_test(Queue, settings=PROFILE)
