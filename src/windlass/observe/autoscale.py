"""How many workers does the load ask for? Pure: from what waits, what comes in and how long it takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta

import msgspec


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator wants of it."""

    # What waits shall have started within this time.
    target: timedelta = timedelta(minutes=1)
    least: int = 1
    most: int = 100
    # Fewer only when the load has asked for fewer all this time.
    cooldown: timedelta = timedelta(minutes=5)
    headroom: float = 0.3


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What one type asks for at one moment."""

    type: str
    # Due, and not held back by a pause or an open breaker: more workers would not start those.
    waiting: int = 0
    running: int = 0
    # Per second.
    arrivals: float = 0.0
    # Seconds of a slot that one job takes.
    service: float = 0.0
    # So many of them may run at once, whoever runs them.
    limit: int | None = None


def slots_for(load: Load, target: timedelta) -> float:
    """The slots that keep up with what comes in, and start within the target what waits already."""
    wanted = load.service * (load.arrivals + load.waiting / target.total_seconds())
    # What nobody has measured yet needs at least a slot to be tried in.
    wanted = max(wanted, float(min(load.waiting, 1)))
    return wanted if load.limit is None else min(wanted, float(load.limit))


def desired(loads: Sequence[Load], slots: int, terms: Terms) -> int:
    """The workers for one moment, each with so many slots; within the bounds, with room to spare."""
    wanted = sum(slots_for(load, terms.target) for load in loads) * (1 + terms.headroom)
    # The sum of many small numbers is a hair beside the whole one that is meant.
    workers = math.ceil(round(wanted / max(slots, 1), 6))
    return min(max(workers, terms.least), terms.most)


def after_cooldown(now: int, before: Sequence[int]) -> int:
    """More at once, fewer only if no moment of the cool-down asked for more."""
    return max((now, *before))
