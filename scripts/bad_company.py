"""Does one worker's bad company disturb the good? Run by `make bad-company`.

One worker runs 1,000 good jobs alone, then 1,000 more beside a segfault, a hoarder of 2 GB under 256 MB, an
endless loop, a breeder of grandchildren and a coroutine that blocks the loop. Printed: both rates, what a
good job cost the worker each time, how many of the cores the bad ones took meanwhile (a `while True` honestly
takes a whole one until its timeout), each story as `windlass show` tells it, and what is left in the process
table.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from windlass.config import cores
from windlass.worker import Worker

GOOD = 1000


def main() -> int:
    """Run it, print it, and say whether all is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="windlass-company-") as folder:
        os.environ["WINDLASS_DATABASE_URL"] = f"sqlite:///{Path(folder) / 'jobs.db'}"
        return show()


def show() -> int:
    """The whole of it, on one store."""
    import fleet_app as app  # noqa: PLC0415 - it reads where the store is when it is imported

    logs = _Kept()
    logging.getLogger("windlass").addHandler(logs)
    company = (app.segfault, app.hoard, app.spin, app.breed, app.block)
    with app.queue.worker(processes=4) as worker:
        _measure(app, worker)
        alone = _measure(app, worker)
        handles = [each.enqueue() for each in company]
        while any(handle.get().attempts == 0 for handle in handles):
            time.sleep(0.01)
        beside = _measure(app, worker)
        ended = [handle.wait(60) for handle in handles]
    left = [
        each for each in psutil.Process().children(recursive=True) if each.status() != psutil.STATUS_ZOMBIE
    ] + [each for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] == ["sleep", "1000"]]
    print(f"{GOOD} good jobs alone           {alone}")
    print(f"{GOOD} good jobs in bad company  {beside}")
    left_over = 1 - beside.taken / cores()
    print(
        f"full rate: {beside.rate / alone.rate:.0%}; the bad ones took {beside.taken:.1f} of {cores()} cores,"
        f" so {left_over:.0%} were left"
    )
    for job in ended:
        told = f"{job.error.reason}: {job.error.message}" if job.error else ""
        print(f"  {job.type:10} {job.state:10} after {job.attempts} attempts  {told}")
    blocked = [line for line in logs.lines if line.startswith("loop.blocked")]
    print(f"the blocked loop was named: {'in block' in ' '.join(blocked)}")
    print(f"processes left behind: {len(left)}")
    states = [(job.type, str(job.state)) for job in ended]
    as_hoped = states == [(each.handler.name, "dead") for each in company[:4]] + [("block", "completed")]
    return 0 if as_hoped and not left and blocked else 1


class _Kept(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.getMessage()} {getattr(record, 'stack', '')}")


class Measured(NamedTuple):
    """Good jobs a second; the worker's own CPU for each; the cores that its children took meanwhile."""

    rate: float
    cost: float
    taken: float

    def __str__(self) -> str:
        return f"{self.rate:8.0f} jobs/s, {self.cost * 1e6:4.0f} us of the worker's CPU each"


def _measure(app: Any, worker: Worker) -> Measured:
    settler, own, others = worker.parts.settler, _own_cpu(), _childrens_cpu()
    drafts = [app.good.draft(number) for number in range(GOOD)]
    until, begun = settler.done + GOOD, time.perf_counter()
    app.queue.enqueue_many(drafts)
    while settler.done < until:
        time.sleep(0.002)
    seconds = time.perf_counter() - begun
    return Measured(GOOD / seconds, (_own_cpu() - own) / GOOD, (_childrens_cpu() - others) / seconds)


def _own_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _childrens_cpu() -> float:
    """Of those that have ended, and of those that run."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = ended.ru_utime + ended.ru_stime
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            seconds += sum(child.cpu_times()[:2])
    return seconds


if __name__ == "__main__":
    sys.exit(main())
