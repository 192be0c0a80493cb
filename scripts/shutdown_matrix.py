#!/usr/bin/env python3
"""Does a worker always leave in time, losing nothing and leaving nobody behind?

Every way of running (thread, loop, child, tree of a child, command) x every order of signals x the store up,
slow or gone, then random cycles under load. After each: was the process gone in time, by the right code,
without a descendant? After all: has every job completed? Prints the table; exit 1 if anything is wrong.
"""

import argparse
import contextlib
import json
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.history import result
from tests.history.check import Rules, check
from tests.history.end import look
from tests.history.processes import Process
from tests.history.record import Reader, Recorder, Verb, shell_command
from windlass import connect
from windlass.clock import uuid7
from windlass.errors import WrongState
from windlass.job import Job, JobState, NewJob
from windlass.store.jobs import Edit, Filter
from windlass.store.store import Store

GRACE, EXIT_AFTER, MARGIN = 2.0, 4.0, 1.5
HERE = Path(__file__).parent
KINDS = {
    "thread": ("on_thread", '{"seconds": %s}'),
    "loop": ("on_loop", '{"seconds": %s}'),
    "child": ("in_child", '{"seconds": %s}'),
    "tree": ("in_tree", '{"seconds": %s}'),
    "shell": (
        "shell",
        json.dumps({"command": shell_command("sleep SECONDS")}).replace("%", "%%").replace("SECONDS", "%s"),
    ),
}


class Order(NamedTuple):
    """Signals, each after so many seconds; what the process may answer, and how soon it must be gone."""

    name: str
    signals: tuple[tuple[float, signal.Signals], ...]
    codes: tuple[int, ...]
    within: float


ORDERS = (
    Order("TERM", ((0, signal.SIGTERM),), (0,), EXIT_AFTER),
    Order("INT", ((0, signal.SIGINT),), (0,), EXIT_AFTER),
    Order("TERM TERM", ((0, signal.SIGTERM), (0.3, signal.SIGTERM)), (143,), 1.0),
    Order("INT TERM", ((0, signal.SIGINT), (0.3, signal.SIGTERM)), (143,), 1.0),
    Order("TERM KILL", ((0, signal.SIGTERM), (0.5, signal.SIGKILL)), (-9,), 1.0),
    Order("KILL", ((0, signal.SIGKILL),), (-9,), 0.5),
)


class Cycle(NamedTuple):
    """What came of one worker's end."""

    code: int
    seconds: float
    left: int
    wrong: str


