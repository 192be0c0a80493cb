"""Does each alert fire with its fault, and clear when that is mended? By its very expression, on scrapes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from tests.observe.scene import DEAD, MAIL, Stage, failed, staged
from windlass.job import JobState, Reason
from windlass.observe import gather, names
from windlass.observe.alerts import ALERTS, BY_NAME, Alert, first_noticed, holding, judge
from windlass.observe.promql import evaluate
from windlass.observe.sources import StoreSource
from windlass.server.observing import note_enqueue
from windlass.store.flow import BreakerState
from windlass.store.keeping import Retention
from windlass.store.protocol import Filter

Step = Callable[[Stage], object]


def _both(*steps: Step) -> Step:
    def all_of_them(stage: Stage) -> None:
        for step in steps:
            step(stage)

    return all_of_them


def _after(minutes: int) -> Step:
    return lambda stage: stage.minutes(minutes)


def _work(count: int, **how: object) -> Step:
    return lambda stage: stage.work(count, **how)  # type: ignore[arg-type]


def _enqueue(count: int, **how: object) -> Step:
    return lambda stage: stage.enqueue(count, **how)


def _look(stage: Stage) -> None:
    stage.look()


def _silence(stage: Stage) -> None:
    stage.worker("worker-2")
    stage.clock.advance(20)


def _three_die(stage: Stage) -> None:
    for name in ("a", "b", "c"):
        stage.worker(name)
    stage.reap("a", "b", "c")


def _poison(stage: Stage) -> None:
    stage.enqueue(4)
    stage.worker("victim")
    stage.claim(4, worker="victim")
    stage.reap("victim")


def _away(stage: Stage) -> None:
    stage.hide()
    stage.scrape()


def _nobody_looks(stage: Stage) -> None:
    stage.clock.advance(180)
    stage.scrape()


def _done_twice(stage: Stage) -> None:
    """Six results of a worker that everybody took for dead."""
    stage.enqueue(6)
    stage.worker("frozen")
    leases = stage.claim(6, worker="frozen")
    stage.reap("frozen")
    stage.settle(leases, DEAD)


def _more_done_than_came(stage: Stage) -> None:
    """One job, done again and again by a fault that no store would allow: only the counts can tell."""
    stage.store.add_history({(MAIL, names.COMPLETED): 1_100})


def _starve(stage: Stage) -> None:
    stage.enqueue(1, priority=0)
    stage.minutes(11)
    stage.enqueue(1, priority=9)
    stage.work(1)


def _throughput_falls(stage: Stage) -> None:
    for _ in range(10):
        stage.enqueue(60)
        stage.work(60)
        stage.minutes(5)
    stage.enqueue(101)
    stage.minutes(11)


def _slow_down(stage: Stage) -> None:
    stage.enqueue(142)
    stage.work(100, ran=1.0)
    stage.minutes(20)
    stage.work(42, ran=10.0)


def _enqueue_errors(stage: Stage) -> None:
    for status in (*[201] * 20, 429, 503):
        note_enqueue(stage.ledger, status, 0.01)


def _slow_start(stage: Stage) -> None:
    stage.enqueue(20)
    stage.minutes(2)
    stage.work(20)


def _discard_all(stage: Stage) -> None:
    for job in stage.store.find(Filter(states=(JobState.DEAD,))).jobs:
        stage.store.discard(job.id)


# What makes each alert fire, and what mends it.
FAULTS: dict[str, tuple[Step, Step]] = {
    "WindlassStoreAway": (_away, _look),
    "WindlassNobodyLooks": (_nobody_looks, _look),
    "WindlassNoWorkers": (
        _enqueue(1, type="orphaned"),
        lambda stage: stage.worker("worker-2", ("orphaned",)),
    ),
    "WindlassWorkerSilent": (_silence, lambda stage: stage.reap("worker-2")),
    "WindlassWorkersDie": (_three_die, _after(11)),
    "WindlassWorkerRestarts": (lambda stage: stage.ledger.count(names.RESTARTS, 4), _after(11)),
    "WindlassOutOfMemory": (
        _both(_enqueue(1), _work(1, outcome=failed(Reason.MEMORY_LIMIT))),
        _after(11),
    ),
    "WindlassPoisonJobs": (_poison, _after(31)),
    "WindlassDeadLetters": (
        _both(_enqueue(1), _work(1, outcome=DEAD)),
        _discard_all,
    ),
    "WindlassDeadLettersGrow": (_both(_enqueue(11), _work(11, outcome=DEAD)), _after(11)),
    "WindlassQueueDeep": (_enqueue(10_001), _work(2)),
    "WindlassQueueGrows": (_enqueue(1_001), _after(11)),
    "WindlassQueueOld": (_both(_enqueue(1), _after(11)), _work(1)),
    "WindlassHighPriorityWaits": (_enqueue(101, priority=9), _work(2)),
    "WindlassPriorityStarved": (_starve, _work(1)),
    "WindlassThroughputFell": (_throughput_falls, _work(101)),
    "WindlassRunsSlower": (_slow_down, _after(11)),
    "WindlassErrorRate": (
        _both(_enqueue(11), _work(11, outcome=failed(Reason.EXCEPTION))),
        _after(11),
    ),
    "WindlassEnqueueErrors": (_enqueue_errors, _after(6)),
    "WindlassEnqueueUnusual": (_enqueue(1_001), _after(11)),
    "WindlassBreakerOpen": (
        lambda stage: stage.store.set_breaker(MAIL, BreakerState.OPEN),
        lambda stage: stage.store.set_breaker(MAIL, BreakerState.CLOSED),
    ),
    "WindlassPausedWithJobs": (
        _both(_enqueue(1), lambda stage: stage.store.pause(MAIL)),
        lambda stage: stage.store.resume(MAIL),
    ),
    "WindlassDoneTwice": (_done_twice, _after(11)),
    "WindlassMoreDoneThanCame": (_more_done_than_came, _enqueue(200)),
    "WindlassCompletedButWrong": (
        lambda stage: stage.ledger.count_each([MAIL], names.MISMATCHED),
        _after(11),
    ),
    "WindlassRecordsNotPruned": (
        _both(_enqueue(1), _work(1), lambda stage: stage.clock.advance(10 * 86_400)),
        lambda stage: stage.store.prune(Retention()),
    ),
    "WindlassQueueingBurnsFast": (_slow_start, _after(10)),
    "WindlassQueueingBurnsSlowly": (_slow_start, _after(40)),
    "WindlassExecutionBurnsFast": (_both(_enqueue(20), _work(20, ran=301.0)), _after(10)),
    "WindlassExecutionBurnsSlowly": (_both(_enqueue(20), _work(20, ran=301.0)), _after(40)),
    "WindlassErrorsBurnsFast": (
        _both(_enqueue(20), _work(20, outcome=failed(Reason.TIMEOUT))),
        _after(10),
    ),
    "WindlassErrorsBurnsSlowly": (
        _both(_enqueue(20), _work(20, outcome=failed(Reason.TIMEOUT))),
        _after(40),
    ),
}


def test_every_alert_has_its_fault() -> None:
    assert set(FAULTS) == set(BY_NAME)
    assert len(BY_NAME) == len(ALERTS)


def fires(stage: Stage, alert: Alert) -> bool:
    """Whether the expression holds on what was scraped."""
    return bool(evaluate(alert.expression, stage.scrapes))


def fires_here(stage: Stage, alert: Alert) -> bool:
    """Whether it holds by the store's own history, as `windlass alerts` and the server judge."""
    held = holding(StoreSource(stage.store, gather.read_facts(stage.store)))
    return any(name == alert.name for name, _ in held)


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_an_alert_fires_with_its_fault_and_clears_when_it_is_mended(name: str, tmp_path: Path) -> None:
    alert, (fault, mend) = BY_NAME[name], FAULTS[name]
    with staged(tmp_path) as stage:
        stage.look()
        stage.clock.advance(30)
        stage.look()
        assert not fires(stage, alert)
        fault(stage)
        if name == "WindlassStoreAway":
            assert fires(stage, alert)
            assert any(name == alert.name for name, _ in holding(StoreSource(None, None)))
            with staged(tmp_path) as again:
                again.look()
                assert not fires(again, alert)
            return
        if name != "WindlassNobodyLooks":
            stage.look()
        assert fires(stage, alert)
        assert fires_here(stage, alert)
        mend(stage)
        stage.look()
        assert not fires(stage, alert)
        assert not fires_here(stage, alert)


def test_a_condition_that_has_not_held_for_long_enough_does_not_fire_yet(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        now = stage.store.now()
        deep = first_noticed(("WindlassQueueDeep", '{"type":"mail"}'), 10_001, now)
        assert not judge(deep, now + timedelta(minutes=4, seconds=59)).fires
        assert judge(deep, now + timedelta(minutes=5)).fires
        assert judge(deep, now).summary == "mail: more than 10,000 jobs are due"
