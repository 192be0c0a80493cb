"""Schedules: when they fire, by cron expression or interval, and which missed times are made up for.

Pure values: no store and no clock. cronsim reads cron expressions and walks plain local times; what the
clocks do meanwhile is added here (decision 010 says why). As cron has always done it, there are two kinds:

    names minute and hour     follows the wall clock: each local time once, at its first occurrence; a local
                              time that is skipped fires at the moment of the skip
    has * for either          follows real time: fires whenever the clocks show a match, so twice in an hour
                              that comes twice, and not in one that never comes
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache, partial
from typing import Annotated, Literal, TypedDict
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import msgspec
from cronsim import CronSim, CronSimError
from msgspec import Meta

from windlass import checks
from windlass.clock import END_OF_TIME, from_micros, span, to_micros
from windlass.duration import Duration, parse_duration
from windlass.errors import InvalidValue, must_be

CatchUp = Literal["none", "last", "all"]
Overlap = Literal["skip", "queue"]
CATCH_UPS: tuple[CatchUp, ...] = ("none", "last", "all")
OVERLAPS: tuple[Overlap, ...] = ("skip", "queue")

SHORTEST = timedelta(seconds=1)
LONGEST = timedelta(days=366)
LONGEST_JITTER = timedelta(days=1)
_NONE = timedelta(0)
MAX_NAME = 128


_CRON = Meta(
    description="Minute, hour, day, month, day of week; or @daily and the like.", examples=["0 3 * * *"]
)
_CATCH_UP = Meta(description="Fire times that passed while nobody was there: fire none, the last, or all.")


class TimingOptions(TypedDict, total=False):
    """What may be said about a schedule's times."""

    cron: Annotated[str, _CRON] | None
    every: Duration | None
    tz: Annotated[str, Meta(description="The zone of `cron`.", examples=["Europe/Berlin"])] | None
    catch_up: Annotated[CatchUp, _CATCH_UP] | None
    overlap: Annotated[Overlap, Meta(description="If the run before has not ended.")] | None
    jitter: Duration | None


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """When to fire: by a cron expression in a zone, or every so often.

    `catch_up`   of fire times that passed while nobody was there: none, the last one, or all are fired
    `overlap`    if an earlier run has not ended: skip this one, or queue it behind
    `jitter`     jobs run up to so much later than their fire time, each by an amount of its own
    """

    cron: str | None = None
    every: timedelta | None = None
    tz: str = "UTC"
    catch_up: CatchUp = "last"
    overlap: Overlap = "skip"
    jitter: timedelta = _NONE

    def next_after(self, moment: int) -> int | None:
        """The first fire time after a moment, both in microseconds; None if there is none."""
        if self.every is not None:
            step = span(self.every)
            found = (moment // step + 1) * step
            return found if found <= END_OF_TIME else None
        after = next_after(self.cron or "", self.tz, from_micros(moment))
        return None if after is None else to_micros(after)


class NewSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it is handed to a store: its times, and the job that it makes each time."""

    name: str
    timing: Timing
    type: str
    payload: bytes = b"{}"
    schema_version: int = 1
    # None: what holds for the type when it fires.
    priority: int | None = None
    max_attempts: int | None = None
    tenant: str = ""


def read_timing(options: TimingOptions) -> Timing:
    """Times and policies, all of them checked; InvalidValue names the field."""
    unknown = set(options) - set(TimingOptions.__annotations__)
    if unknown:
        raise must_be("schedule option", min(unknown), "one of " + ", ".join(TimingOptions.__annotations__))
    cron, every, tz = options.get("cron"), options.get("every"), options.get("tz")
    problems = checks.Problems()
    with problems:
        if (cron is None) == (every is None):
            given = "both" if cron is not None else "neither"
            words = f"give cron or every, one of the two: {given} {'were' if cron else 'was'} given"
            raise InvalidValue(words, field="cron, every", value=given, allowed="one of the two")
        if tz is not None and cron is None:
            raise must_be("tz", tz, "given together with cron: every 15m is the same in all zones")
    spans = "between 1s and 366d, such as 15m", "of at most 1d, such as 30s"
    tried = problems.tried
    timing = Timing(
        cron=None if cron is None else tried(read_cron, cron),
        every=tried(_between, "every", every, SHORTEST, LONGEST, spans[0]),
        tz=("UTC" if tz is None else tried(_zone, tz)) or "",
        catch_up=tried(checks.one_of, "catch_up", options.get("catch_up") or "last", CATCH_UPS) or "last",
        overlap=tried(checks.one_of, "overlap", options.get("overlap") or "skip", OVERLAPS) or "queue",
        jitter=tried(_between, "jitter", options.get("jitter"), _NONE, LONGEST_JITTER, spans[1]) or _NONE,
    )
    with problems:
        if timing.catch_up == "all" and timing.overlap == "skip":
            allowed = 'given together with overlap="queue": runs that catch up would skip each other'
            raise must_be("catch_up", "all", allowed)
    problems.check()
    return timing


check_name = partial(checks.check_name, field="schedule name", longest=MAX_NAME)


def _between(
    field: str, value: Duration | None, least: timedelta, most: timedelta, allowed: str
) -> timedelta | None:
    duration = None if value is None else parse_duration(value, field)
    if duration is not None and not least <= duration <= most:
        raise must_be(field, value, f"a duration {allowed}")
    return duration


def _zone(name: object) -> str:
    if not isinstance(name, str):
        raise must_be("tz", name, "the name of a time zone, such as Europe/Berlin or UTC")
    zone_of(name)
    return name


# --- zones ---------------------------------------------------------------------------------------

# No zone changes its clocks and changes them back within a day.
_STRIDE = timedelta(days=1)
_SECOND = timedelta(seconds=1)


@lru_cache(maxsize=256)
def zone_of(name: str) -> tzinfo:
    """A zone by its name; InvalidValue if this machine does not know it."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        # Directories and odd names fail in ways of their own.
        allowed = "the name of a time zone, such as Europe/Berlin or UTC"
        if not available_timezones():
            allowed = (
                "UTC on this machine, which has no time zone database: "
                "install its tzdata package, or `pip install tzdata`"
            )
        raise must_be("tz", name, allowed) from None


def local(moment: datetime, zone: tzinfo) -> datetime:
    """What the clocks of a zone show at a moment, as a plain time."""
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)


