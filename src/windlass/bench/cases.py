"""What do we measure of ourselves? Each case is a run of the real thing on a new store."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from time import monotonic_ns, perf_counter
from typing import IO, Any

from windlass.bench.raw import PAYLOAD, Place
from windlass.job import JobState
from windlass.queue import JobType, Queue
from windlass.store.jobs import Filter

_BODY = PAYLOAD[len('{"body":"') : -len('"}')]
_LONGEST_WAIT = 120.0
_PAUSE = threading.Event()
_CALM_SECONDS = 0.03
_WARM_UP = 20


def single_enqueues(place: Place, count: int) -> float:
    """Durable enqueues a second by one thread, one by one."""
    with _prepared(place.fresh("enqueue")) as (_, noop):
        begun = perf_counter()
        for _ in range(count):
            noop.enqueue(_BODY)
        return count / (perf_counter() - begun)


def threaded_enqueues(place: Place, count: int, *, threads: int = 10) -> float:
    """Durable enqueues a second by several threads of one process, one by one."""
    with _prepared(place.fresh("threads")) as (_, noop), ThreadPoolExecutor(threads) as pool:
        start = threading.Barrier(threads + 1)

        def produce() -> None:
            start.wait()
            for _ in range(count // threads):
                noop.enqueue(_BODY)

        producers = [pool.submit(produce) for _ in range(threads)]
        start.wait()
        begun = perf_counter()
        for producer in producers:
            producer.result()
        return count / (perf_counter() - begun)


def bulk_enqueues(place: Place, count: int) -> float:
    """Durable enqueues a second in bulk."""
    with _prepared(place.fresh("bulk")) as (queue, noop):
        begun = perf_counter()
        queue.enqueue_many(noop.draft(_BODY) for _ in range(count))
        return count / (perf_counter() - begun)


def drained(place: Place, count: int) -> float:
    """No-op `async def` jobs a second by one worker at default settings, until the store shows all done."""
    with Queue(place.fresh("drain")) as queue:
        ran = threading.Event()
        left = count

        @queue.job
        async def noop(body: str) -> None:  # noqa: ARG001 - what a job of 200 bytes carries
            nonlocal left
            left -= 1
            if not left:
                ran.set()

        queue.enqueue_many(noop.draft(_BODY) for _ in range(count))
        begun = perf_counter()
        with queue.worker():
            ran.wait(_LONGEST_WAIT)
            _wait_for_all(queue, 0.002)
            took = perf_counter() - begun
        return count / took


_DRAINING_WORKER = """
import sys, threading
from windlass import Queue
queue = Queue(sys.argv[1])
ran = 0
@queue.job
async def noop(body: str) -> None:
    global ran
    ran += 1
def tell():
    told, pause = 0, threading.Event()
    while True:
        pause.wait(0.01)
        if ran != told:
            told = ran
            print(told, flush=True)
queue.store.now()
print("ready", flush=True)
sys.stdin.readline()
threading.Thread(target=tell, daemon=True).start()
with queue.worker():
    sys.stdin.read()
