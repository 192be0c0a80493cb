#!/usr/bin/env python3
"""Does a fleet stop burning attempts when a dependency is down, and go on when it is back?

Four workers call a dependency that is up as long as a file is there. It is down, the breaker opens, one
probe at a time is tried (times scaled down), the dependency comes back, and everything drains.
"""

import argparse
import sys
import time
from itertools import pairwise

from flow_stage import Stage, perform, until

from tests.history.check import Rules  # flow_stage lets these be found
from tests.history.record import Verb
from windlass import connect
from windlass.clock import uuid7
from windlass.job import JobState, NewJob

JOBS = 400
PROBE = 2.0


def main() -> int:
    """Run on each store; 1 if a promise did not hold."""
    return perform(__doc__, run, seconds=20, meaning="how long it stays down")


def run(stage: Stage, options: argparse.Namespace) -> None:
    """Down and up again."""
    seconds = options.seconds
    opened = connect.open(stage.url)
    store = opened.store
    store.set_setting("breaker.probe", f"{PROBE:g}s")
    store.set_setting("breaker.window", "20s")
    jobs = [NewJob(id=uuid7(), type="sync", payload=b"{}", max_attempts=20) for _ in range(JOBS)]
    stage.recorder.enqueue(store, jobs)
    for _ in range(4):
        stage.start("sync")
    found = until(lambda: any(each.open for each in store.switches().breakers.values()), 60)
    why = "; ".join(each.why for each in store.switches().breakers.values())
    stage.promise("the breaker opens", why, held=found)
    time.sleep(3)
    before = len(calls(stage))
    time.sleep(seconds)
    probes = calls(stage)[before:]
    gaps = [later - earlier for earlier, later in pairwise(probes)]
    most = int(seconds / PROBE) + 1
    stage.promise("probes only, one at a time", f"{len(probes)} in {seconds} s", held=0 < len(probes) <= most)
    stage.promise(
        "never closer than stated",
        f"{min(gaps, default=0):.2f} s",
        held=all(gap >= PROBE - 0.3 for gap in gaps),
    )
    (stage.folder / "up").touch()
    drained = until(lambda: all(each.state is JobState.COMPLETED for each in store.counts().counts), 90)
    stage.promise("it closes and everything completes", f"{len(calls(stage))} calls", held=drained)
    opened.close()
    stage.judge(Rules())


def calls(stage: Stage) -> list[float]:
    """When the dependency was called."""
    stage.history.read()
    return sorted(call.start for call in stage.history.of(Verb.RUN))


if __name__ == "__main__":
    sys.exit(main())
