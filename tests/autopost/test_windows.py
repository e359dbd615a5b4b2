"""A channel is open when the clock on its wall says so, in the hour that is skipped and in the hour that comes twice."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from vestnik.db.embedded.binaries import NEWEST, find_binaries

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16

Window = dict[str, Any]
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MINUTE = timedelta(minutes=1)
NIGHT: Window = {"daily": [["22:00", "02:00"]]}
OFFICE: Window = {"weekdays": [["09:00", "12:00"], ["14:00", "18:30"]], "sat": [["10:00", "12:00"]]}
ALWAYS: Window = {"daily": [["00:00", "24:00"]]}

# Each is the first moment of another offset.
JUMPS = [
    ("Europe/Moscow", "2011-03-26T23:00Z"),  # for good, as it was thought
    ("Europe/Moscow", "2014-10-25T22:00Z"),
    ("Europe/Berlin", "2027-03-28T01:00Z"),
    ("Europe/Berlin", "2027-10-31T01:00Z"),
    ("America/New_York", "2027-03-14T07:00Z"),
    ("America/New_York", "2027-11-07T06:00Z"),
    ("Australia/Lord_Howe", "2027-04-03T15:00Z"),  # half an hour
    ("Australia/Lord_Howe", "2027-10-02T15:30Z"),
    ("Asia/Kathmandu", "1985-12-31T18:30Z"),  # a quarter
    ("Africa/Casablanca", "2024-03-10T02:00Z"),  # Ramadan
    ("Africa/Casablanca", "2024-04-14T02:00Z"),
    ("Pacific/Apia", "2011-12-30T10:00Z"),  # a Friday that never was
]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


async def is_open(workspace: Autopost, window: Window, zone: str | None, moment: datetime) -> bool:
    return await workspace.value("select autopost.window_open(%s, %s, %s)", Jsonb(window), zone, moment)


async def next_open(workspace: Autopost, window: Window, zone: str | None, moment: datetime) -> datetime | None:
    return await workspace.value("select autopost.next_open(%s, %s, %s)", Jsonb(window), zone, moment)


async def closes(workspace: Autopost, window: Window, zone: str | None, moment: datetime) -> datetime | str | None:
    return await workspace.value(
        "select case when isfinite(c) then to_jsonb(c at time zone 'UTC') #>> '{}' || 'Z' else c::text end"
        " from autopost.window_closes(%s, %s, %s) c",
        Jsonb(window), zone, moment,
    )  # fmt: skip


async def problem_of(workspace: Autopost, window: Any, zone: str | None = None) -> str | None:
    return await workspace.value(
        "select autopost.window_problem(%s, %s)", None if window is None else Jsonb(window), zone
    )


# Days and hours


@pytest.mark.parametrize(
    ("wall", "open_"),
    [
        ("2027-03-01T08:59:59.999999", False),
        ("2027-03-01T09:00", True),
        ("2027-03-01T11:59:59.999999", True),
        ("2027-03-01T12:00", False),
        ("2027-03-01T18:29", True),
        ("2027-03-06T10:30", True),
        ("2027-03-06T14:30", False),
        ("2027-03-07T10:30", False),
    ],
)
async def test_a_window_is_open_from_its_beginning_until_before_its_end(
    workspace: Autopost, wall: str, open_: bool
) -> None:
    assert await is_open(workspace, OFFICE, "Europe/Moscow", at(f"{wall}+03:00")) is open_


async def test_a_day_with_a_name_comes_before_its_kind_and_that_before_daily(workspace: Autopost) -> None:
    window = {"daily": [["01:00", "02:00"]], "weekdays": [["03:00", "04:00"]], "wed": [["05:00", "06:00"]], "thu": []}
    expected = {1: 3, 2: 3, 3: 5, 4: None, 5: 3, 6: 1, 7: 1}  # the first is a Monday
    for day, hour in expected.items():
        found = {h for h in range(8) if await is_open(workspace, window, None, datetime(2027, 3, day, h, tzinfo=UTC))}
        assert found == ({hour} if hour else set())


async def test_a_window_may_reach_past_midnight(workspace: Autopost) -> None:
    window = {"fri": [["22:00", "02:00"]]}
    assert await next_open(workspace, window, None, at("2027-03-01T00:00Z")) == at("2027-03-05T22:00Z")
    assert await is_open(workspace, window, None, at("2027-03-06T01:59Z"))
    assert not await is_open(workspace, window, None, at("2027-03-05T01:59Z")), "it belongs to Friday night"
    assert await closes(workspace, window, None, at("2027-03-05T23:00Z")) == "2027-03-06T02:00:00Z"


async def test_what_meets_at_midnight_is_one_window(workspace: Autopost) -> None:
    for end in ("24:00", "00:00"):
        window = {"mon": [["20:00", end]], "tue": [["00:00", "03:00"], ["02:00", "04:00"]]}
        assert await closes(workspace, window, None, at("2027-03-01T21:00Z")) == "2027-03-02T04:00:00Z"


async def test_a_date_by_its_name_has_its_own_windows_and_no_other(workspace: Autopost) -> None:
    window = NIGHT | {"except": {"2027-01-01": [], "2027-05-09": [["12:00", "15:00"]]}}
    assert await closes(workspace, window, None, at("2026-12-31T23:00Z")) == "2027-01-01T00:00:00Z"
    assert await next_open(workspace, window, None, at("2027-01-01T00:00Z")) == at("2027-01-02T22:00Z")
    assert await next_open(workspace, window, None, at("2027-05-09T01:00Z")) == at("2027-05-09T12:00Z")
    assert await next_open(workspace, window, None, at("2027-05-09T15:00Z")) == at("2027-05-10T22:00Z")


async def test_the_next_opening_is_found_up_to_400_days_ahead(workspace: Autopost) -> None:
    window = {"except": {"2028-03-20": [["12:00", "13:00"]]}}
    assert await next_open(workspace, window, None, at("2027-03-01T00:00Z")) == at("2028-03-20T12:00Z")
    assert await next_open(workspace, window, None, at("2027-01-01T00:00Z")) is None
    assert await next_open(workspace, window, None, at("2028-03-20T13:00Z")) is None


async def test_no_day_that_is_named_is_passed_over(workspace: Autopost) -> None:
    """After two weeks the search goes from one named day to the next."""
    moment, day = at("2027-03-01T12:00Z"), timedelta(days=1)
    for zone, hours in (("Pacific/Auckland", -13), ("UTC", 0), ("Pacific/Honolulu", 10)):
        for n in (2, 7, *range(12, 20)):
            midnight = at("2027-03-01T00:00Z") + timedelta(days=n, hours=hours)
            dates = [str(date(2027, 3, 1) + d * day) for d in (n, n + 1)]
            nights = {"except": {key: [["23:59", "00:01"]] for key in dates}}
            assert await next_open(workspace, nights, zone, moment) == midnight + day - MINUTE
            assert await next_open(workspace, nights, zone, midnight + day) == midnight + 2 * day - MINUTE
            holiday = ALWAYS | {"except": {dates[0]: []}}
            assert at(str(await closes(workspace, holiday, zone, moment))) == midnight
            assert await next_open(workspace, holiday, zone, midnight) == midnight + day


async def test_a_window_that_never_closes_says_so(workspace: Autopost) -> None:
    for zone in ("UTC", "Europe/Berlin", "Pacific/Apia"):
        assert await closes(workspace, ALWAYS, zone, at("2027-03-01T00:00Z")) == "infinity"
    but_once = ALWAYS | {"except": {"2027-09-01": []}}
    assert await closes(workspace, but_once, "Europe/Berlin", at("2027-03-01T00:00Z")) == "2027-08-31T22:00:00Z"


async def test_a_closed_window_does_not_close(workspace: Autopost) -> None:
    assert await closes(workspace, OFFICE, None, at("2027-03-01T13:00Z")) is None


async def test_without_a_zone_it_is_utc(workspace: Autopost) -> None:
    moment = at("2027-03-01T09:00Z")
    assert await is_open(workspace, OFFICE, None, moment) and await is_open(workspace, OFFICE, "UTC", moment)
    assert not await is_open(workspace, OFFICE, "America/New_York", moment)


# The clock jumps


@pytest.mark.parametrize(
    ("zone", "hours", "asked", "opens"),
    [
        ("Europe/Berlin", ["02:30", "05:00"], "2027-03-28T00:00Z", "2027-03-28T01:00Z"),
        ("Europe/Berlin", ["02:10", "02:50"], "2027-03-28T00:00Z", "2027-03-29T00:10Z"),
        ("Europe/Berlin", ["02:30", "02:40"], "2027-10-31T00:00Z", "2027-10-31T00:30Z"),
        ("Europe/Berlin", ["02:30", "02:40"], "2027-10-31T00:45Z", "2027-10-31T01:30Z"),
        ("Europe/Berlin", ["02:30", "02:40"], "2027-10-31T01:40Z", "2027-11-01T01:30Z"),
        ("Europe/Berlin", ["01:30", "02:30"], "2027-10-31T00:45Z", "2027-10-31T01:00Z"),
        ("Australia/Lord_Howe", ["02:10", "02:40"], "2027-10-02T15:00Z", "2027-10-02T15:30Z"),
        ("Asia/Kathmandu", ["00:05", "00:20"], "1985-12-31T18:00Z", "1985-12-31T18:30Z"),
    ],
)
async def test_a_window_opens_where_the_clock_jumps(
    workspace: Autopost, zone: str, hours: list[str], asked: str, opens: str
) -> None:
    assert await next_open(workspace, {"daily": [hours]}, zone, at(asked)) == at(opens)


async def test_a_window_of_the_hour_that_comes_twice_closes_twice(workspace: Autopost) -> None:
    window = {"daily": [["01:00", "02:30"]]}
    for asked, closed in (("2027-10-31T00:00Z", "2027-10-31T00:30:00Z"), ("2027-10-31T01:00Z", "2027-10-31T01:30:00Z")):
        assert await closes(workspace, window, "Europe/Berlin", at(asked)) == closed


async def test_a_friday_that_never_was_had_no_windows(workspace: Autopost) -> None:
    window = {"fri": [["10:00", "12:00"]]}
    assert await next_open(workspace, window, "Pacific/Apia", at("2011-12-30T00:00Z")) == at("2012-01-05T20:00Z")


async def test_the_zone_of_the_session_changes_nothing(workspace: Autopost) -> None:
    window = {"sun": [["12:00", "13:00"]], "mon": [["00:00", "00:30"]]}
    answers = []
    for session in ("UTC", "America/New_York", "Pacific/Apia"):
        await workspace.value("select set_config('timezone', %s, false)", session)
        asked = [at("2027-03-13T20:00Z") + timedelta(hours=h) for h in range(60)]
        answers.append(
            [
                (await next_open(workspace, window, "Europe/Moscow", t), await closes(workspace, window, None, t))
                for t in asked
            ]
        )
    assert answers[0] == answers[1] == answers[2]


# Against a model that looks at the wall every minute


@cache
def zone_of(name: str) -> ZoneInfo:
    """By the server's own files: other releases of the zones know other jumps."""
    with (find_binaries(NEWEST).root / "share/postgresql/timezone" / name).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def modelled_open(window: Window, zone: ZoneInfo, moment: datetime) -> bool:
    wall = moment.astimezone(zone).replace(tzinfo=None)
    today, yesterday = wall.date(), wall.date() - timedelta(days=1)
    for opens, ends in windows_of(window, today):
        if opens <= wall.time() and (wall.time() < ends or ends <= opens):
            return True
    if today.isoformat() in window.get("except", {}):
        return False
    return any(ends <= opens and wall.time() < ends for opens, ends in windows_of(window, yesterday))


