"""What makes each alert fire, and what fixes it? On a real store whose time is in the test's hand.

Nothing here writes an alert's own numbers, but for one: what each does is done by the store's verbs and the
product's own parts, as a worker would call them. Those that take processes are in `test_real_faults.py`, too.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from datetime import timedelta
from typing import cast

from tests.observe.scene import DEAD, MAIL, REPORT, Stage, failed, unread
from windlass import Queue
from windlass.cli.fleet import HandBack
from windlass.job import JobState, Reason
from windlass.observe import names
from windlass.ops.access import KeyWish
from windlass.payload import Ring
from windlass.registry import Options, make_handler
from windlass.server.app import note_enqueue
from windlass.store.flow import BreakerState
from windlass.store.jobs import Filter
from windlass.upkeep.maintenance import Pruner
from windlass.worker.children.process_tree import OomWatch
from windlass.worker.coroutines import Coroutines
from windlass.worker.health import Health
from windlass.worker.supervisor import Death
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


def _one_dies(stage: Stage) -> None:
    """A worker is killed while the queue is empty."""
    stage.worker("worker-2")
    stage.reap("worker-2")


def _three_die(stage: Stage) -> None:
    for name in ("a", "b", "c"):
        stage.worker(name)
    stage.reap("a", "b", "c")


def _poison(stage: Stage) -> None:
    stage.enqueue(4)
    stage.worker("victim")
    stage.claim(4, worker="victim")
    stage.reap("victim")


def _replayed_in_vain(stage: Stage) -> None:
    stage.enqueue(1)
    stage.work(1, outcome=DEAD)
    for _ in range(3):
        [job] = stage.store.find(Filter(states=(JobState.DEAD,))).jobs
        stage.store.replay(job.id)
        stage.work(1, outcome=DEAD)


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


def _deep_in_all(stage: Stage) -> None:
    """No type alone has too many."""
    stage.enqueue(5_001)
    stage.enqueue(5_000, type=REPORT)


def _oscillate(stage: Stage) -> None:
    """Every job is claimed and lost again, as with leases that are too short."""
    stage.enqueue(200)
    stage.look()
    for number in range(4):
        stage.worker(f"frozen-{number}")
        stage.claim(200, worker=f"frozen-{number}")
        stage.minutes(1)
        stage.reap(f"frozen-{number}")
        stage.minutes(1)


def _service_floods(stage: Stage) -> None:
    """As the server counts what comes with a service's key."""
    stage.ops.create_key(KeyWish(name="shop", roles=("producer",)))
    stage.minutes(1)
    stage.ledger.count(names.of_service("shop", names.ENQUEUED), 1_001)


def _worker_killed_for_memory(stage: Stage) -> None:
    """A supervisor sees one of its workers killed, and the kernel counts that it was for memory."""
    counts = iter((7, 8))
    queue = Queue(stage.url, clock=stage.clock)
    oom = OomWatch(lambda: next(counts))
    try:
        HandBack(queue, oom).after(Death(pid=2**22 + 1, place=1, code=-signal.SIGKILL))
    finally:
        queue.close()


def _probe(*, ok: bool) -> Step:
    def probed(stage: Stage) -> None:
        stage.probed = Health(ok=ok, worker="worker-1", why="" if ok else "the store does not answer")

    return probed


# What makes each alert fire, and what fixes it.
FAULTS: dict[str, tuple[Step, Step]] = {
    "WindlassStoreAway": (_away, lambda stage: stage.find_again()),
    "WindlassNobodyLooks": (_nobody_looks, look),
    "WindlassNoWorkers": (
        _enqueue(1, type="orphaned"),
        lambda stage: stage.worker("worker-2", ("orphaned",)),
    ),
    "WindlassWorkerSilent": (_silence, lambda stage: stage.reap("worker-2")),
    "WindlassWorkerUnhealthy": (_probe(ok=False), _probe(ok=True)),
    "WindlassWorkerMissing": (_one_dies, lambda stage: stage.worker("worker-3")),
    "WindlassWorkersDie": (_three_die, _after(11)),
    "WindlassWorkerRestarts": (lambda stage: stage.ledger.count(names.RESTARTS, 4), _after(11)),
    "WindlassOutOfMemory": (
        _both(_enqueue(1), _work(1, outcome=failed(Reason.MEMORY_LIMIT))),
        _after(11),
    ),
    "WindlassWorkerOutOfMemory": (_worker_killed_for_memory, _after(11)),
    "WindlassPoisonJobs": (_poison, _after(31)),
    "WindlassUnreadable": (
        _both(_enqueue(1), _work(1, outcome=unread())),
        lambda stage: stage.worker("worker-2", reader="new"),
    ),
    "WindlassDeadLetters": (
        _both(_enqueue(1), _work(1, outcome=DEAD)),
        _discard_all,
    ),
    "WindlassReplaysFail": (_replayed_in_vain, _discard_all),
    "WindlassDeadLettersGrow": (_both(_enqueue(11), _work(11, outcome=DEAD)), _after(11)),
    "WindlassQueueDeep": (_enqueue(10_001), _work(2)),
    "WindlassQueueDeepInAll": (_deep_in_all, _work(2)),
    "WindlassQueueGrows": (_both(_after(11), _enqueue(1_001)), _work(1_001)),
    "WindlassQueueOscillates": (_oscillate, _after(31)),
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
    "WindlassServiceUnusual": (_service_floods, _after(11)),
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

# Seen at a worker's health address alone: the server and `windlass alerts` cannot know.
PROBED = {"WindlassWorkerUnhealthy"}
# Not made by what would cause it: no store of ours allows it, so only its counts can be written.
COUNTED = {"WindlassMoreDoneThanCame"}
