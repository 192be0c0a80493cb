"""Counts of a large store are told to many, and made by few."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from tests.waiting import until
from windlass.job import JobState, View
from windlass.ops.overview import Counting
from windlass.store.jobs import Count, Counts

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Slow:
    """A store whose counts take as long as it is told."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.time, self.made = seconds, 1000.0, 0
        self.go = threading.Event()
        self.go.set()

    def clock(self) -> float:
        return self.time

    def count(self) -> Counts:
        self.go.wait()
        self.made += 1
        self.time += self.seconds
        due = Count("mail", JobState.PENDING, View.DUE, self.made, timedelta(seconds=5), 5)
        return Counts(NOON + timedelta(seconds=self.time), [due])


def test_cheap_counts_are_made_for_everybody() -> None:
    store = Slow(0.01)
    counting = Counting(store.count, store.clock)
    assert [counting().counts[0].count for _ in range(3)] == [1, 2, 3]


def test_dear_counts_are_told_again_with_their_ages_brought_up_to_now() -> None:
    store = Slow(1.0)
    counting = Counting(store.count, store.clock)
    first = counting()
    store.time += 7
    again = counting()
    assert store.made == 1
    assert again.now == first.now + timedelta(seconds=7)
    assert again.counts[0].oldest == timedelta(seconds=12)


def test_nobody_waits_while_dear_counts_are_made_anew() -> None:
    store = Slow(1.0)
    counting = Counting(store.count, store.clock)
    counting()
    store.time += 21
    store.go.clear()
    assert counting().counts[0].count == counting().counts[0].count == 1
    store.go.set()
    until(lambda: counting().counts[0].count == 2)
    assert store.made == 2


def test_who_finds_only_old_counts_waits_for_new_ones() -> None:
    store = Slow(1.0)
    counting = Counting(store.count, store.clock)
    counting()
    store.time += 61
    assert counting().counts[0].count == 2
