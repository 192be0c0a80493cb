#!/usr/bin/env python3
"""What does it bring that suspects run in children, and that only a few do so at once? See decision 008.

First a job that kills its worker runs among innocent ones, once with suspects in children and once without:
how many attempts do the innocents lose? Then many innocent suspects run beside good jobs, with one child at a
time, with as many as by default, and with one for each: when are all of them done, and how many processes and
how much memory does that take?
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import psutil

from windlass import Queue, connect
from windlass.clock import uuid7
from windlass.job import JobState, NewJob, Reason
from windlass.outcome import Lost, Policy, decide
from windlass.store.engine import Settlement, Want
from windlass.store.jobs import Filter
from windlass.store.store import Store

HERE = Path(__file__).parent
UNFINISHED = (JobState.PENDING, JobState.PROCESSING)
INNOCENT, SUSPECTS, GOOD = 100, 30, 200


def main() -> int:
    """Both comparisons."""
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    print(f"a poison job with 5 attempts among {INNOCENT} innocent ones of 0.3 s, ten at a time:")
    for suspects in ("on", "off"):
        with tempfile.TemporaryDirectory() as folder:
            poison_among_innocents(f"sqlite:///{folder}/jobs.db", suspects)
    print(f"{SUSPECTS} innocent suspects of 0.2 s beside {GOOD} good jobs of 0.05 s, on 100 slots:")
    for most in (1, None, SUSPECTS):
        with tempfile.TemporaryDirectory() as folder:
            many_suspects(f"sqlite:///{folder}/jobs.db", most)
    return 0


def poison_among_innocents(url: str, suspects: str) -> None:
    """Start a worker again and again until everything has ended."""
    store = connect.open(url).store
    new = [_job("on_thread", b'{"seconds": 0.3}') for _ in range(INNOCENT)]
    poison = _job("poison", b"{}")
    store.enqueue([*new[: INNOCENT // 2], poison, *new[INNOCENT // 2 :]])
    environment = os.environ | {"WINDLASS_DATABASE_URL": url, "FLEET_SUSPECTS": suspects}
    line = [sys.executable, "-m", "windlass", "worker", "start", "fleet_app:queue", "--until-empty"]
    begun, workers = time.monotonic(), 0
    while store.count(Filter(states=UNFINISHED), limit=1):
        workers += 1
        subprocess.run(line, cwd=HERE, env=environment, capture_output=True, check=False)
    lost = [
        entry.error is not None and entry.error.reason is Reason.WORKER_LOST
        for each in new
        if (job := store.get(each.id)) is not None
        for entry in job.history
    ]
    print(
        f"  suspects {suspects:3}: {workers - 1} workers lost, with them {sum(lost)} attempts of innocents;"
        f" all over after {time.monotonic() - begun:.1f} s"
    )


def many_suspects(url: str, most: int | None) -> None:
    """All at once, with room for so many children."""
    import fleet_app  # noqa: PLC0415 - only this part is the worker itself

    suspects = [_job("on_thread", b'{"seconds": 0.2}') for _ in range(SUSPECTS)]
    good = [_job("on_thread", b'{"seconds": 0.05}') for _ in range(GOOD)]
    with Queue(url) as queue:
        queue.registry.add(fleet_app.on_thread.handler)
        queue.store.enqueue(suspects)
        _lose_twice(queue.store)
        queue.store.enqueue(good)
        _watch(queue, most, [each.id for each in suspects], [each.id for each in good])


def _watch(queue: Queue, most: int | None, suspects: list[str], good: list[str]) -> None:
    begun, peak, size = time.monotonic(), 0, 0.0
    ended: dict[str, float] = {}
    with queue.worker(threads=100) as worker:
        if most is not None:
            worker.parts.children._most_suspects = most  # noqa: SLF001 - what is compared
        while len(ended) < len(suspects) + len(good):
            below = psutil.Process().children()
            peak = max(peak, len(below))
            size = max(size, sum(_resident(each) for each in below) / 2**20)
            for job_id in [*suspects, *good]:
                job = queue.store.get(job_id) if job_id not in ended else None
                if job is not None and job.ended:
                    ended[job_id] = time.monotonic() - begun
        room = worker.parts.children._most_suspects  # noqa: SLF001 - as above
    print(
        f"  {room:3} at once: suspects done after {max(ended[each] for each in suspects):4.1f} s,"
        f" good jobs after {max(ended[each] for each in good):4.1f} s;"
        f" at most {peak} processes with {size:.0f} MB"
    )


def _resident(process: psutil.Process) -> int:
    try:
        size: int = process.memory_info().rss
    except psutil.NoSuchProcess:
        return 0
    return size


def _lose_twice(store: Store) -> None:
    """Let two workers die over each job, as the store tells it."""
    for _ in range(2):
        want = Want(worker="gone", types={"on_thread": 1}, limit=SUSPECTS, lease=timedelta(seconds=60))
        leases = store.claim(want).leases
        lost = Lost(Reason.WORKER_LOST)
        store.settle(
            [
                Settlement(each, decide(each.job, lost, Policy(), now=each.until, chance=lambda: 0.0))
                for each in leases
            ]
        )


def _job(job_type: str, payload: bytes) -> NewJob:
    return NewJob(id=uuid7(), type=job_type, payload=payload, max_attempts=5)


if __name__ == "__main__":
    sys.exit(main())