def windows_of(window: Window, day: date) -> list[tuple[time, time]]:
    kind = "weekdays" if day.weekday() < 5 else "weekend"
    by_date = window.get("except", {})
    named = [window[name] for name in (DAYS[day.weekday()], kind, "daily") if name in window]
    found = by_date.get(day.isoformat(), named[0] if named else [])
    return [(time.fromisoformat(a), time.fromisoformat(b.replace("24:00", "00:00"))) for a, b in found]


def modelled_change(window: Window, zone: ZoneInfo, moment: datetime, open_: bool) -> datetime | None:
    """Within nine days. Every jump of the zones above falls on a whole minute."""
    whole = moment.replace(second=0, microsecond=0)
    moments = [moment, *(whole + n * MINUTE for n in range(1, 9 * 24 * 60))]
    return next((m for m in moments if modelled_open(window, zone, m) is open_), None)


def clock(last_hour: int = 23) -> st.SearchStrategy[str]:
    minutes = st.sampled_from([0, 1, 15, 29, 30, 45, 59])
    return st.builds("{:02}:{:02}".format, st.integers(0, last_hour), minutes)


def hours_of_a_day() -> st.SearchStrategy[list[list[str]]]:
    """Mostly of the night, where clocks jump."""
    one = st.tuples(clock(4) | clock(), clock(4) | clock() | st.just("24:00")).filter(lambda w: w[0] != w[1])
    return st.lists(one.map(list), max_size=3)


