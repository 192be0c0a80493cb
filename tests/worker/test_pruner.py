"""When the records of ended jobs go: the pruner's ticks by hand, on a real store."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.worker.scene import Still
from windlass.job import Job
from windlass.upkeep.pruner import Pruner


def completed(still: Still, count: int = 1) -> list[Job]:
    still.build(threads=10)
    jobs = still.put(count)
    still.gate.let()
    while still.parts.settler.done < count:
        still.parts.claimer.hint()
        still.parts.claimer.tick()
        still.until(still.parts.idle)
        still.settle()
    return jobs


def exists(still: Still, job: Job) -> bool:
    return still.store.get(job.id) is not None


def test_a_completed_job_is_kept_for_seven_days_and_then_goes(still: Still) -> None:
    [job] = completed(still)
    pruner = Pruner(still.store)
    still.clock.advance(timedelta(days=7, seconds=-1))
    assert pruner.tick() is None
    assert exists(still, job)
    still.clock.advance(2)
    assert pruner.tick() is not None
    assert not exists(still, job)


def test_an_operator_says_how_long_records_are_kept(still: Still) -> None:
    [job] = completed(still)
    still.store.set_setting("keep_ended", "1h")
    still.clock.advance(timedelta(minutes=61))
    Pruner(still.store).tick()
    assert not exists(still, job)


def test_much_goes_in_batches_with_a_pause_between(still: Still) -> None:
    completed(still, 1100)
    still.clock.advance(timedelta(days=8))
    pruner = Pruner(still.store)
    answers = [pruner.tick() for _ in range(3)]
    assert answers[0] is not None
    assert answers[0] > 0
    assert answers[-1] is None
    assert still.store.status().archived == 0


def dead(still: Still) -> Job:
    [job] = still.put()
    still.store.bury(job.id)
    return job


def test_a_dead_letter_is_kept_for_thirty_days_and_then_goes(still: Still) -> None:
    job = dead(still)
    pruner = Pruner(still.store, clock=still.clock)
    pruner.tick()
    still.clock.advance(timedelta(days=30, seconds=-1))
    pruner.tick()
    assert exists(still, job)
    still.clock.advance(2)
    pruner.tick()
    assert not exists(still, job)


def test_a_clock_that_is_set_wrong_and_mended_costs_no_dead_letter(
    still: Still, caplog: pytest.LogCaptureFixture
) -> None:
    job = dead(still)
    pruner = Pruner(still.store, clock=still.clock)
    still.clock.advance(timedelta(hours=2))
    pruner.tick()
    still.clock.jump(timedelta(days=400))
    for _ in range(5):
        pruner.tick()
        still.clock.advance(timedelta(minutes=10))
    assert exists(still, job)
    # Somebody who has just started cannot tell, and does not act on it either.
    newcomer = Pruner(still.store, clock=still.clock)
    newcomer.tick()
    assert exists(still, job)
    still.clock.jump(-timedelta(days=400))
    for _ in range(10):
        pruner.tick()
        newcomer.tick()
        still.clock.advance(timedelta(minutes=10))
    assert exists(still, job)
    told = [record for record in caplog.records if record.getMessage() == "store.clock_jumped"]
    assert [record.__dict__["seconds"] // 86_400 for record in told] == [400, -400, -400]


def test_a_clock_that_stays_where_it_was_set_is_believed(still: Still) -> None:
    job = dead(still)
    pruner = Pruner(still.store, clock=still.clock)
    still.clock.jump(timedelta(days=400))
    pruner.tick()
    assert exists(still, job)
    still.clock.advance(timedelta(hours=1))
    pruner.tick()
    assert not exists(still, job)


def test_workers_that_start_together_do_not_prune_together(still: Still) -> None:
    pruner = Pruner(still.store)
    early, late = pruner.loop(chance=lambda: 0.0), pruner.loop(chance=lambda: 0.5)
    assert late._first - early._first == 300.0  # noqa: SLF001 - five minutes would be long to wait
