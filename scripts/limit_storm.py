#!/usr/bin/env python3
"""Do limits hold, exactly and in full, while workers are killed at random?

Four workers run limited types and one without limits. The store is sampled throughout: no sample may show
more than a limit allows, and each limit must be used in full before the kills and again within 15 seconds
after the last one.
"""

import argparse
import random
import sys
import time
from collections import Counter

from flow_stage import PAUSE, Stage, stages, until

from windlass import connect
from windlass.clock import uuid7
from windlass.job import JobState, NewJob
from windlass.store.protocol import Filter, Store

LIMITS = {"few": 3, "crm": 2}
RATE, BURST = 50, 5
BACKLOG = 4_000


def main() -> int:
    """Run on each store; 1 if a promise did not hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=30, help="how long to kill (default 30)")
    parser.add_argument("--store", choices=["sqlite", "postgres", "both"], default="both")
    options = parser.parse_args()
    kinds = ["sqlite", "postgres"] if options.store == "both" else [options.store]
    broken: list[str] = []
    with stages(kinds) as each:
        for stage in each:
            run(stage, options.seconds)
            broken += stage.broken
            stage.stop()
    return 1 if broken else 0


def run(stage: Stage, seconds: int) -> None:
    """One storm."""
    opened = connect.open(stage.url)
    store = opened.store
    fill(store)
    for _ in range(4):
        stage.start()
    full = until(lambda: in_use(store) == LIMITS, 40)
    stage.promise("every limit is used in full", str(LIMITS if full else in_use(store)), held=full)
    samples = Samples(store)
    next_kill = time.monotonic() + 1
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        samples.take()
        if time.monotonic() > next_kill:
            stage.kill_one()
            next_kill = time.monotonic() + random.uniform(1.0, 3.0)
        time.sleep(PAUSE)
    killed = time.monotonic()
    again = until(lambda: samples.take() == LIMITS, 15)
    stage.promise("in full again after the last kill", f"{time.monotonic() - killed:.1f} s", held=again)
    most = f"{dict(samples.most)} in {samples.count} samples, {stage.kills} kills"
    stage.promise("no sample shows more than a limit", most, held=samples.within())
    starts = rate_starts(store)
    worst = busiest_second(starts)
    stage.promise(
        "no second has more starts than the rate and its burst", str(worst), held=worst <= RATE + BURST
    )
    ended = Counter(job.type for job in store.find(Filter(states=(JobState.COMPLETED,)), limit=1000).jobs)
    stage.promise("the unlimited type goes on", f"{ended['free']} of the last 1000", held=ended["free"] > 0)
    opened.close()


class Samples:
    """What the store showed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.most: Counter[str] = Counter()
        self.count = 0

    def take(self) -> dict[str, int]:
        """Look once."""
        found = in_use(self._store)
        self.count += 1
        for name, count in found.items():
            self.most[name] = max(self.most[name], count)
        top_up(self._store)
        return found

    def within(self) -> bool:
        """Whether no look showed too many."""
        return all(self.most[name] <= limit for name, limit in LIMITS.items())


def fill(store: Store) -> None:
    """More of everything than can run."""
    for kind in ("few", "often", "contact", "deal"):
        store.enqueue([NewJob(id=uuid7(), type=kind, payload=b"{}", max_attempts=20) for _ in range(BACKLOG)])


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


def rate_starts(store: Store) -> list[float]:
    """When each job of the rated type began, its repeated attempts included."""
    starts: list[float] = []
    cursor = None
    while True:
        page = store.find(Filter(types=("often",)), limit=1000, cursor=cursor)
        for job in page.jobs:
            starts += [attempt.started_at.timestamp() for attempt in job.history]
        cursor = page.next
        if cursor is None:
            return sorted(starts)


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
