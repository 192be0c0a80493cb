#!/usr/bin/env python3
"""Who waits for whom? Few jobs behind very many: of another tenant, of a paused type; and what turns cost.

100,000 jobs of one tenant wait when 10 of another one come: how long do these wait while all slots are busy?
200,000 jobs of a paused type with the highest priority stand in front of one: when does it run? And what
does a claim cost with one tenant, with a hundred and with ten thousand?
"""

import argparse
import statistics
import sys
import time
from datetime import timedelta
from typing import Any

from flow_stage import PAUSE, Stage, perform, until

from windlass import connect
from windlass.clock import uuid7
from windlass.job import JobState, NewJob
from windlass.outcome import Done
from windlass.policy import Limit
from windlass.store.engine import Settlement, Want
from windlass.store.flow import Restriction
from windlass.store.store import Store

MANY, FEW = 100_000, 10
PAUSED = 200_000
CHUNK = 10_000
WITHIN = 1.0
TENANTS = (1, 100, 10_000)
CLAIMS, AT_ONCE = 200, 10
# With so many tenants a claim may cost so much more than with one: it reads ten lanes in place of one.
MOST_TIMES = 2.5
LEASE = timedelta(minutes=5)
PATIENCE = 3_000


def main() -> int:
    """Run on each store; 1 if a promise did not hold."""
    return perform(__doc__, run, seconds=5, meaning="how long the many run before the few come")


def run(stage: Stage, options: argparse.Namespace) -> None:
    """One store."""
    opened = connect.open(stage.url)
    store = opened.store
    turns(stage, store)
    put(store, MANY, "turn", tenant="a")
    stage.start()
    until(lambda: counted(store, JobState.PROCESSING) > 0, 30)
    time.sleep(options.seconds)
    jobs = [a_job("turn", tenant="b") for _ in range(FEW)]
    store.enqueue(jobs)
    opened.wakeup.notify()
    waits = [waited(store, job.id) for job in jobs]
    left = counted(store, JobState.PENDING)
    stage.promise(
        f"{FEW} jobs of b behind {MANY:,} of a",
        f"waited {statistics.median(waits):.3f} s, {max(waits):.3f} s at most, while {left:,} of a wait",
        held=max(waits) < WITHIN,
    )
    store.pause("turn")
    store.pause("few")
    put(store, PAUSED, "few", priority=10)
    until(lambda: counted(store, JobState.PROCESSING) == 0, 30)
    ones = []
    for _ in range(FEW):
        job = a_job("free", priority=0)
        store.enqueue([job])
        opened.wakeup.notify()
        ones.append(waited(store, job.id))
    stage.promise(
        f"one job behind {PAUSED:,} paused ones of the highest priority",
        f"waited {statistics.median(ones):.3f} s, {max(ones):.3f} s at most",
        held=max(ones) < WITHIN,
    )
    opened.close()


def turns(stage: Stage, store: Store) -> None:
    """What claims cost, by the number of tenants; `few` is limited."""
    for kind in ("free", "few"):
        restricted = {"few": Restriction(limits={"few": Limit(concurrency=1_000)})} if kind == "few" else {}
        costs: dict[int, float] = {}
        for tenants in TENANTS:
            for start in range(0, TENANTS[-1], CHUNK):
                store.enqueue([a_job(kind, tenant=f"{n % tenants:05}") for n in range(start, start + CHUNK)])
            costs[tenants], served = claims(store, kind, restricted)
            fair = served == min(tenants, CLAIMS * AT_ONCE)
            stage.promise(
                f"{tenants:,} tenants, {'limited' if restricted else 'not limited'}",
                f"{costs[tenants] * 1e3:.2f} ms a claim of {AT_ONCE}, {served:,} tenants served",
                held=fair and costs[tenants] <= MOST_TIMES * costs[1],
            )
            empty(store, kind)


def claims(store: Store, kind: str, restricted: dict[str, Restriction]) -> tuple[float, int]:
    """The median time of a claim, and how many tenants were served by all."""
    took: list[float] = []
    after: dict[str, str] = {}
    served: set[str] = set()
    for _ in range(CLAIMS):
        want = Want(
            worker="measured",
            types={kind: 1},
            limit=AT_ONCE,
            slots=AT_ONCE,
            lease=LEASE,
            turns=after,
            restricted=restricted,
        )
        began = time.perf_counter()
        leases = store.claim(want).leases
        took.append(time.perf_counter() - began)
        served |= {lease.job.tenant for lease in leases}
        after = {kind: leases[-1].job.tenant}
        store.settle([Settlement(lease, Done(), None) for lease in leases])
    return statistics.median(took), len(served)


def empty(store: Store, kind: str) -> None:
    """Take all that is left."""
    want = Want(worker="measured", types={kind: 1}, limit=500, slots=500, lease=LEASE)
    while leases := store.claim(want).leases:
        store.settle([Settlement(lease, Done(), None) for lease in leases])


def put(store: Store, count: int, kind: str, **what: Any) -> None:
    """Enqueue so many alike."""
    for _ in range(0, count, CHUNK):
        store.enqueue([a_job(kind, **what) for _ in range(CHUNK)])


def a_job(kind: str, **what: Any) -> NewJob:
    """A job without a payload."""
    return NewJob(id=uuid7(), type=kind, payload=b"{}", **what)


def waited(store: Store, job_id: str) -> float:
    """Seconds from a job's arrival until its start."""
    for _ in range(PATIENCE):
        job = store.get(job_id)
        if job is not None and job.started_at is not None:
            return (job.started_at - job.created_at).total_seconds()
        time.sleep(PAUSE)
    raise TimeoutError("a job did not start")


def counted(store: Store, state: JobState) -> int:
    """How many jobs stand in a state."""
    return sum(each.count for each in store.counts().counts if each.state is state)


if __name__ == "__main__":
    sys.exit(main())
