"""When the records of ended jobs go: the pruner's ticks by hand, on a real store."""

from __future__ import annotations

from datetime import timedelta

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


def test_workers_that_start_together_do_not_prune_together(still: Still) -> None:
    pruner = Pruner(still.store)
    early, late = pruner.loop(chance=lambda: 0.0), pruner.loop(chance=lambda: 0.5)
    assert late._first - early._first == 300.0  # noqa: SLF001 - five minutes would be long to wait