@st.composite
def asked(draw: st.DrawFn) -> tuple[Window, str, datetime]:
    zone, jump = draw(st.sampled_from(JUMPS))
    seconds = draw(st.integers(-3 * 86_400, 2 * 86_400) | st.integers(-14_400, 14_400))
    moment = at(jump) + timedelta(seconds=seconds, microseconds=draw(st.sampled_from([0, 1, 999_999])))
    names = st.sampled_from([*DAYS, "weekdays", "weekend", "daily"])
    window: Window = draw(st.dictionaries(names, hours_of_a_day(), max_size=4))
    dates = st.integers(-2, 4).map(lambda n: (at(jump) + timedelta(days=n)).date().isoformat())
    exceptions = draw(st.dictionaries(dates, hours_of_a_day(), max_size=2))
    return (window | {"except": exceptions} if exceptions else window), zone, moment


thorough = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def test_the_jumps_are_jumps() -> None:
    for zone, jump in JUMPS:
        before, after = ((at(jump) - s * MINUTE).astimezone(zone_of(zone)).utcoffset() for s in (1, 0))
        assert before != after, zone


@thorough
@given(asked())
async def test_it_opens_and_closes_when_the_wall_says_so(
    workspace: Autopost, question: tuple[Window, str, datetime]
) -> None:
    window, zone, moment = question
    open_now = modelled_open(window, zone_of(zone), moment)
    assert await is_open(workspace, window, zone, moment) is open_now

    found = await next_open(workspace, window, zone, moment)
    expected = modelled_change(window, zone_of(zone), moment, True)
    assert found == expected or (expected is None and (found is None or found - moment >= timedelta(days=9)))

    closed = await closes(workspace, window, zone, moment)
    if not open_now:
        assert closed is None
    elif expected := modelled_change(window, zone_of(zone), moment, False):
        assert closed is not None and at(str(closed)) == expected
    else:
        assert closed == "infinity" or at(str(closed)) - moment >= timedelta(days=9)


