"""How many workers, how much room, how long to catch up? Capacity on paper.

Size by slots, not by instances: at a rate r of jobs that take s seconds, r * s of them run at every moment,
whatever they run in. 500 jobs a second of 2 s are 1,000 slots, so 100 workers of 10; and those 100 workers
make 500 such jobs a second, not 2,500.
"""

from __future__ import annotations

import math
from collections import Counter
from datetime import timedelta
from typing import Any

import msgspec

from windlass import settings
from windlass.errors import Refused, must_be
from windlass.observe import names
from windlass.store.history import Step
from windlass.store.store import Store

HEADROOM = 0.3
# Bytes of a record besides its payload, and what indexes take on top. For a job that completed at once SQLite
# takes 380 and 15 %; with a retry or two, a key, and PostgreSQL's larger rows this is about right.
RECORD = 500
INDEX_SHARE = 0.3
_QUANTILE = 0.99
_DAY = 86_400
_HOUR = 3_600
_LOOKED_BACK = timedelta(days=7)
_SHORTEST_RUN = timedelta(microseconds=1)
_MOST_SLOTS = 1_000_000


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be carried. Refuses nonsense when it is made."""

    # Jobs per second, and how long one takes.
    rate: float
    run: timedelta
    # 99 of 100 jobs start within this.
    wait: timedelta = timedelta(seconds=30)
    # A worker's slots.
    slots: int = 10
    # So many times the rate, for so long.
    spike: float = 1.0
    spike_for: timedelta = timedelta(0)
    # Bytes of a payload, and how long records are kept.
    payload: int = 0
    keep: timedelta = timedelta(days=7)

    def __post_init__(self) -> None:
        for name in ("rate", "run", "wait", "slots", "spike", "keep"):
            value = getattr(self, name)
            number = value.total_seconds() if isinstance(value, timedelta) else value
            if not 0 < number < math.inf:
                raise must_be(name, value, "more than 0")
        if self.spike < 1:
            raise must_be("spike", self.spike, "at least 1: so many times the rate")
        if self.busy > _MOST_SLOTS:
            allowed = f"at most {_MOST_SLOTS:,} together with run: so many slots would be busy"
            raise must_be("rate", self.rate, allowed)

    @property
    def busy(self) -> float:
        """How many jobs run at every moment."""
        return self.rate * self.run.total_seconds()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What that takes."""

    load: Load
    # Busy at every moment; so many that 99 of 100 start in time; and with 30 % to spare.
    busy: float
    slots_in_time: int
    slots: int
    workers: int
    # Jobs per second that those slots carry.
    capacity: float
    jobs_per_day: float
    bytes_per_job: float
    bytes_per_day: float
    bytes_kept: float
    bytes_with_indexes: float
    # Of a spike: how many jobs come in, how many of them wait when it is over, and how long until none does.
    spike_jobs: float
    backlog: float
    drain: timedelta | None
    # So many workers at least would follow the spike.
    spike_workers: int


def plan(load: Load) -> Plan:
    """Reckon it up."""
    in_time = slots_for(load.rate, load.run.total_seconds(), load.wait.total_seconds())
    # A third of a slot is none.
    slots = math.ceil(round(in_time * (1 + HEADROOM), 6))
    capacity = slots / load.run.total_seconds()
    record = RECORD + load.payload
    kept = record * load.rate * load.keep.total_seconds()
    per_day = load.rate * _DAY
    peak, seconds = load.rate * load.spike, load.spike_for.total_seconds()
    backlog = max(0.0, peak - capacity) * seconds
    return Plan(
        load=load,
        busy=load.busy,
        slots_in_time=in_time,
        slots=slots,
        workers=math.ceil(slots / load.slots),
        capacity=capacity,
        jobs_per_day=per_day,
        bytes_per_job=record,
        bytes_per_day=record * per_day,
        bytes_kept=kept,
        bytes_with_indexes=kept * (1 + INDEX_SHARE),
        spike_jobs=peak * seconds,
        backlog=backlog,
        drain=drain_time(backlog, capacity, load.rate),
        spike_workers=math.ceil(math.ceil(peak * load.run.total_seconds()) / load.slots),
    )


def measured(store: Store) -> dict[str, Any]:
    """What this store has seen in the last week: the rate of its busiest hour, the mean run of all types."""
    now = store.now()
    # Of all types together, added up by the store.
    past = store.history_of_others(Step.HOUR, now - _LOOKED_BACK, now, types=())
    came = Counter({each.at: 0 for each in past})
    runs = micros = 0
    for each in past:
        if each.name == names.ENQUEUED:
            came[each.at] += each.value
        elif each.name == names.STARTED:
            runs += each.value
        elif each.name == names.total(names.RUN):
            micros += each.value
    if not runs or not came.total():
        raise Refused("this store has seen no job run yet: give --rate and --run")
    run = max(timedelta(microseconds=micros / runs), _SHORTEST_RUN)
    [(_, most)] = came.most_common(1)
    return {"rate": most / _HOUR, "run": run, "keep": settings.read(store.settings()).keep_ended}


def drain_time(backlog: float, capacity: float, rate: float) -> timedelta | None:
    """How long until what waits is through, while more comes in; None: never."""
    if not backlog:
        return timedelta(0)
    spare = capacity - rate
    return timedelta(seconds=backlog / spare) if spare > 0 else None


def slots_for(rate: float, run: float, wait: float, quantile: float = _QUANTILE) -> int:
    """The fewest slots with which that share of jobs starts within `wait` seconds.

    Jobs that come by chance meet full slots now and then: how often is Erlang's formula (M/M/c). Real jobs
    come in bursts: this is where to begin, not where to end.
    """
    load = rate * run
    slots = math.floor(load) + 1
    blocked = _erlang_b(load, slots)
    while _late(load, slots, blocked, run, wait) > 1 - quantile:
        slots += 1
        # One step of the recursion that _erlang_b takes from the beginning.
        blocked = load * blocked / (slots + load * blocked)
    return slots


def _late(load: float, slots: int, blocked: float, run: float, wait: float) -> float:
    """The chance that a job waits longer than `wait`."""
    share = load / slots
    must_wait = blocked / (1 - share * (1 - blocked))
    return must_wait * math.exp(-(slots - load) * wait / run)


def _erlang_b(load: float, slots: int) -> float:
    blocked = 1.0
    for number in range(1, slots + 1):
        blocked = load * blocked / (number + load * blocked)
    return blocked
