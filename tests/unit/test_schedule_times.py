"""When does a schedule fire, above all in the nights in which clocks change?"""

from __future__ import annotations

import sys
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.cron_oracle import fire_times, utc
from windlass.clock import from_micros, to_micros
from windlass.errors import InvalidValue
from windlass.schedule import GRACE, Timing, check_name, plan, read_timing, run_at, zone_of

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"
HOUR = timedelta(hours=1)


def fires(cron: str, tz: str, start: datetime, end: datetime) -> list[datetime]:
    """The fire times after `start`, up to `end`, each asked for from the one before."""
    return list(_walk(read_timing({"cron": cron, "tz": tz}), start, end))


def _walk(timing: Timing, start: datetime, end: datetime) -> Iterator[datetime]:
    after = timing.next_after(to_micros(start))
    while after is not None and after <= to_micros(end):
        yield from_micros(after)
        after = timing.next_after(after)


def shown(moments: list[datetime], tz: str) -> list[str]:
    return [f"{moment.astimezone(ZoneInfo(tz)):%d %H:%M}" for moment in moments]


# --- the two nights -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tz", "cron", "skip"),
    [
        (BERLIN, "30 2 * * *", "2026-03-29T01:00"),
        (NEW_YORK, "30 2 * * *", "2026-03-08T07:00"),
        # Half an hour is skipped there.
        (LORD_HOWE, "15 2 * * *", "2026-10-03T15:30"),
    ],
)
def test_a_local_time_that_is_skipped_fires_at_the_moment_of_the_skip(tz: str, cron: str, skip: str) -> None:
    night = utc(skip)
    assert fires(cron, tz, night - 12 * HOUR, night + 12 * HOUR) == [night]


@pytest.mark.parametrize(
    ("tz", "cron", "first"),
    [
        (BERLIN, "30 2 * * *", "2026-10-25T00:30"),
        (NEW_YORK, "30 1 * * *", "2026-11-01T05:30"),
        (LORD_HOWE, "45 1 * * *", "2026-04-04T14:45"),
    ],
)
def test_a_local_time_that_comes_twice_fires_the_first_time(tz: str, cron: str, first: str) -> None:
    night = utc(first)
    assert fires(cron, tz, night - 12 * HOUR, night + 12 * HOUR) == [night]
    # Also for who asks for the first time between the two.
    assert fires(cron, tz, night + timedelta(minutes=20), night + 12 * HOUR) == []


def test_what_runs_every_half_hour_runs_every_half_hour() -> None:
    begin, end = utc("2026-10-24T22:30"), utc("2026-10-25T03:00")
    found = fires("*/30 * * * *", BERLIN, begin, end)
    assert shown(found, BERLIN) == [
        *("25 01:00", "25 01:30", "25 02:00", "25 02:30", "25 02:00", "25 02:30"),
        *("25 03:00", "25 03:30", "25 04:00"),
    ]
    assert {after - before for before, after in pairwise(found)} == {timedelta(minutes=30)}
    found = fires("*/30 * * * *", BERLIN, utc("2026-03-29T00:00"), utc("2026-03-29T02:00"))
    assert shown(found, BERLIN) == ["29 01:30", "29 03:00", "29 03:30", "29 04:00"]


def test_no_minute_is_lost_where_clocks_change_by_half_an_hour() -> None:
    found = fires("* 2 * * *", LORD_HOWE, utc("2026-04-04T12:00"), utc("2026-04-05T10:00"))
    assert shown(found, LORD_HOWE) == [f"05 02:{minute:02}" for minute in range(60)]


def test_several_local_times_that_are_skipped_fire_once() -> None:
    found = fires("0,20,40 2,4 * * *", BERLIN, utc("2026-03-28T22:00"), utc("2026-03-29T10:00"))
    assert shown(found, BERLIN) == ["29 03:00", "29 04:00", "29 04:20", "29 04:40"]


# --- against the slow way -----------------------------------------------------------------------

ZONES = [
    *(BERLIN, NEW_YORK, LORD_HOWE, "UTC", "Africa/Cairo", "America/Santiago", "Asia/Kathmandu"),
    *("Africa/Casablanca", "Pacific/Chatham", "America/Havana"),
]
minutes = st.sampled_from(["0", "30", "15,45", "*/20", "*", "59", "10-50/10", "7"])
hours = st.sampled_from(["0", "1", "2", "3", "1-3", "*", "*/2", "23", "0,2"])
days = st.sampled_from(["* * *"] * 4 + ["* * 0", "1-7 * *", "* 3,4,10,11 *", "* * 1-5"])
expressions = st.builds(lambda minute, hour, rest: f"{minute} {hour} {rest}", minutes, hours, days)


