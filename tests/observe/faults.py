"""What makes each alert fire, and what mends it? On a real store whose time is in the test's hand.

Nothing here writes an alert's own numbers, but for one: what each does is done by the store's verbs and the
product's own parts, as a worker would call them. Those that take processes are in `test_real_faults.py`, too.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import cast

from tests.observe.scene import DEAD, MAIL, Stage, failed
from windlass.job import JobState, Reason
from windlass.observe import names
from windlass.payload import Ring
from windlass.registry import Options, make_handler
from windlass.server.observing import note_enqueue
from windlass.store.flow import BreakerState
from windlass.store.protocol import Filter
from windlass.upkeep.pruner import Pruner
from windlass.worker.coroutines import Coroutines
from windlass.worker.verifier import Verifier

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


def look(stage: Stage) -> None:
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


def _bad_release(stage: Stage) -> None:
    """Two releases side by side, of which the newer one fails."""
    for _ in range(3):
        stage.minutes(1)
        for release, outcome in (("1.0", None), ("1.1", failed(Reason.EXCEPTION))):
            stage.enqueue(8)
            stage.work(8, outcome, release=release)


def _slow_release(stage: Stage) -> None:
    """Two releases side by side, of which the newer one is slower."""
    for _ in range(3):
        stage.minutes(1)
        for release, ran in (("1.0", 1.0), ("1.1", 1.3)):
            stage.enqueue(50)
            stage.work(50, ran=ran, release=release)


def _completed_but_wrong(stage: Stage) -> None:
    """The handler says that it is done; its check, made by a real verifier, says that it is not."""

    def send(number: int) -> None:
        """Nothing is sent."""

    handler = make_handler(send, Options(name=MAIL, verify=lambda: False, sample=1))
    loop = cast("Coroutines", None)
    verifier = Verifier(stage.store, {MAIL: handler}, loop, lambda: Ring(()), stage.ledger)
    stage.enqueue(1)
    stage.work(1, check_in=timedelta(seconds=30))
    stage.minutes(1)
    verifier.tick()


def _prune(stage: Stage) -> None:
    """The pruner, which had stood still for ten days, goes on."""
    pruner = Pruner(stage.store)
    while pruner.tick() is not None:
        pass


def _discard_all(stage: Stage) -> None:
    for job in stage.store.find(Filter(states=(JobState.DEAD,))).jobs:
        stage.store.discard(job.id)


# What makes each alert fire, and what mends it.
FAULTS: dict[str, tuple[Step, Step]] = {
    "WindlassStoreAway": (_away, lambda stage: stage.find_again()),
    "WindlassNobodyLooks": (_nobody_looks, look),
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
    "WindlassReleaseFails": (_bad_release, _after(11)),
    "WindlassReleaseSlower": (_slow_release, _after(11)),
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
    "WindlassCompletedButWrong": (_completed_but_wrong, _after(11)),
    "WindlassRecordsNotPruned": (
        _both(_enqueue(1), _work(1), lambda stage: stage.clock.advance(10 * 86_400)),
        _prune,
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

# Not made by what would cause it: no store of ours allows it, so only its counts can be written.
COUNTED = {"WindlassMoreDoneThanCame"}
