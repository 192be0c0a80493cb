"""How many jobs wait? Looked at now and then, never with the enqueue."""

from __future__ import annotations

from datetime import timedelta

from tests.conformance.scene import DONE, MAIL, REPORT, a_job, put, settle, take
from windlass.clock import ManualClock
from windlass.store.flow import Depths
from windlass.store.store import Store

OLD = timedelta(seconds=10)


def test_what_was_never_counted_says_so(store: Store) -> None:
    assert store.depths() == Depths()


def test_waiting_jobs_count_by_type_and_running_or_ended_ones_do_not(store: Store, other: Store) -> None:
    put(store, *(a_job() for _ in range(5)), a_job(delay=timedelta(hours=1)), a_job(type=REPORT))
    running, ended = take(store, 2, types={MAIL: 1})
    assert running.id != ended.id
    settle(store, ended, DONE)
    counted = store.take_sample(OLD).depths()
    assert counted.pending == {MAIL: 4, REPORT: 1}
    assert other.depths() == Depths(pending={MAIL: 4, REPORT: 1}, at=store.now(), age=timedelta(0))


def test_a_count_that_is_fresh_enough_is_not_made_again(store: Store, clock: ManualClock) -> None:
    store.take_sample(OLD)
    put(store, a_job())
    clock.advance(9)
    assert store.take_sample(OLD).depths().pending == {}
    clock.advance(2)
    assert store.take_sample(OLD).depths().pending == {MAIL: 1}
    assert store.depths().age == timedelta(0)


def test_a_count_from_before_the_clock_was_set_back_is_old(store: Store, clock: ManualClock) -> None:
    store.take_sample(OLD)
    put(store, a_job())
    clock.jump(timedelta(hours=-1))
    assert store.take_sample(OLD).depths().pending == {MAIL: 1}


def test_a_type_of_which_nothing_waits_any_more_is_not_named(store: Store, clock: ManualClock) -> None:
    put(store, a_job())
    store.take_sample(OLD)
    take(store)
    clock.advance(11)
    assert store.take_sample(OLD).depths().pending == {}