def main() -> int:
    """Run the matrix and the random cycles."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cycles", type=int, default=200, help="random cycles under load (default 200)")
    parser.add_argument("--kinds", default=",".join(KINDS), help="only these ways of running")
    parser.add_argument("--stores", default="up,slow,gone", help="only these states of the store")
    parser.add_argument("--seed", type=int, default=1)
    result.add_option(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="windlass-shutdown-") as folder:
        site = Site(Path(folder))
        shown = result.Result("shutdown-matrix", site.url, seed=options.seed)
        wrong = site.matrix(options.kinds.split(","), options.stores.split(","))
        text = "each end of the matrix is in time, by its code, without a descendant"
        shown.promise(text, f"{wrong} are not", held=not wrong)
        wrong = site.cycles(options.cycles, random.Random(options.seed))
        shown.promise("each random end is, too", f"{wrong} are not", held=not wrong)
        site.finish(shown)
        site.opened.close()
        return 0 if shown.close(options.json) else 1


class Site:
    """One store and the workers on it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "jobs.db"
        self.url = f"sqlite:///{self.path}"
        self.opened = connect.open(self.url)
        self.log = folder / "workers.log"
        self.recorder = Recorder(folder / "history")

    @property
    def store(self) -> Store:
        """The store, as this process sees it."""
        return self.opened.store

    def matrix(self, kinds: list[str], stores: list[str]) -> int:
        """Each kind, order and state of the store once."""
        wrong = 0
        print(f"{'executor':9} {'store':6}" + "".join(f"{order.name:>20}" for order in ORDERS))
        for kind in kinds:
            for state in stores:
                cells = []
                for order in ORDERS:
                    cycle = self.cycle({kind: 3}, order, state, length=30)
                    wrong += bool(cycle.wrong)
                    cells.append(cycle.wrong or f"{cycle.seconds:.1f} s, code {cycle.code}")
                print(f"{kind:9} {state:6}" + "".join(f"{cell:>20}" for cell in cells), flush=True)
        return wrong

    def cycles(self, count: int, chance: random.Random) -> int:
        """Random ones, with jobs of all kinds and lengths."""
        wrong, longest = 0, 0.0
        for number in range(count):
            mix = {kind: chance.randint(0, 4) for kind in KINDS}
            order, state = chance.choice(ORDERS), chance.choice(("up", "up", "slow", "gone"))
            cycle = self.cycle(mix, order, state, length=chance.choice((0.01, 0.3, 1, 5)), chance=chance)
            longest = max(longest, cycle.seconds)
            if cycle.wrong:
                wrong += 1
                print(f"cycle {number}: {order.name}, store {state}, {mix}: {cycle.wrong}", flush=True)
        print(f"{count} random cycles, the longest end took {longest:.1f} s, {wrong} wrong")
        return wrong

    def cycle(
        self,
        mix: dict[str, int],
        order: Order,
        state: str,
        *,
        length: float,
        chance: random.Random | None = None,
    ) -> Cycle:
        """One worker's life and end; what earlier ones left is made short: 20 kills would make it dead."""
        self.shorten()
        self.enqueue(mix, length)
        worker = self.worker()
        self._await_start(worker)
        if chance is not None:
            time.sleep(chance.uniform(0, 0.5))
        # Nothing can be recorded while the store is slow or gone.
        cut_off = self.recorder.fault(Verb.CUT_OFF, worker.name)
        with contextlib.nullcontext() if state == "up" else cut_off, _store_is(state, self.path):
            below = psutil.Process(worker.pid).children(recursive=True)
            begun = time.monotonic()
            for after, number in order.signals:
                time.sleep(max(0.0, begun + after - time.monotonic()))
                worker.send_signal(number)
            last = time.monotonic()
            try:
                code = worker.wait(EXIT_AFTER + 10)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
                return Cycle(0, EXIT_AFTER + 10, 0, "did not leave")
            seconds = time.monotonic() - last
        left = _left(below)
        return Cycle(code, seconds, left, _verdict(order, code, seconds, left))

    def enqueue(self, mix: dict[str, int], length: float) -> None:
        """Jobs of these kinds; cut short later, so that the end of all this is not waited for."""
        new = [
            NewJob(
                id=uuid7(), type=KINDS[kind][0], payload=(KINDS[kind][1] % length).encode(), max_attempts=20
            )
            for kind, count in mix.items()
            for _ in range(count)
        ]
        self.recorder.enqueue(self.store, new)

    def worker(self) -> Process:
        """A worker as a person would start it, with a short grace."""
        environment = {
            "WINDLASS_DATABASE_URL": self.url,
            "WINDLASS_WORKER_GRACE": f"{GRACE}s",
            "WINDLASS_WORKER_EXIT_AFTER": f"{EXIT_AFTER}s",
            "WINDLASS_WORKER_PROCESSES": "4",
        }
        line = [sys.executable, "-m", "windlass", "worker", "start", "fleet_app:queue"]
        with self.log.open("ab") as log:
            return Process(line, self.recorder, cwd=HERE, env=environment, stderr=log)

    def finish(self, shown: result.Result) -> None:
        """Shorten what is left, let workers run it all, and judge the whole history."""
        workers = [self.worker() for _ in range(4)]
        try:
            _until(self.shorten, 600, strict=False)
        finally:
            for worker in workers:
                worker.terminate()
            for worker in workers:
                worker.wait(30)
        end = look(self.store, self.url)
        check(Reader(self.recorder.path).read(), end, Rules()).add_to(shown)
        wrong = [job for job in end.jobs.values() if job.state is not JobState.COMPLETED]
        stories = Counter(_story(job) for job in wrong).most_common()
        told = result.few(f"{count} x {story}" for story, count in stories)
        shown.promise("every job completed in the end", told, held=not wrong)

    def shorten(self) -> bool:
        """Let what waits be done at once when it runs next; whether nothing is left."""
        short, left = dict(KINDS.values()), self._unfinished()
        for job in left:
            with contextlib.suppress(WrongState):
                if job.state is JobState.PENDING:
                    self.store.edit(job.id, Edit(payload=(short[job.type] % 0).encode()))
        return not left

    def _unfinished(self) -> list[Job]:
        return self.store.find(Filter(states=(JobState.PENDING, JobState.PROCESSING)), limit=1000).jobs

    def _await_start(self, worker: Process) -> None:
        def busy() -> bool:
            return (
                any(each.pid == worker.pid and each.busy for each in self.store.workers())
                or not self._unfinished()
            )

        _until(busy, 20)


def _story(job: Job) -> str:
    """How a job came to where it is: its state, and what ended each attempt."""
    ends = Counter(entry.error.reason.value if entry.error else entry.outcome for entry in job.history)
    told = ", ".join(f"{count} {reason}" for reason, count in ends.most_common())
    return f"{job.type} is {job.state}, attempt {job.attempts} of {job.max_attempts}: {told}"


@contextlib.contextmanager
def _store_is(state: str, path: Path) -> Iterator[None]:
    """Up; slow: somebody holds the lock for most of each second; gone: somebody holds it all the time."""
    if state == "up":
        yield
        return
    stop = threading.Event()

    def hold() -> None:
        held = sqlite3.connect(path, isolation_level=None, timeout=30, check_same_thread=False)
        while not stop.is_set():
            held.execute("begin immediate")
            stop.wait(0.8 if state == "slow" else 60)
            held.execute("rollback")
            stop.wait(0.2)
        held.close()

    holder = threading.Thread(target=hold)
    holder.start()
    time.sleep(0.1)
    try:
        yield
    finally:
        stop.set()
        holder.join()


def _left(below: list[psutil.Process]) -> int:
    """How many descendants are there after a moment."""
    _until(lambda: not _living(below), 3, strict=False)
    return len(_living(below))


def _living(processes: list[psutil.Process]) -> list[psutil.Process]:
    found = []
    for each in processes:
        try:
            if each.is_running() and each.status() != psutil.STATUS_ZOMBIE:
                found.append(each)
        except psutil.NoSuchProcess:
            continue
    return found


def _verdict(order: Order, code: int, seconds: float, left: int) -> str:
    if left:
        return f"{left} LEFT"
    # What ends before the second signal comes has ended well.
    if code not in (*order.codes, 0):
        return f"CODE {code}"
    return f"TOOK {seconds:.1f} s" if seconds > order.within + MARGIN else ""


def _until(holds: Callable[[], object], seconds: float, *, strict: bool = True) -> None:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            if strict:
                raise SystemExit("it took too long; see the log")
            return
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
