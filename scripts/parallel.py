#!/usr/bin/env python3
"""Do two jobs that compute take about the time of one, on two cores? In processes, and on threads.

Runs one job alone and two at once, in turn, again and again, and compares the medians. Threads of one process
share an interpreter's lock, so two jobs on threads take twice as long: they show what is measured.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from datetime import timedelta
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Literal

# Children import this file, which begins below.
from windlass import JobType, Queue

ALLOWED = 1.4
WAIT = timedelta(minutes=5)


def compute(steps: int) -> int:
    """Count, in Python."""
    total = 0
    for number in range(steps):
        total += number % 7
    return total


def took(job_type: JobType[[int], int], steps: int, count: int) -> float:
    """Seconds until that many jobs have ended."""
    begun = perf_counter()
    for handle in [job_type.enqueue(steps) for _ in range(count)]:
        handle.result(WAIT)
    return perf_counter() - begun


def measure(queue: Queue, name: str, executor: Literal["thread", "process"], steps: int, tries: int) -> float:
    """How many times as long two take as one."""
    job_type: JobType[[int], int] = queue.job(name=name, executor=executor)(compute)
    with queue.worker(processes=2, types=[name]):
        # Children start with their first job.
        took(job_type, 1, 2)
        run = partial(took, job_type, steps)
        pairs = [(run(1), run(2)) for _ in range(tries)]
    one, two = (statistics.median(pair[place] for pair in pairs) for place in (0, 1))
    print(f"{name:<10} one job {one:.2f} s, two at once {two:.2f} s: {two / one:.2f} times", flush=True)
    return two / one


def main() -> int:
    """Measure both; 1 if two jobs in processes take much longer than one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=10_000_000, help="how long a job computes")
    parser.add_argument("--tries", type=int, default=7, help="how often (default 7)")
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with (
        tempfile.TemporaryDirectory(prefix="parallel_") as folder,
        Queue(f"sqlite:///{Path(folder) / 'jobs.db'}") as queue,
    ):
        measure(queue, "threads", "thread", options.steps, options.tries)
        ratio = measure(queue, "processes", "process", options.steps, options.tries)
    fine = ratio <= ALLOWED
    print(f"{'within' if fine else 'NOT within'} {ALLOWED} times")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