@thorough
@given(asked(), st.integers(0, 200_000))
async def test_the_next_opening_is_open_and_later_asked_never_earlier(
    workspace: Autopost, question: tuple[Window, str, datetime], later: int
) -> None:
    window, zone, moment = question
    first = await next_open(workspace, window, zone, moment)
    if first is not None:
        assert first >= moment
        assert await is_open(workspace, window, zone, first)
        assert await next_open(workspace, window, zone, first) == first
        second = await next_open(workspace, window, zone, moment + timedelta(seconds=later))
        assert second is None or second >= first


# What is refused, and what a refused one does when it is there all the same


@pytest.mark.parametrize(
    "window",
    [
        OFFICE,
        NIGHT,
        ALWAYS,
        {"sat": [["00:00", "24:00"], ["10:00", "11:00"]]},
        {"except": {"2028-02-29": [["23:59", "00:00"]]}},
    ],
)
async def test_a_window_that_can_be_kept(workspace: Autopost, window: Window) -> None:
    assert await problem_of(workspace, window, "Europe/Moscow") is None


@pytest.mark.parametrize(
    ("window", "problem"),
    [
        (None, "posting_window: a windowed channel needs one"),
        ([["09:00", "18:00"]], 'posting_window: must name days and their windows, as {"mon": [["09:00", "18:00"]]}'),
        ({}, "posting_window: never opens"),
        ({"daily": []}, "posting_window: never opens"),
        ({"daily": [["09:00", "18:00"]], "weekdays": [], "weekend": []}, "posting_window: never opens"),
        ({"except": {"2027-01-01": []}}, "posting_window: never opens"),
        (
            {"monday": [], "mon": []},
            'posting_window: unknown day "monday"; known are mon, tue, wed, thu, fri, sat, sun, weekdays, weekend, daily, except',
        ),
        ({"mon": None}, 'posting_window.mon: must be a list of windows, as [["09:00", "18:00"]]'),
        ({"mon": "09:00-18:00"}, 'posting_window.mon: must be a list of windows, as [["09:00", "18:00"]]'),
        (
            {"mon": ["09:00", "18:00"]},
            'posting_window.mon: each window is a list of its own, from and to, as [["09:00", "18:00"]]',
        ),
        (
            {"mon": [["09:00", "12:00"], ["13:00"]]},
            'posting_window.mon: each window is a list of its own, from and to, as [["09:00", "18:00"]]',
        ),
        ({"mon": [["9:00", "18:00"]]}, 'posting_window.mon: "9:00" is not a time to open; write it as "09:00"'),
        ({"mon": [["24:00", "01:00"]]}, 'posting_window.mon: "24:00" is not a time to open; write it as "09:00"'),
        ({"mon": [["09:00", "18:60"]]}, 'posting_window.mon: "18:60" is not a time to close; write it as "18:00"'),
        ({"mon": [["09:00", None]]}, "posting_window.mon: null is not a time to close; write it as \"18:00\""),
        ({"mon": [["09:00\n", "18:00"]]}, 'posting_window.mon: "09:00\\n" is not a time to open; write it as "09:00"'),
        (
            {"mon": [["09:00", 750]]},  # what YAML makes of 12:30
            'posting_window.mon: 750 is a number, not a time; put times in quotes, as "12:30"',
        ),
        (
            {"mon": [["09:00", "09:00"]]},
            'posting_window.mon: opens and closes at 09:00; the whole day is ["00:00", "24:00"]',
        ),
        ({"mon": [["09:00", "18:00"]] * 49}, "posting_window.mon: at most 48 windows a day"),
        ({"except": []}, 'posting_window.except: must name dates and their windows, as {"2027-01-01": []}'),
        ({"except": {"2027-02-29": []}}, 'posting_window.except: "2027-02-29" is not a date; write it as 2027-01-31'),
        ({"except": {"1.1.2027": []}}, 'posting_window.except: "1.1.2027" is not a date; write it as 2027-01-31'),
        (
            {"except": {"2027-01-01": [["x", "y"]]}},
            'posting_window.except.2027-01-01: "x" is not a time to open; write it as "09:00"',
        ),
        (
            {"except": {(date(2027, 1, 1) + timedelta(days=n)).isoformat(): [] for n in range(1001)}},
            "posting_window.except: at most 1000 dates",
        ),
    ],
    ids=lambda x: str(x)[:40],
)  # fmt: skip
async def test_a_window_that_cannot_be_kept_is_told_in_words(workspace: Autopost, window: Any, problem: str) -> None:
    assert await problem_of(workspace, window) == problem