def offset(moment: datetime, zone: tzinfo) -> timedelta:
    """How far the clocks of a zone stand from UTC at a moment."""
    return moment.astimezone(zone).utcoffset() or timedelta(0)


def first_at(shown: datetime, zone: tzinfo) -> datetime:
    """The first moment at which the clocks of a zone show this; if they skip it, the moment of the skip."""
    before = shown.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if local(before, zone) == shown:
        return before
    # Skipped: read by the offset after the change it lies before it, by the one before the change after it.
    earlier = shown.replace(tzinfo=zone, fold=1).astimezone(UTC)
    return change_between(earlier, before, zone) or before


def change_between(start: datetime, end: datetime, zone: tzinfo) -> datetime | None:
    """The first moment after `start`, up to `end`, from which the clocks of a zone stand otherwise."""
    standing = offset(start, zone)
    low = start
    while low < end:
        high = min(low + _STRIDE, end)
        if offset(high, zone) != standing:
            return _narrowed(low, high, zone, standing)
        low = high
    return None


def _narrowed(low: datetime, high: datetime, zone: tzinfo, standing: timedelta) -> datetime:
    """Halve until the change is known to the second."""
    while high - low > _SECOND:
        middle = (low + (high - low) / 2).replace(microsecond=0)
        if middle <= low:
            break
        low, high = (middle, high) if offset(middle, zone) == standing else (low, middle)
    return high


# --- cron ----------------------------------------------------------------------------------------

_FIELDS = 5
_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_ALLOWED = (
    "five fields (minute, hour, day of month, month, day of week) such as 0 3 * * *, "
    f"or one of {', '.join(_ALIASES)}"
)


