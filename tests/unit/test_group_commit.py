"""Threads that enqueue at one moment share a statement; whatever becomes of one, the others go on."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.waiting import PATIENCE
from windlass.clock import uuid7
from windlass.errors import StoreUnavailable
from windlass.job import NewJob
from windlass.store import group_commit
from windlass.store.engine import Enqueued
from windlass.store.group_commit import GroupCommit, ListCall, write_lists


class Interrupted(BaseException):
    """What a timeout or a person throws into a thread."""


class Writer:
    """Stands for the store: writes when it is told to, and knows what came together."""

    def __init__(self) -> None:
        self.groups: list[int] = []
        self.entered = threading.Semaphore(0)
        self.go_on = threading.Semaphore(0)
        self.broken: BaseException | None = None

    def write(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        self.groups.append(len(jobs))
        self.entered.release()
        assert self.go_on.acquire(timeout=PATIENCE)
        if self.broken is not None:
            raise self.broken
        return [Enqueued(new.id, None, created=True, due=True) for new in jobs]


class Crowd:
    """Threads that enqueue one job each."""

    def __init__(self) -> None:
        self.writer = Writer()
        self.line: GroupCommit[ListCall] = GroupCommit("test", self._write, most=1000)
        self._waits = 0
        self._threads = ThreadPoolExecutor(8)

    def _write(self, group: list[ListCall]) -> None:
        self._waits -= len(group)
        write_lists(self.line.begin(group), self.writer.write, self.writer.write)

    def store(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """As the PostgreSQL store does it."""
        if self.line.is_free():
            with self.line.lead:
                return self.writer.write(jobs)
        answer: list[Enqueued] = self.line.run(ListCall(jobs), self._wait)
        return answer

    def _wait(self, call: ListCall) -> None:
        self._waits += 1
        call.wait()

    def enqueue(self) -> tuple[NewJob, Future[list[Enqueued]]]:
        job = NewJob(id=uuid7(), type="a", payload=b"{}")
        return job, self._threads.submit(self.store, [job])

    def waiting(self, count: int) -> bool:
        """Whether so many wait for the one who writes, as soon as they do."""
        pause = threading.Event()
        return any(self._waits == count or pause.wait(0.01) for _ in range(10_000))

    def written_together(self, count: int) -> list[tuple[NewJob, Future[list[Enqueued]]]]:
        """So many who waited while one wrote, and whose writing has begun."""
        first = self.enqueue()
        assert self.writer.entered.acquire(timeout=PATIENCE)
        others = [self.enqueue() for _ in range(count)]
        assert self.waiting(count)
        self.writer.go_on.release()
        assert first[1].result(PATIENCE)
        assert self.writer.entered.acquire(timeout=PATIENCE)
        return others

    def interrupt(self, call: Callable[[], object]) -> threading.Thread:
        """A thread that calls, and is interrupted as soon as it comes back from its wait."""

        def quietly() -> None:
            with pytest.raises(Interrupted):
                call()

        thread = threading.Thread(target=quietly)
        thread.start()
        return thread


def test_those_who_come_while_one_writes_are_written_together_and_each_gets_its_own_answer() -> None:
    crowd = Crowd()
    first = crowd.enqueue()
    assert crowd.writer.entered.acquire(timeout=PATIENCE)
    others = [crowd.enqueue() for _ in range(3)]
    assert crowd.waiting(3)
    crowd.writer.go_on.release(2)
    for job, answer in (first, *others):
        assert [each.id for each in answer.result(PATIENCE)] == [job.id]
    assert crowd.writer.groups == [1, 3]


def test_what_one_brought_who_is_interrupted_while_waiting_is_not_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_commit, "_LOOK_SECONDS", 0.01)
    crowd = Crowd()
    first = crowd.enqueue()
    assert crowd.writer.entered.acquire(timeout=PATIENCE)
    job = NewJob(id=uuid7(), type="a", payload=b"{}")
    thread = crowd.interrupt(lambda: crowd.store([job]))
    assert crowd.waiting(1)
    # It is raised when the wait ends: at the next look.
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Interrupted)
    )
    thread.join(PATIENCE)
    other = crowd.enqueue()
    assert crowd.waiting(2)
    crowd.writer.go_on.release(2)
    assert first[1].result(PATIENCE)
    assert other[1].result(PATIENCE)
    assert crowd.writer.groups == [1, 1]


def test_one_of_a_group_who_is_interrupted_keeps_nobody_behind_it_waiting() -> None:
    crowd = Crowd()
    first = crowd.enqueue()
    assert crowd.writer.entered.acquire(timeout=PATIENCE)
    leader = crowd.enqueue()
    assert crowd.waiting(1)
    job = NewJob(id=uuid7(), type="a", payload=b"{}")
    thread = crowd.interrupt(lambda: crowd.store([job]))
    assert crowd.waiting(2)
    last = crowd.enqueue()
    assert crowd.waiting(3)
    crowd.writer.go_on.release()
    assert first[1].result(PATIENCE)
    # The three are being written by now; the one in the middle goes, and cannot wake the last.
    assert crowd.writer.entered.acquire(timeout=PATIENCE)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Interrupted)
    )
    thread.join(PATIENCE)
    crowd.writer.go_on.release()
    assert leader[1].result(PATIENCE)
    assert last[1].result(PATIENCE)
    assert crowd.writer.groups == [1, 3]


def test_when_the_one_who_writes_is_interrupted_the_others_are_told_to_try_again() -> None:
    crowd = Crowd()
    others = crowd.written_together(3)
    crowd.writer.broken = Interrupted()
    crowd.writer.go_on.release()
    errors = [type(answer.exception(PATIENCE)) for _, answer in others]
    assert errors == [StoreUnavailable] * 3
    crowd.writer.broken = None
    crowd.writer.go_on.release()
    assert crowd.enqueue()[1].result(PATIENCE)


def test_nobody_waits_for_one_who_is_interrupted_while_it_writes_for_each_alone() -> None:
    crowd = Crowd()
    others = crowd.written_together(3)
    # Together they are refused, so each is written by itself; at the first of them the writer is struck.
    crowd.writer.broken = ValueError("one of them is known")
    crowd.writer.go_on.release()
    assert crowd.writer.entered.acquire(timeout=PATIENCE)
    crowd.writer.broken = Interrupted()
    crowd.writer.go_on.release()
    errors = [type(answer.exception(PATIENCE)) for _, answer in others]
    assert errors == [StoreUnavailable] * 3
