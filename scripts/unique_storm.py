#!/usr/bin/env python3
"""Is there never more than one job of a name at once, is no name ever stuck, and is no work lost under kills?

Producers enqueue jobs of twenty names, four workers run them and are killed at random. Producers write down
what they were answered, handlers when they ran and for which request. Until done, no two runs of a name may
overlap; until start, no two jobs of a name may wait. What was accepted has run, a replaced job with the last
work that it was given. At the end every name can be taken.
"""

import argparse
import multiprocessing
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from flow_stage import PAUSE, Stage, perform, until

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


def storm(stage: Stage, store: Store, way: str, seconds: int) -> None:
    """Produce and kill, then see what came of it."""
    spawn = multiprocessing.get_context("spawn")
    producers = [
        spawn.Process(target=produce, args=(stage.url, str(stage.folder), way, seconds, number))
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
    requests, runs = read_requests(stage.folder, way), read_runs(stage.folder, way)
    if "start" in way:
        stage.promise(f"{way}: no two of a name wait", f"{waiting} at most", held=waiting == 1)
    else:
        found = overlaps(runs)
        told = f"{found} overlaps in {len(runs)} runs of {len({each.name for each in runs})} names"
        stage.promise(f"{way}: no two of a name run at once", told, held=not found)
    lost = not_carried_out(requests, runs)
    told = f"{len(lost)} of {len(requests)} lost, for {len({each.job for each in requests})} jobs"
    stage.promise(f"{way}: what was accepted has run", told, held=not lost)
    taken = store.enqueue([a_job(way, number, f"last-{number}") for number in range(NAMES)])
    free = sum(each.created for each in taken)
    stage.promise(f"{way}: no name is stuck", f"{free} of {NAMES} free", held=free == NAMES)
    until(lambda: not any(is_open(each.state) for each in store.counts().counts), 60)


class Request(NamedTuple):
    """One that was accepted: what it was answered, and between which times."""

    id: str
    job: str
    began: float
    answered: float


class Run(NamedTuple):
    """One run, for the request whose work it did."""

    name: str
    request: str
    began: float
    ended: float


def produce(url: str, folder: str, way: str, seconds: int, seed: int) -> None:
    """Enqueue as fast as it goes; conflicts are part of it."""
    chance = random.Random(seed)
    opened = connect.open(url)
    end = time.monotonic() + seconds
    with (Path(folder) / f"requests-{way}-{seed}.log").open("w") as log:
        for number in range(sys.maxsize):
            if time.monotonic() > end:
                break
            request = f"{seed}-{number}"
            delay = DELAY if "replace" in way and chance.random() < DELAYED else None
            began = time.time()
            try:
                [answer] = opened.store.enqueue([a_job(way, chance.randrange(NAMES), request, delay)])
            except UniqueConflict:
                continue
            finally:
                time.sleep(0.005)
            # Of a skipped one nothing is to be done.
            if answer.created or "replace" in way:
                # As a queue does: on PostgreSQL workers are told.
                opened.wakeup.notify()
                log.write(f"{request} {answer.id} {began:.6f} {time.time():.6f}\n")
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


def read_requests(folder: Path, way: str) -> list[Request]:
    """What was accepted, from all producers."""
    lines = (line for path in folder.glob(f"requests-{way}-?.log") for line in path.read_text().splitlines())
    found = (line.split() for line in lines)
    return [Request(request, job, float(began), float(ended)) for request, job, began, ended in found]


def read_runs(folder: Path, way: str) -> list[Run]:
    """What has run."""
    found = (line.split() for line in (folder / "runs.log").read_text().splitlines())
    runs = (Run(name, request, float(began), float(ended)) for name, request, began, ended in found)
    return [each for each in runs if each.name.partition(":")[0] == way]


def overlaps(runs: Iterable[Run]) -> int:
    """How many runs of a name began before the one before had ended."""
    by_name: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for each in runs:
        by_name[each.name].append((each.began, each.ended))
    return sum(
        later[0] < earlier[1] for each in by_name.values() for earlier, later in pairwise(sorted(each))
    )


def not_carried_out(requests: Iterable[Request], runs: Iterable[Run]) -> list[str]:
    """Jobs that never ran, or whose last run did older work than they had been given by then."""
    ended = {each.request: each.ended for each in sorted(runs, key=lambda each: each.ended)}
    by_job: dict[str, list[Request]] = defaultdict(list)
    for each in requests:
        by_job[each.job].append(each)
    lost = []
    for job, given in by_job.items():
        done = [each for each in given if each.id in ended]
        if not done:
            lost.append(job)
            continue
        last = max(done, key=lambda each: ended[each.id])
        if any(each.began > last.answered for each in given):
            lost.append(job)
    return lost


if __name__ == "__main__":
    sys.exit(main())