def changes(tz: str) -> list[datetime]:
    """The days of 2026 after which the clocks of a zone stand otherwise."""
    year = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day) for day in range(365)]
    zone = ZoneInfo(tz)
    return [
        day
        for day in year
        if day.astimezone(zone).utcoffset() != (day + timedelta(days=1)).astimezone(zone).utcoffset()
    ] or year[:1]


@st.composite
def nights(draw: st.DrawFn) -> tuple[str, datetime]:
    tz = draw(st.sampled_from(ZONES))
    near = draw(st.sampled_from(changes(tz)))
    return tz, near + draw(st.integers(-36, 36)) * HOUR + timedelta(seconds=draw(st.integers(0, 3599)))


@settings(max_examples=75)
@given(cron=expressions, night=nights())
@example(cron="* 2 * * *", night=(LORD_HOWE, utc("2026-04-04T10:00")))
@example(cron="0 0 * * *", night=("Africa/Cairo", utc("2026-04-23T12:00")))
def test_fire_times_are_what_the_rules_say(cron: str, night: tuple[str, datetime]) -> None:
    tz, start = night
    end = start + timedelta(days=2)
    assert fires(cron, tz, start, end) == fire_times(cron, tz, start, end)


@settings(max_examples=75)
@given(cron=expressions, night=nights(), later=st.integers(0, 40 * 3600))
def test_whoever_asks_later_finds_the_same_fire_times(
    cron: str, night: tuple[str, datetime], later: int
) -> None:
    tz, start = night
    middle, end = start + timedelta(seconds=later), start + timedelta(days=2)
    whole = fires(cron, tz, start, end)
    assert fires(cron, tz, middle, end) == [each for each in whole if each > middle]
    assert whole == sorted(set(whole))


@given(
    every=st.timedeltas(timedelta(seconds=1), timedelta(days=366)),
    now=st.datetimes(datetime(2020, 1, 1), datetime(2100, 1, 1)),  # noqa: DTZ001
)
def test_every_so_often_is_the_same_for_everybody(every: timedelta, now: datetime) -> None:
    timing = Timing(every=every)
    moment = to_micros(now)
    after = timing.next_after(moment)
    assert after is not None
    assert moment < after <= moment + every // timedelta(microseconds=1)
    assert timing.next_after(after) == after + every // timedelta(microseconds=1)
    assert timing.next_after(after - 1) == after


def test_rare_dates_are_found() -> None:
    assert fires("0 0 29 2 *", "UTC", utc("2026-01-01"), utc("2032-01-01")) == [utc("2028-02-29")]
    assert shown(fires("0 12 L * *", BERLIN, utc("2026-01-15"), utc("2026-03-15")), BERLIN) == [
        "31 12:00",
        "28 12:00",
    ]
    assert fires("@yearly", "UTC", utc("9999-06-01"), datetime.max.replace(tzinfo=UTC)) == []


# --- catching up --------------------------------------------------------------------------------


def planned(timing: Timing, next_at: str, now: datetime, most: int = 100) -> tuple[list[str], bool, str]:
    found = plan(timing, to_micros(utc(next_at)), to_micros(now), most=most)
    assert found.next_at is not None
    fired = [f"{from_micros(each):%H:%M}" for each in found.fire]
    return fired, found.missed is not None, f"{from_micros(found.next_at):%d %H:%M}"


def test_catching_up_with_the_last_fire_time() -> None:
    timing = read_timing({"cron": "0 * * * *"})
    assert planned(timing, "2026-01-01T01:00", utc("2026-01-01T01:00")) == (["01:00"], False, "01 02:00")
    assert planned(timing, "2026-01-01T01:00", utc("2026-01-01T04:30")) == (["04:00"], True, "01 05:00")
    assert planned(timing, "2026-01-01T01:00", utc("2026-04-01T04:30")) == (["04:00"], True, "01 05:00")


def test_catching_up_with_none() -> None:
    timing = read_timing({"cron": "0 * * * *", "catch_up": "none"})
    on_time = utc("2026-01-01T04:00") + GRACE
    assert planned(timing, "2026-01-01T04:00", on_time) == (["04:00"], False, "01 05:00")
    assert planned(timing, "2026-01-01T01:00", on_time) == (["04:00"], True, "01 05:00")
    late = on_time + timedelta(microseconds=1)
    assert planned(timing, "2026-01-01T04:00", late) == ([], True, "01 05:00")


def test_catching_up_with_all_in_parts() -> None:
    timing = read_timing({"cron": "0 * * * *", "catch_up": "all", "overlap": "queue"})
    now = utc("2026-01-01T05:30")
    assert planned(timing, "2026-01-01T01:00", now, most=3) == (
        ["01:00", "02:00", "03:00"],
        False,
        "01 04:00",
    )
    assert planned(timing, "2026-01-01T04:00", now, most=3) == (["04:00", "05:00"], False, "01 06:00")


