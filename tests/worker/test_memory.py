"""Does a type that needs much memory get it, though smaller ones would always take what comes free?"""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.worker.scene import LEASE, Still
from windlass.store.engine import Want
from windlass.worker.memory import MemoryBudget, MemoryReservation
from windlass.worker.pool import Pool

NEEDS = {"light": 100, "big": 900}
EVERYTHING = {"light": 1, "big": 1}


class Stage:
    """A budget of which light jobs have taken a part, so that a big one does not fit."""

    def __init__(self, still: Still) -> None:
        self.still = still
        self.budget = MemoryBudget(1000)
        self.pool = Pool("all", EVERYTHING, 8, budget=self.budget, memory=NEEDS)
        self.keeping = MemoryReservation(still.store, [self.pool], clock=still.clock)
        self.budget.take(200)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and somebody look at where jobs stand."""
        self.still.clock.advance(seconds)
        self.still.store.take_sample(timedelta(0))

    def light_starts(self, **fields: int) -> None:
        """A light job is claimed."""
        self.still.put(1, "light", **fields)
        want = Want(worker="w", types={"light": 1}, limit=1, lease=LEASE)
        self.keeping.took(self.still.store.claim(want).leases)

    def look(self) -> str:
        """Which type memory is kept for after a look."""
        self.keeping.look(lambda _: False)
        return self.budget.reserved_for

    def portions(self) -> list[tuple[dict[str, int], int]]:
        return list(self.pool.portions(self.still.clock.monotonic()))


@pytest.fixture
def stage(still: Still) -> Stage:
    return Stage(still)


def test_what_has_waited_for_long_while_others_went_before_it_has_memory_kept(stage: Stage) -> None:
    stage.still.put(1, "big")
    stage.pass_time(29)
    stage.light_starts()
    assert stage.look() == "", "it has not waited for long"
    stage.pass_time(10)
    stage.light_starts()
    assert stage.look() == "big"
    # Nothing that is smaller is asked for, until there is room.
    assert stage.portions() == [(EVERYTHING, 0)]
    stage.pass_time(10)
    assert stage.look() == "big", "nobody passes it any more, and it waits"
    stage.budget.give_back(200)
    assert stage.portions() == [({"big": 1}, 1), ({"light": 1}, 1), ({"big": 1}, 0)]
    assert stage.keeping.asked({"big": 1}, [])
    assert (stage.budget.reserved_for, stage.budget.spare) == ("", 1000)


def test_memory_beyond_what_is_kept_is_for_everybody(stage: Stage) -> None:
    stage.budget.reserve("big", 700)
    assert stage.portions() == [({"light": 1}, 1), ({"big": 1}, 0)]


def test_small_ones_go_on_while_a_large_one_runs_and_the_next_one_waits(stage: Stage) -> None:
    stage.budget.give_back(200)
    stage.budget.take(900, "big")
    stage.budget.reserve("big", 900)
    assert stage.portions() == [({"light": 1}, 1), ({"big": 1}, 0)]
    stage.budget.take(100, "light")
    assert stage.portions() == [(EVERYTHING, 0)]
    stage.budget.give_back(900, "big")
    assert stage.portions()[0] == ({"big": 1}, 1), "it fits beside whatever was let in"


def test_who_lacks_a_slot_keeps_no_memory_from_others(stage: Stage) -> None:
    stage.still.put(1, "big")
    stage.pass_time(60)
    stage.light_starts()
    assert stage.look() == "big"
    stage.budget.give_back(200)
    stage.pass_time(10)
    assert stage.look() == "big", "there may be room for it since this very moment"
    stage.pass_time(10)
    assert stage.look() == "", "there has been room for a while, and nobody asked for it"


def test_more_urgent_jobs_go_first_whatever_they_need(stage: Stage) -> None:
    stage.still.put(1, "big", priority=5)
    stage.pass_time(60)
    stage.light_starts(priority=6)
    assert stage.look() == ""
    stage.pass_time(10)
    stage.light_starts(priority=5)
    assert stage.look() == "big"


def test_nothing_is_kept_any_more_when_more_urgent_ones_come(stage: Stage) -> None:
    stage.still.put(1, "big")
    stage.pass_time(60)
    stage.light_starts()
    assert stage.look() == "big"
    [urgent] = stage.still.put(1, "light", priority=9)
    stage.pass_time(10)
    assert stage.look() == ""
    stage.still.store.cancel(urgent.id)
    stage.pass_time(10)
    stage.light_starts()
    assert stage.look() == "big"
    stage.still.put(1, "light", priority=9)
    stage.pass_time(40)
    assert stage.look() == "big", "it is not memory that the urgent one has waited for so long"


def test_nothing_is_kept_for_who_does_not_wait_or_may_not_run(stage: Stage) -> None:
    stage.light_starts()
    stage.pass_time(60)
    assert stage.look() == "", "no big job is there"
    [big] = stage.still.put(1, "big")
    stage.pass_time(60)
    stage.light_starts()
    stage.keeping.look(lambda job_type: job_type == "big")
    assert stage.budget.reserved_for == "", "its type is paused"
    stage.pass_time(10)
    stage.light_starts()
    assert stage.look() == "big"
    stage.still.store.cancel(big.id)
    stage.pass_time(10)
    assert stage.look() == "", "it is gone"


def test_who_was_asked_for_in_vain_has_nothing_kept_for_ever_longer(stage: Stage) -> None:
    stage.still.put(1, "big")
    stage.pass_time(60)
    stage.light_starts()
    assert stage.look() == "big"
    assert not stage.keeping.asked({"light": 1}, [])
    assert stage.budget.reserved_for == "big", "others were asked for"
    for looks in (3, 6):
        stage.keeping.asked({"big": 1}, [])
        kept = []
        for _ in range(looks):
            stage.pass_time(10)
            stage.light_starts()
            kept.append(stage.look())
        assert kept == [*[""] * (looks - 1), "big"]


def test_a_worker_without_such_types_looks_at_nothing(still: Still) -> None:
    keeping = MemoryReservation(still.store, [Pool("all", {"t": 1}, 1)], clock=still.clock)
    keeping.took([])
    assert not keeping.asked({"t": 1}, [])
    assert not keeping.look(lambda _: False)
