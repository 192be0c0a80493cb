"""When the records of ended jobs go: the pruner's ticks by hand, on a real store."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest

from tests.worker.scene import Still
from windlass.job import Job
from windlass.upkeep.maintenance import Pruner


def completed(still: Still, count: int = 1) -> list[Job]:
    still.build(threads=10)
    jobs = still.put(count)
    still.gate.let()
    while still.parts.settler.done < count:
        still.parts.triggers.hint()
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
    assert [record.__dict__["seconds"] // 86_400 for record in told] == [400, -400]


def test_a_clock_that_stays_where_it_was_set_is_believed(still: Still) -> None:
    job = dead(still)
    pruner = Pruner(still.store, clock=still.clock)
    still.clock.jump(timedelta(days=400))
    pruner.tick()
    assert exists(still, job)
    still.clock.advance(timedelta(hours=1))
    pruner.tick()
    assert not exists(still, job)


def test_that_the_clock_is_steady_is_known_to_processes_that_never_live_for_an_hour(still: Still) -> None:
    job = dead(still)
    still.clock.advance(timedelta(days=31))
    for _ in range(3):
        Pruner(still.store, clock=still.clock).catch_up(lambda: False)
        assert exists(still, job)
        still.clock.advance(timedelta(minutes=25))
    Pruner(still.store, clock=still.clock).catch_up(lambda: False)
    assert not exists(still, job)


def test_a_short_process_prunes_if_nobody_has_for_a_while(still: Still) -> None:
    [job] = completed(still)
    still.clock.advance(timedelta(days=8))
    still.store.note_ticks({"prune": timedelta(minutes=9)}, "somebody")
    Pruner(still.store, clock=still.clock).catch_up(lambda: False)
    assert exists(still, job)
    still.clock.advance(60)
    Pruner(still.store, clock=still.clock).catch_up(lambda: True)
    assert exists(still, job), "it was asked to stop"
    Pruner(still.store, clock=still.clock).catch_up(lambda: False)
    assert not exists(still, job)
    assert still.store.sight(timedelta(minutes=1)).ticks["prune"] == still.store.now()


def test_the_end_of_a_dead_letter_is_audited(still: Still) -> None:
    job = dead(still)
    pruner = Pruner(still.store, clock=still.clock)
    pruner.tick()
    still.clock.advance(timedelta(days=31))
    pruner.tick()
    [line] = still.store.audit(target=job.id, verb="prune").entries
    assert (line.who, line.kind, line.before) == ("retention", "job", {"type": job.type, "state": "dead"})


def test_workers_that_start_together_do_not_prune_together(still: Still) -> None:
    early, late = (Pruner(still.store, chance=partial(float, share)).loop for share in (0.0, 0.5))
    assert late._first - early._first == 300.0  # noqa: SLF001 - five minutes would be long to wait
