"""Do times keep their meaning, and do ids keep their order?"""

from __future__ import annotations

import multiprocessing
import threading
import uuid
from datetime import UTC, datetime, timedelta, timezone
from multiprocessing.connection import Connection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.waiting import PATIENCE
from windlass.clock import ManualClock, SystemClock, from_micros, span, to_micros, uuid7

MANY = 20_000


# --- times --------------------------------------------------------------------------------------


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_time_comes_back_to_the_microsecond(moment: datetime) -> None:
    assert from_micros(to_micros(moment)) == moment


def test_a_time_without_a_zone_is_utc() -> None:
    assert to_micros(datetime(2026, 5, 6, 7)) == to_micros(datetime(2026, 5, 6, 7, tzinfo=UTC))  # noqa: DTZ001 - the case at hand


def test_a_time_of_another_zone_is_the_same_instant() -> None:
    east = datetime(2026, 5, 6, 9, tzinfo=timezone(timedelta(hours=2)))
    assert to_micros(east) == to_micros(datetime(2026, 5, 6, 7, tzinfo=UTC))
    assert from_micros(to_micros(east)).tzinfo is UTC


@given(st.timedeltas(), st.timedeltas())
def test_spans_keep_the_order_of_durations(one: timedelta, other: timedelta) -> None:
    assert (span(one) < span(other)) == (one < other)


def test_the_system_clocks_only_rise() -> None:
    clock = SystemClock()
    for read in (clock.monotonic, clock.uptime):
        readings = [read() for _ in range(1000)]
        assert readings == sorted(readings)


def test_a_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(datetime(2026, 5, 6, tzinfo=UTC))
    before = (clock.micros(), clock.monotonic(), clock.uptime())
    assert (clock.micros(), clock.monotonic(), clock.uptime()) == before
    clock.advance(1.5)
    clock.advance(timedelta(seconds=1))
    assert from_micros(clock.micros()) == datetime(2026, 5, 6, 0, 0, 2, 500_000, tzinfo=UTC)
    assert clock.monotonic() == clock.uptime() == 2.5


def test_a_jump_of_the_wall_clock_leaves_the_rising_clocks_alone() -> None:
    clock = ManualClock()
    wall = clock.micros()
    clock.jump(timedelta(hours=-3))
    assert clock.micros() == wall - span(timedelta(hours=3))
    assert clock.monotonic() == clock.uptime() == 0


# --- ids ----------------------------------------------------------------------------------------


def test_an_id_is_a_uuid_of_version_seven_in_its_usual_spelling() -> None:
    made = uuid7()
    parsed = uuid.UUID(made)
    assert str(parsed) == made
    assert parsed.version == 7
    assert parsed.variant == uuid.RFC_4122


def test_an_id_carries_the_time_of_its_making() -> None:
    clock = SystemClock()
    before = clock.micros() // 1000
    millis = uuid.UUID(uuid7()).int >> 80
    # A process that made many ids in one millisecond may have counted a little ahead.
    assert before <= millis <= clock.micros() // 1000 + 5


def test_the_ids_of_a_process_rise_and_never_repeat() -> None:
    made = [uuid7() for _ in range(MANY)]
    assert made == sorted(set(made))


def test_ids_rise_on_after_the_wall_clock_stepped_back(monkeypatch: pytest.MonkeyPatch) -> None:
    before = uuid7()
    monkeypatch.setattr("windlass.clock.time.time_ns", lambda: 1_000_000_000)
    made = [uuid7() for _ in range(1000)]
    assert [before, *made] == sorted({before, *made})


def test_ids_of_many_threads_never_repeat() -> None:
    start = threading.Barrier(8)
    made: list[list[str]] = []

    def make() -> None:
        start.wait(PATIENCE)
        made.append([uuid7() for _ in range(MANY // 8)])

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len({one for ids in made for one in ids}) == MANY
    assert all(ids == sorted(ids) for ids in made)


def test_ids_made_after_a_fork_differ_from_the_parents() -> None:
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    uuid7()
    child = fork.Process(target=_send_ids, args=(sender,))
    child.start()
    mine = [uuid7() for _ in range(1000)]
    theirs = receiver.recv()
    child.join(PATIENCE)
    assert not set(mine) & set(theirs)


def test_a_fork_while_another_thread_makes_ids_leaves_the_child_able_to() -> None:
    fork = multiprocessing.get_context("fork")
    stop = threading.Event()

    def make() -> None:
        while not stop.is_set():
            uuid7()

    busy = threading.Thread(target=make)
    busy.start()
    try:
        for _ in range(20):
            receiver, sender = fork.Pipe(duplex=False)
            child = fork.Process(target=_send_ids, args=(sender,))
            child.start()
            assert receiver.poll(PATIENCE), "the child waits for a lock that its parent held"
            receiver.recv()
            child.join(PATIENCE)
    finally:
        stop.set()
        busy.join(PATIENCE)


def _send_ids(sender: Connection) -> None:
    sender.send([uuid7() for _ in range(1000)])
