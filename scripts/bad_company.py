"""Does one worker's bad company disturb the good? Run by `make bad-company`.

One worker runs 1,000 good jobs alone, then 1,000 more beside a segfault, a hoarder of 2 GB under 256 MB, an
endless loop, a breeder of grandchildren and a coroutine that blocks the loop. Printed: both rates, each story
as `windlass show` tells it, and what is left in the process table.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
from pathlib import Path

import psutil

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
    with app.queue.worker(processes=4):
        alone = _rate(app)
        handles = [each.enqueue() for each in company]
        time.sleep(0.5)
        beside = _rate(app)
        ended = [handle.wait(60) for handle in handles]
    left = [
        each for each in psutil.Process().children(recursive=True) if each.status() != psutil.STATUS_ZOMBIE
    ] + [each for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] == ["sleep", "1000"]]
    print(f"{GOOD} good jobs alone           {alone:8.0f} jobs/s")
    print(f"{GOOD} good jobs in bad company  {beside:8.0f} jobs/s   ({beside / alone:.0%})")
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


def _rate(app: object) -> float:
    """Good jobs a second."""
    queue, good = app.queue, app.good  # type: ignore[attr-defined]
    begun = time.perf_counter()
    for handle in queue.enqueue_many(good.draft(number) for number in range(GOOD)):
        handle.wait(60)
    return GOOD / (time.perf_counter() - begun)


if __name__ == "__main__":
    sys.exit(main())
