"""Which of the fire times that have come are fired, and which are told as missed?"""

from __future__ import annotations

import hashlib
from datetime import timedelta

import msgspec

from windlass.clock import span
from windlass.schedule.timing import Timing

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
        return _one_by_one(timing, next_at, now, most)
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


def _one_by_one(timing: Timing, next_at: int, now: int, most: int) -> Plan:
    fire: list[int] = []
    after: int | None = next_at
    while after is not None and after <= now and len(fire) < most:
        fire.append(after)
        after = timing.next_after(after)
    return Plan(fire=tuple(fire), missed=None, next_at=after)


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
