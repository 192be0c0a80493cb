"""What must hold of a store after any fault? Checked after every test that the table of faults names.

While such a test runs, every id that a store in this process acknowledges is noted. After the test's last
line, and before its servers go, each of these stores is opened again and read.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from windlass import connect
from windlass.clock import Clock
from windlass.job import Job, JobState
from windlass.store.engine import Enqueued
from windlass.store.jobs import Filter
from windlass.store.postgres.store import PostgresStore
from windlass.store.sqlite.store import SqliteStore
from windlass.store.store import Store

_PAGE = 1000


def broken(store: Store, acknowledged: Collection[str] = ()) -> list[str]:
    """What does not hold, in words; empty is the good answer."""
    jobs, shown = _still(store)
    found = [f"job {each} was acknowledged and is missing" for each in acknowledged if each not in jobs]
    found += [problem for job in jobs.values() for problem in _broken(job)]
    found += [f"job {each.id} runs under a lease that is over" for each in store.expired(limit=_PAGE)]
    stored = Counter(job.state for job in jobs.values())
    if shown != stored:
        found.append(f"the counts say {dict(shown)}, the tables {dict(stored)}")
    return found + store.check()


def _still(store: Store) -> tuple[dict[str, Job], Counter[JobState]]:
    """Every job, and the counts while nothing changed: a worker may still write its last result."""
    while True:
        before, jobs = _counts(store), {job.id: job for job in _all(store)}
        if (after := _counts(store)) == before:
            return jobs, after


def _counts(store: Store) -> Counter[JobState]:
    shown = Counter[JobState]()
    for count in store.counts().counts:
        shown[count.state] += count.count
    return +shown


def _broken(job: Job) -> Iterator[str]:
    if job.attempts > job.max_attempts:
        yield f"job {job.id} was attempted {job.attempts} times, and may be {job.max_attempts} times"
    if job.state is JobState.DEAD and job.error is None:
        yield f"job {job.id} is dead, and nothing says why"
    if job.state is JobState.PROCESSING and (job.worker is None or job.lease_until is None):
        yield f"job {job.id} runs without a lease"


def _all(store: Store) -> Iterator[Job]:
    cursor: str | None = None
    while True:
        page = store.find(Filter(), limit=_PAGE, cursor=cursor)
        yield from page.jobs
        if (cursor := page.next) is None:
            return


class Watch:
    """Notes which stores are opened in this process, and what they acknowledge."""

    def __init__(self) -> None:
        self._opened: WeakKeyDictionary[Store, tuple[str, Clock | None]] = WeakKeyDictionary()
        self._acknowledged: defaultdict[tuple[str, Clock | None], set[str]] = defaultdict(set)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch for as long as a block lasts."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(connect, "open", self._noting_opened(connect.open))
            for kind in (SqliteStore, PostgresStore):
                patch.setattr(kind, "enqueue", self._noting_answers(kind.enqueue))
            yield

    def broken(self) -> list[str]:
        """What does not hold of the stores that acknowledged anything."""
        found = []
        for (url, clock), acknowledged in list(self._acknowledged.items()):
            with contextlib.closing(connect.open(url, clock=clock, create=False)) as opened:
                found += broken(opened.store, acknowledged)
        return found

    def _noting_opened(self, open_store: Callable[..., connect.Opened]) -> Callable[..., connect.Opened]:
        def noted(url: str, *, clock: Clock | None = None, **options: Any) -> connect.Opened:
            opened = open_store(url, clock=clock, **options)
            if not opened.served and ":memory:" not in url:
                self._opened[opened.store] = url, clock
            return opened

        return noted

    def _noting_answers(self, enqueue: Callable[..., list[Enqueued]]) -> Callable[..., list[Enqueued]]:
        def noted(store: Store, *args: Any, **options: Any) -> list[Enqueued]:
            answers = enqueue(store, *args, **options)
            if (opened := self._opened.get(store)) is not None:
                self._acknowledged[opened].update(answer.id for answer in answers)
            return answers

        return noted
