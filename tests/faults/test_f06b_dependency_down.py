"""F-06b: a dependency is down. Attempts are no longer burnt, others go on, and it drains when it is back."""

from __future__ import annotations

import threading

from tests.worker.stores import on_both
from windlass import Queue, Retry

url = on_both
PATIENCE = 60
SETTINGS = {"breaker.window": "5s", "breaker.probe": "1s"}


def test_a_dependency_goes_down_and_comes_back(url: str) -> None:
    queue = Queue(url)
    up = threading.Event()
    calls: list[int] = []

    @queue.job(max_attempts=20, retry=Retry(kind="fixed", base=1, jitter=0))
    def sync(number: int) -> None:
        calls.append(number)
        if not up.is_set():
            raise ConnectionError("it is down")

    @queue.job
    def other() -> None: ...

    for name, value in SETTINGS.items():
        queue.store.set_setting(name, value)
    jobs = [sync.enqueue(number) for number in range(40)]
    with queue, queue.worker(), queue.worker():
        _until(lambda: any(each.open for each in queue.store.switches().breakers.values()))
        other.enqueue().wait(PATIENCE)
        # What was claimed by who had not heard of it yet has ended; from now on there are probes only.
        _pause(1.5)
        spent = len(calls)
        _pause(3)
        assert len(calls) - spent <= 4
        up.set()
        for job in jobs:
            job.wait(PATIENCE)
        _until(lambda: not queue.store.switches().breakers["sync"].open)
        assert {queue.get(job.id).state.value for job in jobs} == {"completed"}


def _until(holds: object) -> None:
    for _ in range(PATIENCE * 20):
        if callable(holds) and holds():
            return
        _pause(0.05)
    raise AssertionError("it never came to that")


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)
