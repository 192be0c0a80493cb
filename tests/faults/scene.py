"""How does a fault test speak of a queue, its worker and what ran?"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from tests.crash.app import hold
from tests.crash.processes import Site
from tests.waiting import PATIENCE, until
from windlass import connect
from windlass.clock import uuid7
from windlass.job import Job, JobState, NewJob
from windlass.queue import Queue
from windlass.store.jobs import Filter
from windlass.store.store import Store

T = TypeVar("T")
UNFINISHED = (JobState.PENDING, JobState.PROCESSING)

# Words by which the proxy knows a statement: each stands in one SQL section only.
CLAIM = "Take due jobs of the highest priority"
SETTLE = "Jobs end: their records move to the archive"
ENQUEUE = "Accept jobs that are new"
COUNT = "Count what happened, in every step at once"
BEAT = "A sign of life, at the server's own time"


class Yard:
    """A queue with one type of job, which counts its runs and can be made to wait."""

    def __init__(self, url: str) -> None:
        self.queue = Queue(url)
        self.ran: Counter[int] = Counter()
        self.started: Counter[int] = Counter()
        self.go_on = threading.Event()
        self.go_on.set()

        @self.queue.job
        def work(number: int) -> int:
            self.started[number] += 1
            self.go_on.wait(PATIENCE)
            self.ran[number] += 1
            return number

        self.work = work

    @property
    def store(self) -> Store:
        return self.queue.store

    def put(self, count: int) -> list[str]:
        """Accept so many jobs, numbered from 0."""
        drafts = (self.work.draft(number) for number in range(count))
        return [handle.id for handle in self.queue.enqueue_many(drafts)]

    def left(self) -> int:
        """How many jobs are not over."""
        return self.store.count(Filter(states=UNFINISHED), limit=100_000)

    def finish(self, within: float = PATIENCE) -> None:
        """Wait until every job is over."""
        until(lambda: self.left() == 0, "every job ends", within)

    def job(self, job_id: str) -> Job:
        found = self.store.get(job_id)
        assert found is not None
        return found

    def close(self) -> None:
        self.go_on.set()
        self.queue.close()


class Shift:
    """Jobs in worker processes that all wait for one file."""

    def __init__(self, site: Site, file: Path, count: int) -> None:
        self._site = site
        self._file = file
        self.jobs = site.enqueue(*(hold.draft(str(file)) for _ in range(count)))

    def end(self) -> None:
        """Let the handlers end, those that begin later, too."""
        self._file.touch()

    def running_on(self, pids: Iterable[int]) -> set[str]:
        """The jobs that run in these processes now."""
        among = set(pids)
        return {job for job, pid in self._noted("start") - self._noted("end") if pid in among}

    def begun(self) -> bool:
        """Whether every handler has begun."""
        return {job for job, _ in self._noted("start")} == set(self.jobs)

    def ended(self) -> bool:
        """Whether every handler has run to its end; its result may not be stored yet."""
        return {job for job, _ in self._noted("end")} == set(self.jobs)

    def completed(self) -> bool:
        """Whether every result is stored."""
        return all(completed(self._site, job_id) for job_id in self.jobs)

    def _noted(self, kind: str) -> set[tuple[str, int]]:
        events = self._site.events()
        return {(event.job, event.pid) for event in events if event.kind == kind and event.job in self.jobs}


def completed(site: Site, job_id: str) -> bool:
    """Whether a job's result is stored."""
    job = site.store.get(job_id)
    return job is not None and job.state is JobState.COMPLETED


def impatient(url: str, patience: float) -> connect.Opened:
    """The store for callers that wait no longer than this."""
    return connect.open(url, patience=patience)


def a_draft() -> NewJob:
    """A job of a type that nobody serves."""
    return NewJob(id=uuid7(), type="unserved", payload=b"{}")