"""


def drained_by_two(place: Place, count: int) -> float:
    """The same by two worker processes, from the word to start until the store shows all done."""
    url = place.fresh("two")
    with _prepared(url) as (queue, noop):
        # One is there.
        queue.enqueue_many(noop.draft(_BODY) for _ in range(count - 1))
        with _worker_process(url, _DRAINING_WORKER) as one, _worker_process(url, _DRAINING_WORKER) as other:
            begun = perf_counter()
            for told, _ in (one, other):
                told.write("go\n")
                told.flush()
            _wait_until_ran([said for _, said in (one, other)], count)
            _wait_for_all(queue)
            return count / (perf_counter() - begun)


def _wait_until_ran(workers: list[IO[str]], count: int) -> None:
    """Until workers say that they ran so many. To ask the store meanwhile would take a tenth of the drain."""
    ran = [0] * len(workers)
    all_ran = threading.Event()

    def hear(number: int, said: IO[str]) -> None:
        for line in said:
            ran[number] = int(line)
            if sum(ran) >= count:
                all_ran.set()

    for number, said in enumerate(workers):
        threading.Thread(target=hear, args=(number, said), daemon=True).start()
    all_ran.wait(_LONGEST_WAIT)


def drained_apart(place: Place, count: int) -> float:
    """No-op jobs a second in child processes, one per core, from the first result on."""
    with Queue(place.fresh("apart")) as queue:
        noop = queue.job(name="noop", executor="process")(_do_nothing)
        with queue.worker():
            # The children are there before the time begins.
            for handle in [noop.enqueue(_BODY) for _ in range(_WARM_UP)]:
                handle.wait(timeout=_LONGEST_WAIT)
            begun = perf_counter()
            queue.enqueue_many(noop.draft(_BODY) for _ in range(count))
            _wait_for_all(queue)
            return count / (perf_counter() - begun)


def _wait_for_all(queue: Queue, pause: float = 0.01) -> None:
    while queue.store.count(Filter(states=(JobState.PENDING, JobState.PROCESSING)), limit=1):
        _PAUSE.wait(pause)


def _do_nothing(body: str) -> None:
    """What a child process can import."""


def dispatch_within(place: Place, count: int) -> list[float]:
    """Milliseconds from enqueue to start on an idle worker in the same process."""
    with Queue(place.fresh("within")) as queue:
        moments: SimpleQueue[int] = SimpleQueue()

        @queue.job
        async def mark() -> None:
            moments.put(monotonic_ns())

        with queue.worker():
            return _delays(mark, count, lambda: moments.get(timeout=_LONGEST_WAIT))


def _delays(mark: JobType[[], Any], count: int, started: Callable[[], int]) -> list[float]:
    mark.enqueue()
    started()
    delays = []
    for _ in range(count):
        # The store shall be idle: of hints close together only the first goes out at once.
        _PAUSE.wait(_CALM_SECONDS * (1 + random.random()))
        begun = monotonic_ns()
        mark.enqueue()
        # Nobody asks the store meanwhile: that would be measured, too.
        delays.append((started() - begun) / 1e6)
    return delays


_REMOTE_WORKER = """
import sys, time
from windlass import Queue
queue = Queue(sys.argv[1])
@queue.job
async def mark() -> None:
    print(time.monotonic_ns(), flush=True)
with queue.worker():
    print("ready", flush=True)
    sys.stdin.read()
"""


def dispatch_across(place: Place, count: int) -> list[float]:
    """Milliseconds from enqueue to start on an idle worker in another process."""
    url = place.fresh("across")
    with Queue(url) as queue:

        @queue.job
        async def mark() -> None: ...

        with _worker_process(url, _REMOTE_WORKER) as (_, said):
            return _delays(mark, count, lambda: int(said.readline()))


_IDLE_WORKER = """
import os, resource, sys, threading, time
from windlass import Queue
from windlass.worker.children.process_tree import resident
wire = None
if sys.argv[1].startswith("postgres") and sys.platform == "linux":
    from windlass.bench.postgres import Wire
    wire = Wire()
queue = Queue(sys.argv[1])
@queue.job
async def noop() -> None: ...
with queue.worker():
    noop.enqueue().wait(timeout=60)
    threading.Event().wait(float(sys.argv[3]))
    asked = wire and wire.statements()
    before = time.process_time()
    threading.Event().wait(float(sys.argv[2]))
    used = time.process_time() - before
    # The system's own peak would count what the process was before it became this program.
    memory = (resident(os.getpid()) or 0) / 1024 or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(used, memory, "nan" if wire is None else wire.statements() - asked)
"""


_REST = 0.6


def idle(url: str, seconds: float) -> tuple[float, float, float]:
    """Share of a core, megabytes, and statements a second (nan: none to count) of an idle worker process."""
    # Its one job is still counted and told of for a while.
    rest = seconds * _REST
    command = [sys.executable, "-c", _IDLE_WORKER, url, str(seconds), str(rest)]
    patience = seconds + rest + 120
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=patience).stdout
    used, kilobytes, asked = said.split()
    return float(used) / seconds, float(kilobytes) / 1024, float(asked) / seconds


@contextmanager
def _prepared(url: str) -> Iterator[tuple[Queue, JobType[[str], None]]]:
    """A queue whose store is made and open before the time begins, with one job in it."""
    with Queue(url) as queue:

        @queue.job
        def noop(body: str) -> None: ...

        noop.enqueue(_BODY)
        yield queue, noop


@contextmanager
def _worker_process(url: str, program: str) -> Iterator[tuple[IO[str], IO[str]]]:
    """A process that runs until the block ends: what it is told by, and what it says."""
    command = [sys.executable, "-c", program, url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        if worker.stdout is None or worker.stdin is None or worker.stdout.readline() != "ready\n":
            raise RuntimeError("the worker process did not start")
        yield worker.stdin, worker.stdout
        worker.stdin.close()
        worker.wait(_LONGEST_WAIT)