def read_cron(text: object) -> str:
    """An expression in its plain form of five fields; InvalidValue if it is none, or never fires."""
    if not isinstance(text, str):
        raise must_be("cron", text, _ALLOWED)
    fields = _ALIASES.get(text.strip().lower(), text).split()
    if len(fields) != _FIELDS:
        raise must_be("cron", text, _ALLOWED)
    expression = " ".join(fields)
    try:
        found = next(CronSim(expression, _ANY_TIME), None)
    except CronSimError as error:
        raise must_be("cron", text, f"{_ALLOWED} ({str(error).lower()})") from None
    if found is None:
        raise must_be("cron", text, "an expression that fires at all: there is no such date")
    return expression


def next_after(expression: str, zone_name: str, moment: datetime) -> datetime | None:
    """The first fire time after a moment, in UTC; None if there is none before the end of the calendar."""
    zone = zone_of(zone_name)
    fire_times = _in_real_time(expression, zone, moment)
    if not any(field.startswith("*") for field in expression.split()[:2]):
        # By the wall clock. In the second of two equal hours local times lie before the moment once more.
        fire_times = (first_at(shown, zone) for shown in CronSim(expression, local(moment, zone)))
    try:
        return next((each for each in fire_times if each > moment), None)
    except OverflowError:
        return None


def _in_real_time(expression: str, zone: tzinfo, moment: datetime) -> Iterator[datetime]:
    """As long as the clocks run on unchanged local time is real time; at a change it starts over."""
    while True:
        standing = offset(moment, zone)
        found = next(CronSim(expression, local(moment, zone)), None)
        if found is None:
            return
        fires = found.replace(tzinfo=UTC) - standing
        change = change_between(moment, fires, zone)
        if change is None:
            yield fires
            moment = fires
            continue
        # The moment of the change itself may be a match by the new time.
        shown = local(change, zone)
        if next(CronSim(expression, shown - _SECOND), None) == shown:
            yield change
        moment = change


_ANY_TIME = datetime(2024, 1, 1)  # noqa: DTZ001 - a local time, as cron expressions speak of it


# --- plan ----------------------------------------------------------------------------------------

# A fire time that is not older than this is not missed: somebody looked a little later, that is all.
GRACE = timedelta(minutes=1)
# How far back the last fire time is looked for, in steps: cheap for frequent ones, possible for rare ones.
_WINDOWS = (timedelta(hours=1), timedelta(days=1), timedelta(days=32), timedelta(days=3660))


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done at one moment; all times in microseconds."""

    fire: tuple[int, ...]
    # The first of those that are passed over, and the moment before which the last of them lies.
    missed: tuple[int, int] | None
    # What comes next; not after the moment of the plan if there was too much for one.
    next_at: int | None


def plan(timing: Timing, next_at: int, now: int, *, most: int) -> Plan:
    """What to do about the fire times from `next_at` up to `now`; at most so many at once."""
    if timing.catch_up == "all":
        fire: list[int] = []
        after: int | None = next_at
        while after is not None and after <= now and len(fire) < most:
            fire.append(after)
            after = timing.next_after(after)
        return Plan(fire=tuple(fire), missed=None, next_at=after)
    last = _last(timing, next_at, now)
    if timing.catch_up == "none" and now - last > span(GRACE):
        return Plan(fire=(), missed=(next_at, now), next_at=timing.next_after(now))
    missed = None if last == next_at else (next_at, last)
    return Plan(fire=(last,), missed=missed, next_at=timing.next_after(last))


def run_at(name: str, fire_at: int, jitter: timedelta) -> int:
    """When the job of a fire time runs: the same for whoever works it out."""
    if not jitter:
        return fire_at
    digest = hashlib.blake2b(f"{name}:{fire_at}".encode(), digest_size=8).digest()
    return fire_at + int.from_bytes(digest, "big") % (span(jitter) + 1)


def _last(timing: Timing, next_at: int, now: int) -> int:
    """The last fire time up to now; `next_at` is one."""
    for window in _WINDOWS:
        last, start = next_at, max(next_at, now - span(window))
        after = timing.next_after(start)
        while after is not None and after <= now:
            last, after = after, timing.next_after(after)
        if last > next_at or start == next_at:
            return last
    return next_at