@pytest.mark.parametrize(
    ("zone", "problem"),
    [
        (None, None),
        ("UTC", None),
        ("Europe/Moscow", None),
        ("America/Argentina/Buenos_Aires", None),
        ("Etc/GMT-3", None),
        ("europe/moscow", "did you mean Europe/Moscow?"),
        ("New York", "did you mean America/New_York?"),
        ("MSK", "write it as Europe/Moscow"),
        ("CET", "write it as Europe/Moscow"),
        ("UTC+3", "write it as Europe/Moscow"),
        ("Nowhere/City3", "write it as Europe/Moscow"),
        ("+03:00", "write it as Europe/Moscow"),
        ("", "write it as Europe/Moscow"),
    ],
)
async def test_a_zone_is_a_full_name_of_the_iana_database(
    workspace: Autopost, zone: str | None, problem: str | None
) -> None:
    found = await problem_of(workspace, OFFICE, zone)
    assert found == (problem and f'timezone: "{zone}" is not a zone of the IANA database; {problem}')


@pytest.mark.parametrize(
    ("window", "zone"),
    [
        (ALWAYS, "Nowhere/City"),
        ({"daily": None}, None),
        ({"daily": [["00:00", "99:00"]]}, None),
        ({"daily": ["00:00", "24:00"]}, None),
        ({"daily": [[]]}, None),
        ({"except": 1, "daily": 2}, None),
        ([], None),
        (1, None),
        ({}, None),
    ],
    ids=str,
)
async def test_an_unreadable_window_is_closed_and_breaks_nothing(
    workspace: Autopost, window: Any, zone: str | None
) -> None:
    moment = at("2027-03-01T12:00Z")
    assert await is_open(workspace, window, zone, moment) is False
    assert await next_open(workspace, window, zone, moment) is None
    assert await closes(workspace, window, zone, moment) is None


async def test_no_window_and_no_end_of_time_is_ever_open(workspace: Autopost) -> None:
    assert not await workspace.value("select autopost.window_open(null, null, now())")
    for moment in ("infinity", "-infinity"):
        found = await workspace.sql(
            "select autopost.window_open(%s, null, %s::timestamptz) as open, autopost.next_open(%s, null, %s::timestamptz) as next",
            Jsonb(ALWAYS), moment, Jsonb(ALWAYS), moment,
        )  # fmt: skip
        assert found == [{"open": False, "next": None}]
