#!/usr/bin/env python3
"""Is there never more than one job of a name at once, is no name ever stuck, and is no work lost under kills?

Producers enqueue jobs of twenty names, four workers run them and are killed at random. Producers write down
what they were answered, handlers when they ran and for which request. Until done, no two runs of a name may
overlap; until start, no two jobs of a name may wait. What was accepted has run, a replaced job with the last
work that it was given. At the end every name can be taken.
"""

import argparse
import contextlib
import multiprocessing
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import timedelta
from itertools import pairwise
from typing import Any

from flow_stage import PAUSE, Stage, perform, until

from tests.history.check import Rules  # flow_stage lets these be found
from tests.history.record import Call, Reader, Recorder, Verb
from windlass import connect
from windlass.clock import uuid7
from windlass.errors import UniqueConflict
from windlass.job import JobState, NewJob
from windlass.store.jobs import Filter
from windlass.store.store import Store

NAMES = 20
PRODUCERS = 8
WAY: dict[str, dict[str, Any]] = {
    "skip": {},
    "replace": {"on_unique": "replace"},
    "error": {"on_unique": "error"},
    "start": {"unique_until": "start"},
    "start-replace": {"unique_until": "start", "on_unique": "replace"},
}
# So often a replacing request also moves the run time: a debounce.
DELAYED, DELAY = 0.3, timedelta(milliseconds=30)


def main() -> int:
    """Run on each store; 1 if a promise did not hold."""
    choices = {"way": tuple(WAY)}
    return perform(__doc__, run, seconds=12, meaning="how long to kill in each way", choices=choices)


def run(stage: Stage, options: argparse.Namespace) -> None:
    """One storm for each way."""
    opened = connect.open(stage.url)
    for _ in range(4):
        stage.start("sole")
    for way in [options.way] if options.way else WAY:
        storm(stage, opened.store, way, options.seconds)
    opened.close()
    stage.judge(Rules())


def storm(stage: Stage, store: Store, way: str, seconds: int) -> None:
    """Produce and kill, then see what came of it."""
    spawn = multiprocessing.get_context("spawn")
    producers = [
        spawn.Process(target=produce, args=(stage.url, str(stage.recorder.path), way, seconds, number))
        for number in range(PRODUCERS)
    ]
    for producer in producers:
        producer.start()
    kills, waiting = stage.kills, 0
    end = time.monotonic() + seconds
    next_kill = time.monotonic() + 2
    while any(producer.is_alive() for producer in producers):
        if next_kill < time.monotonic() < end:
            stage.kill_one("sole")
            next_kill = time.monotonic() + random.uniform(1.0, 3.0)
        waiting = max(waiting, most_waiting(store))
        time.sleep(PAUSE)
    idle = until(lambda: not any(is_open(each.state) for each in store.counts().counts), 60)
    stage.promise(f"{way}: everything ended", f"after {stage.kills - kills} kills", held=idle)
    requests, runs = of_way(stage.history, way)
    if "start" in way:
        stage.promise(f"{way}: no two of a name wait", f"{waiting} at most", held=waiting == 1)
    else:
        found = overlaps(runs)
        told = f"{found} overlaps in {len(runs)} runs of {len({each.note.split()[0] for each in runs})} names"
        stage.promise(f"{way}: no two of a name run at once", told, held=not found)
    lost = not_carried_out(requests, runs)
    told = f"{len(lost)} of {len(requests)} lost, for {len({each.answer for each in requests})} jobs"
    stage.promise(f"{way}: what was accepted has run", told, held=not lost)
    taken = stage.recorder.enqueue(store, [a_job(way, number, f"last-{number}") for number in range(NAMES)])
    free = sum(each.created for each in taken)
    stage.promise(f"{way}: no name is stuck", f"{free} of {NAMES} free", held=free == NAMES)
    until(lambda: not any(is_open(each.state) for each in store.counts().counts), 60)


def produce(url: str, history: str, way: str, seconds: int, seed: int) -> None:
    """Enqueue as fast as it goes; conflicts are part of it."""
    chance = random.Random(seed)
    opened, recorder = connect.open(url), Recorder(history)
    end = time.monotonic() + seconds
    for number in range(sys.maxsize):
        if time.monotonic() > end:
            break
        request = f"{seed}-{number}"
        delay = DELAY if "replace" in way and chance.random() < DELAYED else None
        job = a_job(way, chance.randrange(NAMES), request, delay)
        with contextlib.suppress(UniqueConflict):
            recorder.enqueue(opened.store, [job], f"{way} {request}")
            # As a queue does: on PostgreSQL workers are notified.
            opened.wakeup.notify()
        time.sleep(0.005)
    opened.close()


def a_job(way: str, number: int, request: str, delay: timedelta | None = None) -> NewJob:
    """A job that shall be the only one of its name."""
    name = f"{way}:{number}"
    payload = f'{{"name": "{name}", "seconds": 0.02, "request": "{request}"}}'.encode()
    return NewJob(
        id=uuid7(),
        type="sole",
        payload=payload,
        tenant=name,
        max_attempts=20,
        unique=name,
        delay=delay,
        **WAY[way],
    )


def is_open(state: JobState) -> bool:
    """Whether jobs in that state have not ended."""
    return state in (JobState.PENDING, JobState.PROCESSING)


def most_waiting(store: Store) -> int:
    """The most jobs of a name that wait for their first start, in one look."""
    page = store.find(Filter(types=("sole",), states=(JobState.PENDING,)), limit=1000)
    names = Counter(job.tenant for job in page.jobs if not job.claims)
    return max(names.values(), default=0)


def of_way(history: Reader, way: str) -> tuple[list[Call], list[Call]]:
    """The requests that were accepted with work to do, and what has run for them."""
    history.read()
    requests = [each for each in history.of(Verb.ENQUEUE) if each.note.split(" ")[0] == way and each.answered]
    # Of a skipped one nothing is to be done.
    requests = [each for each in requests if each.state == "1 created" or "replace" in way]
    return requests, [each for each in history.of(Verb.RUN) if each.note.partition(":")[0] == way]


def overlaps(runs: Iterable[Call]) -> int:
    """How many runs of a name began before the one before had ended."""
    by_name: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for each in runs:
        by_name[each.note.split()[0]].append((each.start, each.end or each.start))
    return sum(
        later[0] < earlier[1] for each in by_name.values() for earlier, later in pairwise(sorted(each))
    )


def not_carried_out(requests: Iterable[Call], runs: Iterable[Call]) -> list[str]:
    """Jobs that never ran, or whose last run did older work than they had been given by then."""
    ended = {each.note.split()[1]: each.end for each in runs if each.end is not None and each.answered}
    by_job: dict[str, list[Call]] = defaultdict(list)
    for each in requests:
        by_job[each.answer[0]].append(each)
    lost = []
    for job, given in by_job.items():
        done = [each for each in given if each.note.split()[1] in ended]
        if not done:
            lost.append(job)
            continue
        last = max(done, key=lambda each: ended[each.note.split()[1]])
        if any(each.start > (last.end or last.start) for each in given):
            lost.append(job)
    return lost


if __name__ == "__main__":
    sys.exit(main())
