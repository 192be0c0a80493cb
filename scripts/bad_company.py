"""Does one worker's bad company disturb the good? Run by `make bad-company`.

One worker runs good jobs, 1,000 at a time: alone; beside a segfault, a hoarder of 2 GB under 256 MB, an
endless loop, a breeder of grandchildren and a coroutine that blocks the loop; and beside strangers: processes
that have nothing to do with it and take as many of the cores as the bad company did. What a `while True`
takes of the machine until its timeout is gone for everybody; what this worker adds to it is the difference
between company and strangers. Printed with it: what became of each of the bad ones, and what is left in the
process table. Exit 1 if a good job had to wait for more than the processor.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.history import result
from windlass.config import cores
from windlass.job import JobState
from windlass.worker import Worker

GOOD = 1000
WINDOW = 2.0
UNDISTURBED = 0.9
BURN = """
import sys, time
share, begun = float(sys.argv[1]), time.monotonic()
while True:
    while time.process_time() < share * (time.monotonic() - begun):
        pass
    time.sleep(0.002)
"""


def main() -> int:
    """Run it, print it, and say whether all is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    result.add_option(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="windlass-company-") as folder:
        os.environ["WINDLASS_DATABASE_URL"] = f"sqlite:///{Path(folder) / 'jobs.db'}"
        return show(options.json)


def show(file: Path | None) -> int:
    """The whole of it, on one store."""
    import fleet_app as app  # noqa: PLC0415 - it reads where the store is when it is imported

    logs = _Kept()
    logging.getLogger("windlass").addHandler(logs)
    company = (app.segfault, app.hoard, app.spin, app.breed, app.block)
    with app.queue.worker(processes=4) as worker:
        flow = partial(_flow, app, worker)
        flow(_for(1))
        alone = flow(_for(WINDOW))
        handles = [each.enqueue() for each in company]
        while any(handle.get().attempts == 0 for handle in handles):
            time.sleep(0.01)
        beside = flow(lambda: handles[2].get().state is JobState.PROCESSING)
        ended = [handle.wait(60) for handle in handles]
        with _strangers(beside.taken):
            strange = flow(_for(WINDOW))
        again = flow(_for(WINDOW))
    left = _left()
    print(f"good jobs alone              {alone}")
    print(f"good jobs in bad company     {beside}; it took {beside.taken:.2f} of {cores()} cores")
    print(f"good jobs beside strangers   {strange}; they took {strange.taken:.2f} of {cores()} cores")
    print(f"good jobs alone again        {again}")
    share = beside.rate / strange.rate
    print(f"in bad company, of what strangers leave: {share:.0%} ({UNDISTURBED:.0%} is undisturbed)")
    for job in ended:
        told = f"{job.error.reason}: {job.error.message}" if job.error else ""
        print(f"  {job.type:10} {job.state:10} after {job.attempts} attempts  {told}")
    blocked = [line for line in logs.lines if line.startswith("loop.blocked")]
    print(f"the blocked loop was named: {'in block' in ' '.join(blocked)}")
    print(f"processes left behind: {len(left)}")
    states = [(job.type, str(job.state)) for job in ended]
    as_hoped = states == [(each.handler.name, "dead") for each in company[:4]] + [("block", "completed")]
    shown = result.Result("bad-company", os.environ["WINDLASS_DATABASE_URL"])
    shown.injected = {"bad jobs": len(company)}
    shown.counts = {"rate in bad company": round(beside.rate), "rate beside strangers": round(strange.rate)}
    shown.promise("each of the bad ones ends as it should", states, held=as_hoped)
    explained = all(job.error is not None for job in ended if job.state is JobState.DEAD)
    shown.promise("a dead job has its errors in its story", held=explained)
    shown.promise("the blocked loop is named", len(blocked), held=bool(blocked))
    shown.promise("no process is left behind", len(left), held=not left)
    shown.promise("the good are not disturbed", f"{share:.0%}", held=share >= UNDISTURBED)
    return 0 if shown.close(file) else 1


def _left() -> list[psutil.Process]:
    """Our processes that live, wherever they went: they have inherited where the store is."""
    below = [each for each in psutil.Process().children(recursive=True) if each.status() != "zombie"]
    ours = os.environ["WINDLASS_DATABASE_URL"]
    for each in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if each.pid != os.getpid() and each.environ().get("WINDLASS_DATABASE_URL") == ours:
                below.append(each)
    return below


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


def _flow(app: Any, worker: Worker, goes_on: Callable[[], bool]) -> Measured:
    """Good jobs, one thousand after the other."""
    settler, own, others, begun = worker.parts.settler, _own_cpu(), _childrens_cpu(), time.perf_counter()
    jobs = 0
    while not jobs or goes_on():
        until = settler.done + GOOD
        app.queue.enqueue_many([app.good.draft(number) for number in range(GOOD)])
        while settler.done < until:
            time.sleep(0.002)
        jobs += GOOD
    seconds = time.perf_counter() - begun
    return Measured(jobs / seconds, (_own_cpu() - own) / jobs, (_childrens_cpu() - others) / seconds)


def _for(seconds: float) -> Callable[[], bool]:
    until = time.monotonic() + seconds
    return lambda: time.monotonic() < until


@contextlib.contextmanager
def _strangers(taken: float) -> Iterator[None]:
    """Processes that take so many cores together: one a core, which rests whenever it has had its share."""
    line = [sys.executable, "-c", BURN, str(taken / cores())]
    processes = [subprocess.Popen(line) for _ in range(cores())]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


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
