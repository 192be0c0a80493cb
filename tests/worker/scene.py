"""How does a test speak of a worker without its loops?"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.waiting import PATIENCE, until
from windlass.clock import ManualClock, uuid7
from windlass.config import WorkerConfig
from windlass.connect import Opened
from windlass.job import Job, NewJob
from windlass.registry import Registry, make_handler
from windlass.store.fleet import WorkerInfo
from windlass.worker.parts import Parts

LEASE = timedelta(seconds=60)


class Gate:
    """A handler that says when it runs and goes on when it is let."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open = threading.Event()
        self.entered = 0
        self.left = 0

    def pass_through(self) -> None:
        """The handler's body."""
        self._count("entered")
        try:
            self._open.wait(PATIENCE)
        finally:
            self._count("left")

    def let(self) -> None:
        """Let everybody go on."""
        self._open.set()

    def reach(self, entered: int) -> None:
        """Wait until so many have come in."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.entered >= entered, PATIENCE)

    def empty(self) -> None:
        """Wait until everybody who came in has left."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.left >= self.entered, PATIENCE)

    def _count(self, name: str) -> None:
        with self._changed:
            setattr(self, name, getattr(self, name) + 1)
            self._changed.notify_all()


class Still:
    """A worker's parts on a real store, with no loop running and time in the test's hand."""

    def __init__(self, opened: Opened, clock: ManualClock) -> None:
        self.opened = opened
        self.store = opened.store
        self.clock = clock
        self.registry = Registry()
        self.gate = Gate()
        self.drains = 0
        self.handler(self.gate.pass_through, "wait")
        self.parts: Parts

    def handler(self, function: Callable[..., Any], name: str, **options: Any) -> None:
        """Register a handler."""
        self.registry.add(make_handler(function, {"name": name, **options}))

    def build(self, **config: Any) -> Parts:
        """Make the parts and enter the fleet."""
        settings = {"threads": 3, "lease": LEASE, **config}
        self.parts = Parts(
            self.store,
            self.opened.wakeup,
            self.registry,
            WorkerConfig(**settings),
            clock=self.clock,
            asked_to_drain=self._asked_to_drain,
        )
        if self.parts.needs_loop:
            self.parts.runner.coroutines.open()
        self.parts.heartbeat.join()
        return self.parts

    def put(self, count: int = 1, job_type: str = "wait", **fields: Any) -> list[Job]:
        """Enqueue jobs."""
        payload = json.dumps(fields.pop("payload", {})).encode()
        new = [NewJob(id=uuid7(), type=job_type, payload=payload, **fields) for _ in range(count)]
        self.store.enqueue(new)
        return [self.job(each) for each in new]

    def job(self, job: Job | NewJob) -> Job:
        """The job as it stands now."""
        found = self.store.get(job.id)
        assert found is not None
        return found

    def run_claimed(self, count: int) -> None:
        """Claim, and wait until so many handlers run."""
        self.parts.claimer.tick()
        self.gate.reach(count)

    def settle(self) -> None:
        """Write whatever has finished."""
        while not self.parts.settler.empty:
            self.parts.settler.tick()

    def finish(self) -> None:
        """Let what runs end, and write it."""
        self.gate.let()
        self.gate.empty()
        self.until(self.parts.idle)
        self.settle()

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait for another thread to get somewhere."""
        until(holds)

    def pass_time(self, seconds: float, *, beating: bool = True) -> None:
        """Let time pass second by second; the heart beats meanwhile, or not."""
        for _ in range(int(seconds)):
            self.clock.advance(1)
            if beating:
                self.parts.heartbeat.tick()

    def close(self) -> None:
        """Let everything end."""
        self.gate.let()
        if hasattr(self, "parts"):
            self.parts.runner.threads.close()
            self.parts.runner.coroutines.close(PATIENCE)
            self.parts.children.close()
            self.parts.guard.close()

    def _asked_to_drain(self) -> None:
        self.drains += 1


@contextlib.contextmanager
def impatient(still: Still) -> Iterator[None]:
    """Who waits for the store is told at once that it is locked, as long as a block lasts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(still.store._writer, "_patience", 0.1)  # type: ignore[attr-defined] # noqa: SLF001
        yield


def claim_ahead(parts: Parts, job_type: str, now: float) -> None:
    """Let a worker believe that jobs of this type are short, so that it claims more than it has slots for."""
    for _ in range(20):
        parts.pools[0].prefetch.note(job_type, 0.001, now)


def let_time_be_over(parts: Parts) -> None:
    """Let the deadline of whatever runs pass now: a test says when, and never races with a short timeout."""
    for run in list(parts.runs.values()):
        if run.started is not None:
            run.extend(run.started)
    parts.timeouts.loop.wake()


def another_worker(name: str = "other-1-aa", **changes: Any) -> WorkerInfo:
    """A worker on another machine."""
    fields: dict[str, Any] = {
        "id": name,
        "host": "other",
        "boot": "another-boot",
        "pid_space": "pid:[1]",
        "pid": 1,
        "pid_started": 1,
        "version": "0",
    }
    return WorkerInfo(**(fields | changes))
