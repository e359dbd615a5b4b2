"""When schedules tick, on ordinary days and on the two that are not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vestnik.errors import ConfigError
from vestnik.ops.jobs.clock import LATE_AFTER, MOST_AT_ONCE, Rule, due

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Sao_Paulo"]
CRONS = [
    "* * * * *", "*/7 * * * *", "30 2 * * *", "0 * * * *", "0 */6 * * *", "15,45 1-3 * * *", "0 9 * * MON-FRI",
    "59 23 31 12 *", "0 0 1 * *", "0 12 29 2 *", "30 1 * * SUN", "0 0 L * *",
]  # fmt: skip
moments = st.datetimes(datetime(2026, 1, 1), datetime(2031, 1, 1), timezones=st.just(UTC))
# A day around each change of the clocks in these zones.
changes = st.sampled_from(
    [datetime(2027, 3, 28, 1, tzinfo=UTC), datetime(2027, 10, 31, 1, tzinfo=UTC), datetime(2027, 11, 7, 6, tzinfo=UTC),
     datetime(2027, 3, 14, 7, tzinfo=UTC), datetime(2027, 4, 3, 15, tzinfo=UTC), datetime(2027, 10, 2, 15, 30, tzinfo=UTC)]
).flatmap(lambda at: st.integers(-86400, 86400).map(lambda s: at + timedelta(seconds=s)))  # fmt: skip
rules = st.one_of(
    st.builds(Rule, cron=st.sampled_from(CRONS), timezone=st.sampled_from(ZONES)),
    st.builds(Rule, every=st.sampled_from([1, 60, 3600, 86399, 604800]).map(lambda s: timedelta(seconds=s))),
)


def ticks(cron: str, zone: str, after: str, count: int) -> list[str]:
    rule = Rule(cron=cron, timezone=zone)
    first = rule.first_after(datetime.fromisoformat(after).astimezone(UTC))
    return [tick.strftime("%d %H:%M") for tick in islice(rule.ticks_from(first), count)]


@settings(max_examples=150, deadline=None)
@given(rule=rules, moment=st.one_of(moments, changes))
def test_ticks_only_ever_go_forward(rule: Rule, moment: datetime) -> None:
    first = rule.first_after(moment)
    seen = [moment, *islice(rule.ticks_from(first), 40)]
    assert all(a < b for a, b in zip(seen, seen[1:], strict=False))
    assert all(tick.utcoffset() == timedelta(0) for tick in seen)


@settings(max_examples=100, deadline=None)
@given(cron=st.sampled_from(CRONS), zone=st.sampled_from(ZONES), moment=changes)
def test_who_looks_from_tick_to_tick_sees_the_same_as_who_looks_at_once(cron: str, zone: str, moment: datetime) -> None:
    """As a scheduler does, which knows nothing but the tick that stands next."""
    rule = Rule(cron=cron, timezone=zone)
    at_once = list(islice(rule.ticks_from(rule.first_after(moment)), 12))
    one_by_one = [rule.first_after(moment)]
    while len(one_by_one) < 12:
        one_by_one.append(rule.first_after(one_by_one[-1]))
    assert one_by_one == at_once


@settings(max_examples=150, deadline=None)
@given(
    rule=rules,
    moment=st.one_of(moments, changes),
    away=st.integers(0, 40 * 86400),
    missed=st.sampled_from(["skip", "once"]),
)
def test_after_an_absence_the_last_tick_is_found_and_the_next_one_is_ahead(
    rule: Rule, moment: datetime, away: int, missed: str
) -> None:
    next_at = rule.first_after(moment)
    now = next_at + timedelta(seconds=min(away, 3000) if rule.every == timedelta(seconds=1) else away)
    fired, following = due(rule, missed, next_at, now)  # type: ignore[arg-type]
    passed = [next_at]
    for tick in islice(rule.ticks_from(next_at), 1, None):
        if tick > now:
            assert following == tick
            break
        passed.append(tick)
    assert fired == ([] if missed == "skip" and now - passed[-1] > LATE_AFTER else passed[-1:])


@settings(max_examples=60, deadline=None)
@given(rule=rules, moment=moments, away=st.integers(0, 3 * 86400))
def test_all_missed_ticks_are_made_up_for_in_order_a_bounded_number_at_once(
    rule: Rule, moment: datetime, away: int
) -> None:
    next_at = rule.first_after(moment)
    now = next_at + timedelta(seconds=min(away, 2000) if rule.every == timedelta(seconds=1) else away)
    made_up: list[datetime] = []
    standing = next_at
    while standing <= now:
        fired, standing = due(rule, "all", standing, now)
        assert 0 < len(fired) <= MOST_AT_ONCE
        made_up += fired
    ahead = rule.ticks_from(next_at)
    assert made_up == [next(ahead) for _ in made_up]
    assert next(ahead) == standing


def test_a_tick_in_the_skipped_hour_comes_right_after_it() -> None:
    assert ticks("30 2 * * *", "Europe/Berlin", "2027-03-27T12:00+01:00", 2) == ["28 01:00", "29 00:30"]


def test_a_tick_in_the_hour_that_comes_twice_comes_once() -> None:
    assert ticks("30 2 * * *", "Europe/Berlin", "2027-10-30T12:00+02:00", 2) == ["31 00:30", "01 01:30"]


def test_every_few_minutes_means_every_few_minutes_also_then() -> None:
    spring = ticks("*/20 * * * *", "Europe/Berlin", "2027-03-28T00:35Z", 4)
    assert spring == ["28 00:40", "28 01:00", "28 01:20", "28 01:40"]
    autumn = ticks("*/20 * * * *", "Europe/Berlin", "2027-10-31T00:35Z", 4)
    assert autumn == ["31 00:40", "31 01:00", "31 01:20", "31 01:40"]


def test_at_nine_means_at_nine_in_winter_and_in_summer() -> None:
    rule = Rule(cron="0 9 * * *", timezone="Europe/Berlin")
    year = islice(rule.ticks_from(rule.first_after(NOON)), 365)
    assert {tick.astimezone(ZoneInfo("Europe/Berlin")).hour for tick in year} == {9}


def test_years_of_absence_cost_a_short_search(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = 0
    plain = Rule._cron_ticks

    def counted(self: Rule, moment: datetime):  # type: ignore[no-untyped-def]
        nonlocal searched
        for tick in plain(self, moment):
            searched += 1
            yield tick

    monkeypatch.setattr(Rule, "_cron_ticks", counted)
    rule = Rule(cron="* * * * *")
    assert due(rule, "once", NOON, NOON + timedelta(days=3650, seconds=30)) == (
        [NOON + timedelta(days=3650)], NOON + timedelta(days=3650, minutes=1),
    )  # fmt: skip
    assert searched < 100


@pytest.mark.parametrize(
    "wrong",
    [
        {"cron": "every day"}, {"cron": "61 * * * *"}, {"cron": "0 0 30 2 *"}, {"cron": ""}, {"cron": "* * * *"},
        {"every": timedelta(milliseconds=10)}, {"every": timedelta(days=3651)}, {}, {"cron": "* * * * *", "every": timedelta(hours=1)},
        {"cron": "* * * * *", "timezone": "Mars/Olympus"}, {"cron": "* * * * *", "timezone": "../etc/passwd"},
    ],
    ids=str,
)  # fmt: skip
def test_a_rule_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        Rule(**wrong)  # type: ignore[arg-type]