@settings(max_examples=100)
@given(cron=expressions, night=nights(), away=st.integers(0, 20 * 86_400))
def test_the_last_fire_time_is_the_last_one(cron: str, night: tuple[str, datetime], away: int) -> None:
    tz, start = night
    timing = read_timing({"cron": cron, "tz": tz})
    first = timing.next_after(to_micros(start))
    assert first is not None
    now = first + away * 1_000_000
    found = plan(timing, first, now, most=10)
    [last] = found.fire
    assert first <= last <= now
    assert found.next_at == timing.next_after(last)
    assert found.next_at is not None
    assert found.next_at > now
    assert (found.missed is None) == (last == first)


# --- jitter -------------------------------------------------------------------------------------


@given(fire_at=st.integers(0, 2**52), jitter=st.timedeltas(timedelta(0), timedelta(days=1)))
def test_jitter_is_bounded_and_the_same_for_whoever_works_it_out(fire_at: int, jitter: timedelta) -> None:
    found = run_at("nightly", fire_at, jitter)
    assert fire_at <= found <= fire_at + jitter // timedelta(microseconds=1)
    assert found == run_at("nightly", fire_at, jitter)


def test_jitter_spreads_schedules_and_fire_times() -> None:
    names = {run_at(f"s{number}", 0, HOUR) for number in range(50)}
    times = {run_at("s", number, HOUR) - number for number in range(50)}
    assert len(names) == len(times) == 50


# --- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "give cron or every, one of the two: neither was given"),
        ({"cron": "0 3 * * *", "every": "1h"}, "give cron or every, one of the two: both were given"),
        ({"cron": "0 3 * *"}, "cron must be five fields .* got '0 3 [*] [*]'"),
        ({"cron": "0 0 3 * * *"}, "cron must be five fields"),
        ({"cron": "61 3 * * *"}, "bad minute.* got '61 3"),
        ({"cron": "0 3 * * BAD"}, "bad day-of-week"),
        ({"cron": "@often"}, "one of @hourly, @daily"),
        ({"cron": 5}, "cron must be five fields .* got 5"),
        ({"cron": "0 0 30 2 *"}, "cron must be"),
        (
            {"cron": "0 3 * * *", "tz": "Europe/Atlantis"},
            "tz must be the name of a time zone.*'Europe/Atlantis'",
        ),
        ({"cron": "0 3 * * *", "tz": "../../etc/passwd"}, "tz must be the name of a time zone"),
        ({"cron": "0 3 * * *", "tz": "Europe"}, "tz must be the name of a time zone"),
        ({"cron": "0 3 * * *", "tz": ["UTC"]}, "tz must be the name of a time zone"),
        ({"cron": "0 3 * * *", "tz": "a\0b"}, "tz must be the name of a time zone"),
        ({"cron": "0 3 * * *", "tz": ""}, "tz must be the name of a time zone"),
        ({"every": "1h", "tz": "Europe/Berlin"}, "tz must be given together with cron"),
        ({"every": "500ms"}, "every must be a duration between 1s and 366d.*'500ms'"),
        ({"every": 0}, "every must be"),
        ({"every": "often"}, "every must be a duration"),
        ({"every": "400d"}, "every must be"),
        ({"every": "1h", "catch_up": "some"}, "catch_up must be one of none, last, all, got 'some'"),
        ({"every": "1h", "overlap": "kill"}, "overlap must be one of skip, queue, got 'kill'"),
        ({"every": "1h", "jitter": "2d"}, "jitter must be a duration of at most 1d"),
        ({"every": "1h", "catch_up": "all"}, 'catch_up must be given together with overlap="queue"'),
        ({"every": "1h", "often": 1}, "schedule option must be one of cron, every, tz"),
    ],
)
def test_what_is_wrong_is_told_with_field_value_and_what_is_allowed(
    options: dict[str, object], told: str
) -> None:
    with pytest.raises(InvalidValue, match=told):
        read_timing(options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "Nightly", "a b", "x" * 129, 5, "ä"])
def test_names_are_like_those_of_types(name: object) -> None:
    with pytest.raises(InvalidValue, match="schedule name must be a letter a-z"):
        check_name(name)
    assert check_name("report.weekly-7_a") == "report.weekly-7_a"


def test_a_machine_without_zones_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    zone_of.cache_clear()
    # As on a machine with neither a database of its own nor the package.
    before = zoneinfo.TZPATH
    zoneinfo.reset_tzpath(to=())
    ZoneInfo.clear_cache()
    monkeypatch.setitem(sys.modules, "tzdata", None)
    try:
        with pytest.raises(
            InvalidValue, match="UTC on this machine, which has no time zone database: install"
        ):
            read_timing({"cron": "0 3 * * *", "tz": BERLIN})
        assert read_timing({"cron": "0 3 * * *"}).tz == "UTC"
    finally:
        zoneinfo.reset_tzpath(to=before)
        zone_of.cache_clear()
