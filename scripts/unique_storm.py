#!/usr/bin/env python3
"""Is there never more than one job of a name at once, and is no name ever stuck, while workers are killed?

Producers enqueue jobs of twenty names, four workers run them and are killed at random. Handlers write down
when they ran: no two runs of a name may overlap. At the end every name can be taken.
"""

import argparse
import multiprocessing
import random
import sys
import time
from collections import defaultdict

from flow_stage import PAUSE, Stage, stages, until

from windlass import connect
from windlass.clock import uuid7
from windlass.job import JobState, NewJob

NAMES = [f"name-{number}" for number in range(20)]
PRODUCERS = 8


def main() -> int:
    """Run on each store; 1 if a promise did not hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=20, help="how long to kill (default 20)")
    parser.add_argument("--producers", type=int, default=PRODUCERS)
    parser.add_argument("--store", choices=["sqlite", "postgres", "both"], default="both")
    options = parser.parse_args()
    kinds = ["sqlite", "postgres"] if options.store == "both" else [options.store]
    broken: list[str] = []
    with stages(kinds) as each:
        for stage in each:
            run(stage, options.seconds, options.producers)
            broken += stage.broken
            stage.stop()
    return 1 if broken else 0


def run(stage: Stage, seconds: int, count: int) -> None:
    """One storm."""
    opened = connect.open(stage.url)
    store = opened.store
    for _ in range(4):
        stage.start("sole")
    spawn = multiprocessing.get_context("spawn")
    producers = [spawn.Process(target=produce, args=(stage.url, seconds, number)) for number in range(count)]
    for producer in producers:
        producer.start()
    end = time.monotonic() + seconds
    next_kill = time.monotonic() + 2
    while time.monotonic() < end:
        if time.monotonic() > next_kill:
            stage.kill_one()
            next_kill = time.monotonic() + random.uniform(1.0, 3.0)
        time.sleep(PAUSE)
    for producer in producers:
        producer.join()
    idle = until(
        lambda: (
            not any(each.state is JobState.PROCESSING or each.view == "due" for each in store.counts().counts)
        ),
        60,
    )
    stage.promise("everything ended", f"after {stage.kills} kills", held=idle)
    stage.promise("no two jobs of a name ran at once", overlaps(stage), held=overlaps(stage).startswith("0 "))
    taken = store.enqueue([a_job(name) for name in NAMES])
    stage.promise(
        "no name is stuck",
        f"{sum(each.created for each in taken)} of 20 free",
        held=all(e.created for e in taken),
    )
    opened.close()


def produce(url: str, seconds: int, seed: int) -> None:
    """Enqueue as fast as it goes; conflicts are part of it."""
    chance = random.Random(seed)
    opened = connect.open(url)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        opened.store.enqueue([a_job(chance.choice(NAMES))])
        time.sleep(0.005)
    opened.close()


def a_job(name: str) -> NewJob:
    """A job that shall be the only one of its name."""
    payload = f'{{"name": "{name}", "seconds": 0.02}}'.encode()
    return NewJob(id=uuid7(), type="sole", payload=payload, tenant=name, max_attempts=20, unique=name)


def overlaps(stage: Stage) -> str:
    """How many runs of a name began before the one before had ended."""
    runs: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for line in (stage.folder / "runs.log").read_text().splitlines():
        name, begun, ended = line.split()
        runs[name].append((float(begun), float(ended)))
    found = sum(
        later[0] < earlier[1]
        for each in runs.values()
        for earlier, later in zip(sorted(each), sorted(each)[1:], strict=False)
    )
    return f"{found} overlaps in {sum(map(len, runs.values()))} runs of {len(runs)} names"


if __name__ == "__main__":
    sys.exit(main())
