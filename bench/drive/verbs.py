"""How is each case measured? The same code for every peer."""

from __future__ import annotations

import asyncio
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.drive.contract import AsyncDriver, Cannot, Driver
from bench.drive.processes import Heard, Workers, kill_tree, tree
from bench.drive.tasks import LONG_SECONDS

BODY = "x" * 188
_POLL_SECONDS = 0.003
# A question that takes long is asked less often: it must not take from the workers what it measures.
_RARELY = 5
_LONGEST_DRAIN = 120.0
Figures = dict[str, Any]
Say = Callable[[str], None]


def enqueue_one(driver: Driver, say: Say, *, seconds: float) -> Figures:
    """One producer, one by one."""
    return enqueue_producers(driver, say, seconds=seconds, producers=1)


def enqueue_producers(driver: Driver, _: Say, *, seconds: float, producers: int = 10) -> Figures:
    """Producers in one process: coroutines where the peer has them, threads elsewhere."""
    driver.enqueue("noop", BODY)
    elsewhere = driver.produce(BODY, seconds, producers)
    if elsewhere is not None:
        return _produced(*elsewhere)
    if isinstance(driver, AsyncDriver):
        return driver.run(_produce_as_coroutines(driver, seconds, producers))  # type: ignore[no-any-return]
    return _produce_as_threads(driver, seconds, producers)


def bulk(driver: Driver, say: Say, *, count: int) -> Figures:
    """Many at once by the peer's own bulk call."""
    driver.enqueue("noop", BODY)
    bodies = [BODY] * count
    say("begin")
    begun = time.perf_counter()
    driver.bulk(bodies)
    took = time.perf_counter() - begun
    return {"rate": count / took, "seconds": took, "count": count}


def drain(
    driver: Driver,
    say: Say,
    *,
    count: int,
    processes: int = 1,
    task: str = "noop",
    concurrency: int | None = None,
) -> Figures:
    """Work off what waits, from the moment all processes have started until the store shows all done."""
    alone = driver.work(count, processes)
    if alone is not None:
        return {"rate": count / alone, "seconds": alone, "count": count}
    driver.fill(task, [BODY] * count)
    with _workers(driver) as workers:
        for _ in range(processes):
            workers.start(concurrency=concurrency)
        workers.await_ready(processes)
        say("begin")
        used = workers.usage().cpu_seconds
        begun = time.perf_counter()
        workers.open_gate()
        while True:
            asked = time.perf_counter()
            if not driver.unfinished():
                break
            workers.check()
            if time.perf_counter() - begun > _LONGEST_DRAIN:
                raise TimeoutError(f"{count} jobs were not done within {_LONGEST_DRAIN:g} s")
            time.sleep(max(_POLL_SECONDS, _RARELY * (time.perf_counter() - asked)))
        took = time.perf_counter() - begun
        cpu = (workers.usage().cpu_seconds - used) / count
    return {"rate": count / took, "seconds": took, "count": count, "cpu": cpu}


def crowd(driver: Driver, say: Say, *, kind: str, count: int) -> Figures:
    """Fill the store with rows that the worker has nothing to do with."""
    begun = time.perf_counter()
    driver.crowd(kind, count)
    say("begin")
    return {"seconds": time.perf_counter() - begun, "count": count}


def dispatch(driver: Driver, say: Say, *, count: int) -> Figures:
    """Milliseconds from the call that enqueues to the start of the job, in an idle worker's process."""
    with _workers(driver) as workers:
        workers.start()
        driver.enqueue("mark", "warm")
        workers.await_heard("mark", 1, within=60)
        say("begin")
        used = workers.usage().cpu_seconds
        delays = []
        for number in range(count):
            time.sleep(random.uniform(0.02, 0.06))  # beside any rhythm of a poll
            called = time.monotonic()
            begun = driver.enqueue("mark", str(number)) or called
            workers.await_heard("mark", number + 2, within=30)
            delays.append((workers.heard[-1].at - begun) * 1000)
        cpu = (workers.usage().cpu_seconds - used) / count
    return _delays(delays) | {"count": count, "cpu": cpu}


def idle(driver: Driver, say: Say, *, seconds: float, settle: float = 32.0) -> Figures:
    """What a worker without work costs; the runner asks the server at `begin` and `end`."""
    with _workers(driver) as workers:
        workers.open_gate()
        workers.start()
        driver.enqueue("mark", "warm")
        workers.await_heard("mark", 1, within=60)
        # Until what a worker does at its start, and what it counts and tells after its first job, is over.
        time.sleep(settle)
        before = workers.usage()
        say("begin")
        begun = time.monotonic()
        time.sleep(seconds)
        after = workers.usage()
        took = time.monotonic() - begun
        say("end")
    share = (after.cpu_seconds - before.cpu_seconds) / took
    return {"cpu": share * 100, "memory": after.megabytes, "seconds": took}


