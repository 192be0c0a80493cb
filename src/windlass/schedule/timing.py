"""When does a schedule fire, and what becomes of fire times that were missed or come too soon?"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Literal, TypedDict, TypeVar

import msgspec

from windlass.clock import END_OF_TIME, from_micros, span, to_micros
from windlass.duration import Duration, parse_duration
from windlass.errors import must_be
from windlass.schedule.cron import next_after, read_cron
from windlass.schedule.zones import zone_of

CatchUp = Literal["none", "last", "all"]
Overlap = Literal["skip", "queue"]
CATCH_UPS: tuple[CatchUp, ...] = ("none", "last", "all")
OVERLAPS: tuple[Overlap, ...] = ("skip", "queue")

SHORTEST = timedelta(seconds=1)
LONGEST = timedelta(days=366)
LONGEST_JITTER = timedelta(days=1)
MAX_NAME = 128


class TimingOptions(TypedDict, total=False):
    """What may be said about a schedule's times."""

    cron: str | None
    every: Duration | None
    tz: str | None
    catch_up: CatchUp | None
    overlap: Overlap | None
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
    jitter: timedelta = timedelta(0)

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
    if (cron is None) == (every is None):
        given = "both" if cron is not None else "neither"
        raise must_be("cron, every", given, "one of the two")
    if tz is not None and cron is None:
        raise must_be("tz", tz, "given together with cron: every 15m is the same in all zones")
    timing = Timing(
        cron=None if cron is None else read_cron(cron),
        every=None if every is None else _every(every),
        tz=_zone(tz),
        catch_up=_one_of("catch_up", options.get("catch_up") or "last", CATCH_UPS),
        overlap=_one_of("overlap", options.get("overlap") or "skip", OVERLAPS),
        jitter=_jitter(options.get("jitter")),
    )
    if timing.catch_up == "all" and timing.overlap == "skip":
        allowed = 'given together with overlap="queue": runs that catch up would skip each other'
        raise must_be("catch_up", "all", allowed)
    return timing


def check_name(name: object) -> str:
    """A schedule's name, or InvalidValue."""
    if isinstance(name, str) and len(name) <= MAX_NAME and _NAME.fullmatch(name):
        return name
    allowed = f"a letter a-z, then a-z, 0-9, _, . or -, at most {MAX_NAME} characters"
    raise must_be("schedule name", name, allowed)


def _every(value: Duration) -> timedelta:
    every = parse_duration(value, "every")
    if not SHORTEST <= every <= LONGEST:
        raise must_be("every", value, "a duration between 1s and 366d, such as 15m")
    return every


def _zone(name: str | None) -> str:
    if name is None:
        return "UTC"
    if not isinstance(name, str):
        raise must_be("tz", name, "the name of a time zone, such as Europe/Berlin or UTC")
    zone_of(name)
    return name


def _jitter(value: Duration | None) -> timedelta:
    jitter = timedelta(0) if value is None else parse_duration(value, "jitter")
    if jitter > LONGEST_JITTER:
        raise must_be("jitter", value, "a duration of at most 1d, such as 30s")
    return jitter


_Choice = TypeVar("_Choice", bound=str)


def _one_of(field: str, value: _Choice, allowed: tuple[_Choice, ...]) -> _Choice:
    if value not in allowed:
        raise must_be(field, value, "one of " + ", ".join(allowed))
    return value


_NAME = re.compile(r"[a-z][a-z0-9_.-]*")
