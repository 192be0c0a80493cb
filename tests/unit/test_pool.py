"""Slots, what waits for one, and how many jobs are worth claiming ahead."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from windlass.store.flow import Restriction
from windlass.worker.memory import MemoryBudget
from windlass.worker.pool import ENOUGH_RUNS, FORGOTTEN_AFTER, MOST_AHEAD, Pool, Prefetch
from windlass.worker.run import Run

NOW = 1000.0


def runs(count: int, *, received: float = 0.0) -> list[Run]:
    lease: Any = SimpleNamespace(token="token", job=SimpleNamespace(losses=0))
    handler: Any = SimpleNamespace(name="t", kind="thread")
    pool: Any = None
    return [Run(lease, handler, pool, received) for _ in range(count)]


def busy_pool(slots: int) -> tuple[Pool, list[Run]]:
    pool = Pool("threads", {"t": 1}, slots)
    running = pool.offer(runs(slots))
    assert len(running) == slots
    return pool, running


def test_a_pool_has_room_for_as_many_as_it_has_slots() -> None:
    pool = Pool("threads", {"t": 1}, 3)
    assert pool.room(NOW) == 3
    assert len(pool.offer(runs(2))) == 2
    assert (pool.room(NOW), pool.busy, pool.idle) == (1, 2, False)


def test_what_finds_no_slot_waits_and_starts_in_order_as_slots_come_free() -> None:
    pool, running = busy_pool(2)
    late = runs(2)
    assert pool.offer(late) == []
    assert len(pool.waiting) == 2
    assert pool.free(running[0], NOW, was_held=False) == late[:1]
    assert pool.free(running[1], NOW, was_held=False) == late[1:]
    assert len(pool.waiting) == 0


def test_a_held_slot_is_taken_but_not_busy_until_its_work_ends() -> None:
    pool, [running] = busy_pool(1)
    pool.hold()
    assert (pool.busy, pool.held, pool.room(NOW), pool.idle) == (0, 1, 0, True)
    pool.free(running, NOW, was_held=True)
    assert (pool.busy, pool.held, pool.room(NOW)) == (0, 0, 1)


def test_what_has_waited_too_long_can_be_taken_back() -> None:
    pool, [running] = busy_pool(1)
    old, new = runs(2, received=10.0), runs(1, received=11.0)
    pool.offer(old)
    pool.offer(new)
    assert pool.take_back(received_before=10.5) == old
    assert len(pool.waiting) == 1
    assert pool.free(running, NOW, was_held=False) == new


def test_a_run_that_never_started_says_nothing_about_how_long_jobs_take() -> None:
    pool = Pool("loop", {"t": 1}, 4)
    for run in runs(50):
        pool.offer([run])
        pool.free(run, NOW, was_held=False)
    assert pool.room(NOW) == 4


def test_a_pool_whose_jobs_are_short_has_room_for_more_than_its_slots() -> None:
    pool = Pool("loop", {"t": 1}, 4)
    for run in runs(ENOUGH_RUNS):
        pool.offer([run])
        run.started = NOW - 0.010
        pool.free(run, NOW, was_held=False)
    assert pool.room(NOW) > 4
    pool.offer(runs(pool.room(NOW)))
    assert not pool.low
    assert pool.room(NOW) == 0


# --- how many ahead ---


def prefetch_of(*seconds: float, job_type: str = "t", prefetch: Prefetch | None = None) -> Prefetch:
    prefetch = prefetch or Prefetch()
    for each in seconds:
        prefetch.note(job_type, each, NOW)
    return prefetch


@pytest.mark.parametrize(
    ("slots", "seconds", "ahead"),
    [(10, 0.020, 0), (10, 60.0, 0), (10, 0.010, 250), (1, 0.010, 25), (100, 0.0, MOST_AHEAD)],
)
def test_only_short_jobs_are_claimed_ahead_and_not_too_many(slots: int, seconds: float, ahead: int) -> None:
    assert prefetch_of(*[seconds] * 20).ahead(slots, NOW) == ahead


@pytest.mark.parametrize("known", [(), (0.0,), (0.0,) * (ENOUGH_RUNS - 1)])
def test_a_few_short_runs_prove_nothing(known: Iterable[float]) -> None:
    assert prefetch_of(*known).ahead(100, NOW) == 0


def test_one_long_type_ends_the_claiming_ahead_for_the_pool() -> None:
    prefetch = prefetch_of(*[0.001] * 100)
    assert prefetch.ahead(10, NOW) > 0
    prefetch_of(3.0, job_type="long", prefetch=prefetch)
    assert prefetch.ahead(10, NOW) == 0


def test_a_type_that_has_not_run_for_a_minute_no_longer_counts() -> None:
    prefetch = prefetch_of(3.0, job_type="long")
    later = NOW + FORGOTTEN_AFTER
    for _ in range(20):
        prefetch.note("short", 0.001, later)
    assert prefetch.ahead(10, later) > 0


def test_jobs_that_become_long_are_noticed_at_once_and_short_again_only_after_a_while() -> None:
    prefetch = prefetch_of(*[0.001] * 100)
    prefetch_of(1.0, prefetch=prefetch)
    assert prefetch.ahead(10, NOW) == 0
    prefetch_of(*[0.001] * 5, prefetch=prefetch)
    assert prefetch.ahead(10, NOW) == 0
    prefetch_of(*[0.001] * 50, prefetch=prefetch)
    assert prefetch.ahead(10, NOW) > 0


# --- limited jobs -------------------------------------------------------------------------------


def a_run(name: str = "t", *, priority: int = 5, limited: bool = False) -> Run:
    lease: Any = SimpleNamespace(token="token", job=SimpleNamespace(priority=priority, losses=0))
    handler: Any = SimpleNamespace(name=name, kind="thread")
    pool: Any = None
    return Run(lease, handler, pool, 0.0, Restriction(limits={}) if limited else None)


def quick_pool(slots: int) -> Pool:
    """One whose slots are taken and whose jobs are short, so that some are claimed ahead."""
    pool = Pool("threads", {"t": 1, "few": 1}, slots)
    for _ in range(ENOUGH_RUNS):
        pool.prefetch.note("t", 0.001, NOW)
    pool.offer(a_run() for _ in range(slots))
    return pool


def test_limited_jobs_have_a_share_though_others_are_claimed_ahead() -> None:
    pool = quick_pool(8)
    pool.offer(a_run() for _ in range(pool.room(NOW)))
    assert (pool.room(NOW), pool.vacant) == (0, 2)
    pool.offer([a_run("few", limited=True)])
    assert pool.vacant == 1


def test_where_nothing_is_claimed_ahead_limited_jobs_need_a_free_slot() -> None:
    pool = Pool("threads", {"few": 1}, 2)
    pool.room(NOW)
    assert pool.vacant == 2
    pool.offer(a_run("few", limited=True) for _ in range(2))
    assert pool.vacant == 0


def test_a_limited_job_goes_before_those_that_wait_but_for_more_urgent_ones() -> None:
    pool = quick_pool(1)
    urgent, usual, low = (a_run(priority=each) for each in (9, 5, 1))
    pool.offer([urgent, usual, low])
    first, second = (a_run("few", limited=True) for _ in range(2))
    pool.offer([first])
    pool.offer([second])
    order = []
    last = a_run()
    for _ in range(5):
        [last] = pool.free(last, NOW, was_held=False)
        order.append(last)
    assert order == [urgent, first, second, usual, low]


def test_long_limited_jobs_do_not_keep_short_ones_from_being_claimed_ahead() -> None:
    pool = quick_pool(2)
    before = pool.room(NOW)
    long = a_run("few", limited=True)
    long.started = NOW - 10
    pool.offer([long])
    pool.free(a_run(), NOW, was_held=False)
    pool.free(long, NOW, was_held=False)
    assert pool.room(NOW) == before + 1


def test_what_was_claimed_ahead_in_vain_makes_it_claim_less_ahead_for_a_while() -> None:
    prefetch = Prefetch()
    for _ in range(ENOUGH_RUNS):
        prefetch.note("t", 0.001, NOW)
    whole = prefetch.ahead(1, NOW)
    prefetch.miss(NOW)
    # What one tick gives back in pieces counts once.
    prefetch.miss(NOW + 0.5)
    assert prefetch.ahead(1, NOW) == whole // 2
    for second in range(1, 31):
        prefetch.miss(NOW + second)
    assert prefetch.ahead(1, NOW + 30) < whole / 50
    prefetch.note("t", 0.001, NOW + 60)
    assert prefetch.ahead(1, NOW + 60) == whole


def test_what_fits_the_memory_is_asked_for_together_and_only_the_rest_ahead() -> None:
    budget = MemoryBudget(1000)
    pool = Pool("all", {"t": 1, "big": 1, "huge": 1}, 4, budget=budget, memory={"big": 300, "huge": 900})
    assert list(pool.portions(NOW)) == [({"t": 1, "big": 1, "huge": 1}, 1), ({"t": 1}, 4)]
    budget.take(200)
    assert list(pool.portions(NOW)) == [({"t": 1, "big": 1}, 2), ({"t": 1}, 4), ({"huge": 1}, 0)]
    budget.take(800)
    assert list(pool.portions(NOW)) == [({"t": 1}, 4), ({"big": 1, "huge": 1}, 0)]


def test_a_job_that_keeps_memory_while_it_waits_goes_before_those_that_keep_nothing() -> None:
    pool = Pool("all", {"t": 1, "big": 1}, 1, budget=MemoryBudget(1000), memory={"big": 300})
    [last] = pool.offer([a_run()])
    usual, big = a_run(), a_run("big")
    assert pool.offer([usual, big]) == []
    assert pool.free(last, NOW, was_held=False) == [big]
    assert pool.free(big, NOW, was_held=False) == [usual]