def recovery(driver: Driver, say: Say, *, jobs: int, at_once: int, limit: float) -> Figures:
    """Kill a worker that runs jobs, beside another one, and see what becomes of them."""
    with _workers(driver) as workers:
        first = workers.start(concurrency=at_once)
        driver.fill("long", [str(number) for number in range(jobs)])
        workers.await_heard("start", 1, within=60)
        _await_second(driver, workers, workers.start(concurrency=at_once).pid)
        say("begin")
        kill_tree(first.pid)
        killed = time.monotonic()
        first.wait()
        before = [each for each in workers.heard if each.at <= killed]
        cut_off = {e.body for e in before if e.what == "start"} - {e.body for e in before if e.what == "end"}
        _await_ends(workers, jobs, killed + limit)
        return _verdict(workers.heard, cut_off, jobs, killed) | {"limit": limit}


VERBS: dict[str, Callable[..., Figures]] = {
    "enqueue_one": enqueue_one,
    "enqueue_producers": enqueue_producers,
    "bulk": bulk,
    "drain": drain,
    "crowd": crowd,
    "dispatch": dispatch,
    "idle": idle,
    "recovery": recovery,
}


def _produce_as_threads(driver: Driver, seconds: float, producers: int) -> Figures:
    start = threading.Barrier(producers + 1 if producers > 1 else 1)
    taken: list[list[float]] = [[] for _ in range(producers)]

    def produce(mine: list[float]) -> None:
        # Once before it counts: a thread may open a connection of its own.
        driver.enqueue("noop", BODY)
        start.wait()
        now = time.perf_counter()
        until = now + seconds
        while now < until:
            before = now
            driver.enqueue("noop", BODY)
            now = time.perf_counter()
            mine.append(now - before)

    if producers == 1:
        begun, used = time.perf_counter(), time.process_time()
        produce(taken[0])
        cpu = (time.process_time() - used) / len(taken[0])
        return _produced(taken, time.perf_counter() - begun) | {"cpu": cpu}
    threads = [threading.Thread(target=produce, args=(mine,)) for mine in taken]
    for thread in threads:
        thread.start()
    start.wait()
    begun = time.perf_counter()
    for thread in threads:
        thread.join()
    return _produced(taken, time.perf_counter() - begun)


async def _produce_as_coroutines(driver: AsyncDriver, seconds: float, producers: int) -> Figures:
    taken: list[list[float]] = [[] for _ in range(producers)]

    async def produce(mine: list[float]) -> None:
        now = time.perf_counter()
        until = now + seconds
        while now < until:
            before = now
            await driver.send("noop", BODY)
            now = time.perf_counter()
            mine.append(now - before)

    begun = time.perf_counter()
    await asyncio.gather(*(produce(mine) for mine in taken))
    return _produced(taken, time.perf_counter() - begun)


def _produced(taken: list[list[float]], took: float) -> Figures:
    delays = [each * 1000 for mine in taken for each in mine]
    return _delays(delays) | {"rate": len(delays) / took, "count": len(delays)}


def _delays(delays: list[float]) -> Figures:
    ordered = sorted(delays)

    def below(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    return {"p50": below(0.5), "p99": below(0.99)}


def _await_second(driver: Driver, workers: Workers, pid: int) -> None:
    """Give the second worker something to do until it says so, but be done while the long jobs still run."""
    until = time.monotonic() + LONG_SECONDS * 0.7
    while time.monotonic() < until and not {each.pid for each in workers.heard} & set(tree(pid)):
        driver.enqueue("mark", "ready")
        time.sleep(0.5)


def _await_ends(workers: Workers, jobs: int, until: float) -> None:
    """Wait until every job has ended, or the limit."""
    while time.monotonic() < until:
        ended = {each.body for each in workers.heard if each.what == "end"}
        if len(ended) >= jobs:
            return
        time.sleep(0.05)


def _verdict(heard: list[Heard], cut_off: set[str], jobs: int, killed: float) -> Figures:
    again: dict[str, float] = {}
    for each in heard:
        if each.what == "start" and each.at > killed and each.body in cut_off:
            again.setdefault(each.body, each.at - killed)
    ends = [each.body for each in heard if each.what == "end"]
    if not cut_off:
        raise Cannot("no job was running when its worker was killed")
    return {
        "cut_off": len(cut_off),
        "back": max(again.values()) if len(again) == len(cut_off) else None,
        "first_back": min(again.values(), default=None),
        "missing": jobs - len(set(ends)),
        "doubled": len(ends) - len(set(ends)),
    }


@contextmanager
def _workers(driver: Driver) -> Iterator[Workers]:
    with (
        tempfile.TemporaryDirectory(prefix="wl-b-", dir="/tmp") as name,
        Workers(driver, Path(name)) as workers,
    ):
        yield workers
