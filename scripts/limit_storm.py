#!/usr/bin/env python3
"""Do limits hold, exactly and in full, while workers are killed at random?

Four workers run limited types and one without limits. The store is sampled throughout: no sample may show
more than a limit allows, and each limit must be used in full before the kills and again within 15 seconds
after each of them. Jobs without limits drain beside that nearly as fast as alone, though the limited ones
take their part of the same cores; how many of them are done meanwhile is told, too.
"""

import argparse
import random
import sys
import time
from collections import Counter
from typing import NamedTuple

from flow_stage import PAUSE, Stage, perform, until

from tests.history.check import Faults, Rules, most_at_once  # flow_stage lets these be found
from tests.history.end import all_jobs
from tests.history.record import Verb
from windlass import connect
from windlass.clock import uuid7
from windlass.connect import Opened
from windlass.job import JobState, NewJob
from windlass.store.jobs import Filter
from windlass.store.store import Store

LIMITS = {"few": 3, "crm": 2}
LIMITED = ("few", "often", "contact", "deal")
# The free type records nothing: its speed is measured.
RULES = Rules(all_end=False, recording=frozenset(LIMITED))
RATE, BURST = 50, 5
BACKLOG = 8_000
# Enough for a second or so: what a drain is late to begin or to end must not count for much.
FREE = 16_000
MEASURED = 5
LEAST_SHARE = 0.9
# A killed worker takes with it what it had just started.
LEAST_USED = 0.8
WITHIN = 15.0
# So long workers take to see that a type was paused.
FOLLOWED_WITHIN = 1.0


def main() -> int:
    """Run on each store; 1 if a promise did not hold."""
    return perform(__doc__, run, seconds=30, meaning="how long to kill")


def run(stage: Stage, options: argparse.Namespace) -> None:
    """One storm."""
    opened = connect.open(stage.url)
    store = opened.store
    for _ in range(4):
        stage.start()
    for kind in LIMITED:
        # More of everything than can run.
        jobs = [NewJob(id=uuid7(), type=kind, payload=b"{}", max_attempts=20) for _ in range(BACKLOG)]
        stage.recorder.enqueue(store, jobs)
    full = until(lambda: in_use(store) == LIMITS, 40)
    stage.promise("every limit is used in full", str(LIMITS if full else in_use(store)), held=full)
    compare(stage, opened)
    samples = Samples(store)
    began = time.time()
    next_kill = time.monotonic() + 1
    end = time.monotonic() + options.seconds
    while time.monotonic() < end:
        samples.take()
        if time.monotonic() > next_kill:
            stage.kill_one()
            next_kill = time.monotonic() + random.uniform(1.0, 3.0)
        time.sleep(PAUSE)
    killed = time.monotonic()
    again = until(lambda: samples.take() == LIMITS, WITHIN)
    stage.promise("in full again after the last kill", f"{time.monotonic() - killed:.1f} s", held=again)
    gap = f"{samples.longest:.1f} s at most without"
    stage.promise("in full again after each kill", gap, held=samples.longest <= WITHIN)
    most = f"{dict(samples.most)} in {samples.count} samples, {stage.kills} kills"
    stage.promise("no sample shows more than a limit", most, held=samples.within())
    stormed = time.time() - began
    starts = rate_starts(store)
    worst = busiest_second(starts)
    used = sum(began <= each < began + stormed for each in starts) / stormed
    stage.promise("the rate is used, kills or not", f"{used:.1f} of {RATE}/s", held=used >= LEAST_USED * RATE)
    stage.promise(
        "no second has more starts than the rate and its burst", str(worst), held=worst <= RATE + BURST
    )
    opened.close()
    stage.judge(RULES, Filter(types=LIMITED))
    at_once = executions_at_once(stage)
    held = all(at_once[name] <= limit for name, limit in LIMITS.items())
    stage.promise("no more executions at once than a limit, as handlers recorded them", at_once, held=held)


def executions_at_once(stage: Stage) -> dict[str, int]:
    """The most executions at one time, by limit."""
    calls = stage.history.calls
    faults = Faults(calls, RULES)
    runs = [call for call in calls if call.verb == Verb.RUN]
    return {name: most_at_once((run for run in runs if run.note == name), faults) for name in LIMITS}


