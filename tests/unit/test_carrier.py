"""Does an operation come to its end, once for each job, whatever happens to the process that carries it?"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.servers import sqlite
from windlass import connect
from windlass.clock import ManualClock, SystemClock, uuid7
from windlass.connect import Opened
from windlass.errors import StoreUnavailable
from windlass.job import JobState, NewJob, TypeInfo
from windlass.ops import Ops
from windlass.ops.bulk import LEASE, Carrier
from windlass.ops.doctor import checkup, diagnoses
from windlass.store.jobs import Filter
from windlass.store.operations import State

ALL = Filter(types=("mail",))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def opened(tmp_path: Path, clock: ManualClock) -> Iterator[Opened]:
    opened = connect.open(sqlite.prepared(tmp_path / "jobs.db", ManualClock), clock=clock)
    opened.store.register([TypeInfo(name="mail", schema={})])
    yield opened
    opened.close()


@pytest.fixture
def ops(opened: Opened, clock: ManualClock) -> Ops:
    return Ops(opened.store, wakeup=opened.wakeup, by="ann", clock=clock)


def enqueue(ops: Ops, count: int) -> list[str]:
    jobs = [NewJob(id=uuid7(), type="mail", payload=b"{}") for _ in range(count)]
    return [each.id for each in ops.store.enqueue(jobs)]


def carrier(ops: Ops, clock: ManualClock) -> Carrier:
    return Carrier(ops.store, None, clock=clock)


def run_to_the_end(carrier: Carrier) -> None:
    while carrier.tick() is not None:
        pass


def cancels(ops: Ops) -> Counter[str]:
    """How often each job was cancelled, as the audit log has it."""
    page = ops.audit(verb="cancel", limit=1000)
    return Counter(entry.target for entry in page.entries)


def breaking_after(count: int, verb: Callable[..., Any]) -> Callable[..., Any]:
    """The verb, which does its work and fails after `count` calls, as if the process was killed."""
    lock, left = threading.Lock(), [count]

    def broken(*args: Any, **kwargs: Any) -> Any:
        with lock:
            left[0] -= 1
            if left[0] < 0:
                raise StoreUnavailable("killed")
        return verb(*args, **kwargs)

    return broken


@pytest.mark.parametrize("survived", [0, 1, 150, 199])
def test_what_a_killed_carrier_has_begun_is_finished_once_by_the_next(
    ops: Ops, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, survived: int
) -> None:
    jobs = enqueue(ops, 450)
    begun = ops.operations.start("cancel", ALL)
    first = carrier(ops, clock)
    with monkeypatch.context() as broken:
        broken.setattr(ops.store, "cancel", breaking_after(survived, ops.store.cancel))
        with pytest.raises(StoreUnavailable):
            first.tick()
    second = carrier(ops, clock)
    assert second.tick() is None, "the lease still holds"
    clock.advance(LEASE)
    run_to_the_end(second)
    ended = ops.operations.show(begun.id)
    assert (ended.state, ended.reached.matched, ended.reached.done) == (State.DONE, 450, 450)
    assert cancels(ops) == Counter(jobs)
    # The first one was only frozen. What it still does is done already, and it lets go.
    assert first.tick() is not None
    assert first.tick() is None
    assert cancels(ops) == Counter(jobs)
    assert ops.operations.show(begun.id) == ended


def test_a_carrier_goes_on_by_itself_when_the_store_is_back(
    ops: Ops, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = enqueue(ops, 300)
    begun, here = ops.operations.start("cancel", ALL), carrier(ops, clock)
    for verb in ("next_jobs", "advance_operation", "cancel"):
        with monkeypatch.context() as broken:
            broken.setattr(ops.store, verb, breaking_after(0, getattr(ops.store, verb)))
            with pytest.raises(StoreUnavailable):
                here.tick()
    run_to_the_end(here)
    assert ops.operations.show(begun.id).reached.done == 300
    assert cancels(ops) == Counter(jobs)


def test_a_rate_holds_and_a_slow_operation_does_not_hold_up_a_fast_one(ops: Ops, clock: ManualClock) -> None:
    enqueue(ops, 40)
    slow = ops.operations.start("priority", ALL, rate=0.5, priority=9)
    fast = ops.operations.start("reschedule", ALL, delay=timedelta(hours=1))
    here = carrier(ops, clock)
    rests = []
    for _ in range(10):
        rests.append(here.tick() or 0.0)
        clock.advance(1.0)
    assert ops.operations.show(fast.id).reached.done == 40
    assert ops.operations.show(slow.id).reached.done == 5
    assert max(rests) == 1.0
    # While it rests no other process takes it.
    assert carrier(ops, clock).tick() is None


def test_pause_and_stop_are_obeyed_with_the_next_chunk(ops: Ops, clock: ManualClock) -> None:
    enqueue(ops, 500)
    begun, here = ops.operations.start("cancel", ALL), carrier(ops, clock)
    here.tick()
    ops.operations.pause(begun.id, why="look first")
    assert here.tick() is None
    paused = ops.operations.show(begun.id)
    assert (paused.state, paused.reached.done) == (State.PAUSED, 200)
    assert here.tick() is None
    ops.operations.resume(begun.id)
    here.tick()
    ops.operations.stop(begun.id)
    assert here.tick() is None
    stopped = ops.operations.show(begun.id)
    assert (stopped.state, stopped.reached.done) == (State.STOPPED, 400)
    assert ops.status().counts["due"] == 100


def test_what_is_let_go_is_carried_on_by_another_at_once(ops: Ops, clock: ManualClock) -> None:
    jobs = enqueue(ops, 300)
    begun, here = ops.operations.start("cancel", ALL), carrier(ops, clock)
    here.tick()
    here.let_go()
    run_to_the_end(carrier(ops, clock))
    assert ops.operations.show(begun.id).reached.done == 300
    assert cancels(ops) == Counter(jobs)


def test_an_operation_that_meets_a_bug_fails_and_the_others_go_on(
    ops: Ops, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue(ops, 3)
    wrong, right = ops.operations.start("bury", ALL), ops.operations.start("priority", ALL, priority=1)

    def buggy(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(ops.store, "bury", buggy)
    run_to_the_end(carrier(ops, clock))
    failed = ops.operations.show(wrong.id)
    assert (failed.state, failed.error) == (State.FAILED, "ZeroDivisionError: a bug")
    assert ops.operations.show(right.id).state is State.DONE


def test_a_request_with_an_id_is_one_operation(opened: Opened, clock: ManualClock) -> None:
    asked = [Ops(opened.store, by="ann", clock=clock, request_id="r1").operations for _ in range(2)]
    one, two = (each.start("cancel", ALL) for each in asked)
    assert one == two


def test_the_arguments_of_an_action_come_back_as_they_were(ops: Ops, clock: ManualClock) -> None:
    [job] = enqueue(ops, 1)
    when = ops.now() + timedelta(hours=5)
    ops.operations.start("reschedule", ALL, run_at=when, delay=None)
    run_to_the_end(carrier(ops, clock))
    assert ops.show(job).run_at == when
    assert ops.show(job).state is JobState.PENDING


def test_status_and_doctor_name_an_operation_that_no_process_carries(ops: Ops, clock: ManualClock) -> None:
    begun = ops.operations.start("cancel", ALL)
    clock.advance(timedelta(minutes=10))
    assert ops.status().warnings == []
    clock.advance(60)
    said = f"Operation {begun.id} (cancel) makes no progress, for 11m"
    assert ops.status().warnings == [f"{said}: windlass operation show {begun.id} --follow"]
    [found] = [each for each in diagnoses(checkup(ops, clock)) if each.name == "operations"]
    assert (found.level, found.sentence) == ("warning", said)
    ops.operations.pause(begun.id)
    assert ops.status().warnings == []


def test_the_loop_of_a_carrier_does_the_work(tmp_path: Path) -> None:
    opened = connect.open(sqlite.prepared(tmp_path / "jobs.db", SystemClock))
    ops = Ops(opened.store, by="ann")
    enqueue(ops, 5)
    beside = Carrier(opened.store, opened.wakeup)
    beside.loop.start()
    begun = ops.operations.start("cancel", ALL)
    assert ops.operations.follow(begun.id).reached.done == 5
    beside.stop(5.0)
    opened.close()
