"""F-06b: a dependency is down. Attempts are no longer burnt, others go on, and it drains when it is back."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from tests.waiting import PATIENCE, until
from tests.worker.stores import on_both
from windlass import Queue, Retry

url = on_both
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
        until(lambda: any(each.open for each in queue.store.switches().breakers.values()), "it opens")
        other.enqueue().wait(PATIENCE)
        until(lambda: _only_probed(calls), "nothing but probes are made")
        up.set()
        for job in jobs:
            job.wait(PATIENCE)
        until(lambda: not queue.store.switches().breakers["sync"].open, "it closes")
        assert {queue.get(job.id).state.value for job in jobs} == {"completed"}


def _only_probed(calls: Sequence[int]) -> bool:
    """Whether a call a second is made, while forty jobs would each like to make one."""
    begun, before = time.monotonic(), len(calls)
    threading.Event().wait(2)
    return len(calls) - before <= time.monotonic() - begun + 1