class Drain(NamedTuple):
    """What came of one drain of the unlimited type."""

    # Jobs done in a second.
    rate: float
    # Of the workers' CPU, in microseconds for each.
    cpu: float
    # Limited jobs done in a second meanwhile.
    beside: float


def compare(stage: Stage, opened: Opened) -> None:
    """Does the unlimited type drain as fast beside the limited ones as while they are paused?

    By turns, so that both meet the same machine; the fastest of each, since others can only slow it down.
    Whatever the limited jobs themselves take of it counts against the drain beside them.
    """
    store = opened.store
    alone, beside = [], []
    for _ in range(MEASURED):
        for kind in LIMITED:
            store.pause(kind)
        until(lambda: not any(in_use(store).values()), WITHIN)
        time.sleep(FOLLOWED_WITHIN)
        alone.append(drained(stage, opened))
        for kind in LIMITED:
            store.resume(kind)
        until(lambda: in_use(store) == LIMITS, WITHIN)
        beside.append(drained(stage, opened))
    fastest, fastest_alone = max(beside), max(alone)
    share = fastest.rate / fastest_alone.rate
    told = (
        f"{fastest.rate:.0f} of {fastest_alone.rate:.0f} a second, {share:.2f} "
        f"({fastest.cpu:.0f} and {fastest_alone.cpu:.0f} us of the workers' CPU for each, "
        f"with {fastest.beside:.0f} limited ones a second)"
    )
    stage.promise("the unlimited type drains as fast as alone", told, held=share >= LEAST_SHARE)


class Samples:
    """What the store showed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.most: Counter[str] = Counter()
        self.count = 0
        # The longest time without a sample that shows every limit used in full.
        self.longest = 0.0
        self._full_at = time.monotonic()

    def take(self) -> dict[str, int]:
        """Look once."""
        found = in_use(self._store)
        self.count += 1
        now = time.monotonic()
        self.longest = max(self.longest, now - self._full_at)
        if found == LIMITS:
            self._full_at = now
        for name, count in found.items():
            self.most[name] = max(self.most[name], count)
        top_up(self._store)
        return found

    def within(self) -> bool:
        """Whether no look showed too many."""
        return all(self.most[name] <= limit for name, limit in LIMITS.items())


def drained(stage: Stage, opened: Opened) -> Drain:
    """One drain of the unlimited type; the workers are told of its jobs, as a queue does."""
    store = opened.store
    jobs = [NewJob(id=uuid7(), type="free", payload=b"{}") for _ in range(FREE)]
    last = [job.id for job in jobs[-20:]]
    left = waiting(store)
    began, cpu = time.monotonic(), stage.cpu()
    store.enqueue(jobs)
    opened.wakeup.notify()
    if not until(lambda: all(has_ended(store, each) for each in last), 120):
        raise TimeoutError("jobs without a limit were not done")
    took = time.monotonic() - began
    cpu = stage.cpu() - cpu
    return Drain(FREE / took, cpu / FREE * 1e6, (left - waiting(store)) / took)


def has_ended(store: Store, job_id: str) -> bool:
    """Whether a job is done."""
    job = store.get(job_id)
    return job is not None and job.ended


def top_up(store: Store) -> None:
    """Jobs without a limit, all the time."""
    store.enqueue([NewJob(id=uuid7(), type="free", payload=b"{}") for _ in range(20)])


def in_use(store: Store) -> dict[str, int]:
    """Running jobs by limit, in one look."""
    running: Counter[str] = Counter()
    for each in store.counts().counts:
        if each.state is JobState.PROCESSING:
            running["crm" if each.type in ("contact", "deal") else each.type] += each.count
    return {name: running[name] for name in LIMITS}


def waiting(store: Store) -> int:
    """How many limited jobs wait."""
    pending = (each for each in store.counts().counts if each.state is JobState.PENDING)
    return sum(each.count for each in pending if each.type in LIMITED)


def rate_starts(store: Store) -> list[float]:
    """When each job of the rated type began, its repeated attempts included."""
    jobs = all_jobs(store, Filter(types=("often",)))
    return sorted(attempt.started_at.timestamp() for job in jobs for attempt in job.history)


def busiest_second(starts: list[float]) -> int:
    """The most starts within any second."""
    most = first = 0
    for last, moment in enumerate(starts):
        while starts[first] <= moment - 1:
            first += 1
        most = max(most, last - first + 1)
    return most


if __name__ == "__main__":
    sys.exit(main())
