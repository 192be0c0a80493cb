"""Every alert: its condition, its severity, and its runbook entry.

The rule file, `windlass alerts` and the webhook all come from this table. Its conditions are judged by
the store's own values, and in the rule file by Prometheus; the tests compare both on the same scenes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from enum import StrEnum
from functools import partial

import msgspec

from windlass.duration import parse_duration
from windlass.observe.measures import Expression, delta, increase, now, rate

RUNBOOK = "docs/runbook.md"


class Severity(StrEnum):
    """How soon a person should look."""

    # Now, at any hour.
    PAGE = "page"
    # In working hours.
    WARNING = "warning"


class Alert(msgspec.Struct, frozen=True):
    """A condition, and for how long it must hold before it fires."""

    name: str
    severity: Severity
    # As Prometheus writes it.
    after: str
    # The entry of the runbook.
    anchor: str
    condition: Expression
    # What is wrong, in one line; {type} and other labels are filled in.
    summary: str

    @property
    def lasting(self) -> timedelta:
        """For how long the condition must hold."""
        return parse_duration(self.after)

    @property
    def about_due(self) -> bool:
        """Whether it holds only while jobs are due: then it cannot have held for longer than they are."""
        return self.condition.text.startswith(_DUE.text)


# The largest of what several servers report, which all report the same: their sum would count jobs twice.
_DUE = now("windlass_queue_depth", view="due").largest("type", "priority").total("type")
_URGENT = (
    now("windlass_queue_depth", view="due", priority=("8", "9", "10"))
    .largest("type", "priority")
    .total("type")
)
_CRASHES = increase(
    "windlass_job_failures_total", "30m", reason=("worker_lost", "child_crashed", "memory_limit")
)
_COME_BACK = (
    increase("windlass_jobs_reaped_total", "30m")
    + increase("windlass_jobs_retried_total", "30m")
    + increase("windlass_jobs_released_total", "30m")
)
_RELEASE_ATTEMPTS = increase("windlass_release_attempts_total", "10m")
_RELEASE_RATE = rate("windlass_release_attempts_total", "10m")
_RELEASE_FAILS = rate("windlass_release_failures_total", "10m") / _RELEASE_RATE


def _of_release(measured: Expression, newest: int) -> Expression:
    """Of the newest release, or of the others."""
    return measured.also(now("windlass_release_newest").equals(newest), "version")


def _slowest(newest: int) -> Expression:
    """How long runs of a type take, under the newest release or under the slowest of the others."""
    runs = rate("windlass_release_run_seconds_total", "10m") / _RELEASE_RATE
    return _of_release(runs.above(0), newest).largest("type")


def _average_run(within: str) -> Expression:
    return increase("windlass_job_run_seconds_sum", within) / increase(
        "windlass_job_run_seconds_count", within
    )


def _unusual(counter: str) -> Expression:
    """Five times the usual rate, and enough to matter."""
    return rate(counter, "10m").above(5 * rate(counter, "6h")).also(increase(counter, "10m").above(1000))


# Name, severity, for how long, runbook entry: the condition, the summary.
_TABLE: dict[str, tuple[Expression, str]] = {
    "WindlassStoreAway page 30s producers-get-errors": (
        now("windlass_store_up").equals(0),
        "the store does not answer",
    ),
    "WindlassNobodyLooks page 1m jobs-are-late": (
        now("windlass_sample_age_seconds").above(120),
        "no worker and no server has looked at the queue for two minutes",
    ),
    "WindlassNoWorkers page 1m jobs-are-late": (
        _DUE.above(0).also(now("windlass_type_workers").equals(0), "type"),
        "{type}: jobs are due and no running worker takes them",
    ),
    "WindlassWorkerSilent warning 1m workers-have-died": (
        now("windlass_workers", state="silent").above(0),
        "a worker has stopped beating, and nobody has taken its jobs back yet",
    ),
    # Of workers whose health address is scraped; the server cannot see it.
    "WindlassWorkerUnhealthy warning 30s workers-have-died": (
        now("windlass_worker_healthy").equals(0),
        "the worker {worker} is not well: it does not claim, or cannot reach the store",
    ),
    "WindlassWorkerMissing warning 1m workers-have-died": (
        now("windlass_workers", state="missing").above(0),
        "a worker died and no other has started in its place",
    ),
    "WindlassWorkersDie page 0s workers-have-died": (
        increase("windlass_workers_lost_total", "10m").above(2),
        "workers die again and again",
    ),
    "WindlassWorkerRestarts page 0s workers-have-died": (
        increase("windlass_worker_restarts_total", "10m").above(3),
        "workers are started again and again",
    ),
    "WindlassOutOfMemory warning 0s a-poison-job": (
        increase("windlass_job_failures_total", "10m", reason="memory_limit").above(0),
        "{type}: jobs were ended for their memory",
    ),
    "WindlassWorkerOutOfMemory page 0s a-poison-job": (
        increase("windlass_worker_oom_kills_total", "10m").above(0),
        "the kernel killed workers for lack of memory",
    ),
    "WindlassPoisonJobs page 0s a-poison-job": (
        _CRASHES.largest("type", "reason").total("type").above(3),
        "{type}: jobs take the process down that runs them",
    ),
    # Longer than a deploy takes that begins with the producers.
    "WindlassUnreadable page 10m jobs-that-no-worker-can-read": (
        now("windlass_jobs_unreadable").largest("type").above(0),
        "{type}: no live worker can read the payload of jobs that another release made",
    ),
    "WindlassDeadLetters warning 0s there-are-dead-letters": (
        now("windlass_dlq_depth").above(0),
        "{type}: there are dead letters",
    ),
    "WindlassReplaysFail warning 0s a-poison-job": (
        now("windlass_dlq_poison").above(0),
        "{type}: jobs have died again after three replays",
    ),
    "WindlassDeadLettersGrow page 0s there-are-dead-letters": (
        increase("windlass_jobs_dead_total", "10m").above(10),
        "{type}: more than ten deaths of jobs within ten minutes",
    ),
    "WindlassQueueDeep page 5m jobs-are-late": (_DUE.above(10000), "{type}: more than 10,000 jobs are due"),
    "WindlassQueueDeepInAll page 5m jobs-are-late": (
        now("windlass_queue_depth", view="due").largest("type", "priority").total().above(10000),
        "more than 10,000 jobs of all types together are due",
    ),
    "WindlassQueueGrows warning 5m jobs-are-late": (
        delta("windlass_queue_due", "10m").largest("type").above(1000),
        "{type}: the number of due jobs grows by more than 100 a minute",
    ),
    # Jobs come back rather than in: such as claims that are lost again and again.
    "WindlassQueueOscillates warning 0s workers-have-died": (
        now("windlass_queue_swings")
        .largest("type")
        .above(3)
        .also(_COME_BACK.above(increase("windlass_jobs_enqueued_total", "30m")), "type"),
        "{type}: the same jobs leave the queue and come back, again and again",
    ),
    "WindlassQueueOld page 0s jobs-are-late": (
        now("windlass_oldest_due_age_seconds").largest("type").above(600),
        "{type}: a job has been due for more than ten minutes",
    ),
    "WindlassHighPriorityWaits page 1m jobs-are-late": (
        _URGENT.above(100),
        "{type}: more than 100 jobs of high priority are due",
    ),
    "WindlassPriorityStarved warning 5m jobs-are-late": (
        now("windlass_oldest_due_age_seconds")
        .above(600)
        .also(increase("windlass_jobs_completed_total", "10m").above(0), "type"),
        "{type}: jobs of priority {priority} wait while others of the type are done",
    ),
    "WindlassThroughputFell warning 5m jobs-are-late": (
        rate("windlass_jobs_completed_total", "10m")
        .below(0.5 * rate("windlass_jobs_completed_total", "1h"))
        .also(_DUE.above(100), "type"),
        "{type}: less than half as many jobs are done as before, and many wait",
    ),
    "WindlassRunsSlower warning 5m a-dependency-is-down": (
        _average_run("10m")
        .above(2 * _average_run("6h"))
        .also(increase("windlass_job_run_seconds_count", "10m").above(20)),
        "{type}: runs take more than twice as long as before",
    ),
    "WindlassErrorRate page 5m roll-out-and-roll-back": (
        (rate("windlass_jobs_failed_total", "10m") / rate("windlass_jobs_started_total", "10m"))
        .above(0.5)
        .also(increase("windlass_jobs_started_total", "10m").above(10)),
        "{type}: more than half of all attempts fail",
    ),
    # Only beside another release that does well: if all of them fail, it is not the release.
    "WindlassReleaseFails page 1m roll-out-and-roll-back": (
        _RELEASE_FAILS.above(0.2).also(_RELEASE_ATTEMPTS.above(10)).also(_RELEASE_FAILS.below(0.05), "type"),
        "{type}: release {version} fails in more than a fifth of its attempts, and another does not",
    ),
    # Than all that run beside it: whatever slows all of them down is not the release.
    "WindlassReleaseSlower warning 10m roll-out-and-roll-back": (
        _slowest(1)
        .above(1.2 * _slowest(0))
        .also(_of_release(_RELEASE_ATTEMPTS, 1).largest("type").above(100), "type"),
        "{type}: runs take a fifth longer under the newest release than under any other",
    ),
    "WindlassEnqueueErrors page 5m producers-get-errors": (
        (
            rate("windlass_enqueue_requests_total", "5m", result=("refused", "broken")).total()
            / rate("windlass_enqueue_requests_total", "5m").total()
        ).above(0.01),
        "more than one request in a hundred to enqueue is refused or fails",
    ),
    "WindlassEnqueueUnusual warning 5m an-import-floods-the-queue": (
        _unusual("windlass_jobs_enqueued_total"),
        "{type}: five times as many jobs come in as usual",
    ),
    "WindlassServiceUnusual warning 5m an-import-floods-the-queue": (
        _unusual("windlass_service_enqueued_total"),
        "the service {service} enqueues five times as many jobs as usual",
    ),
    "WindlassBreakerOpen warning 0s a-dependency-is-down": (
        now("windlass_breaker_open").equals(1),
        "the circuit breaker of {breaker} is open",
    ),
    "WindlassPausedWithJobs warning 1h stop-a-type-and-let-it-go-on": (
        _DUE.above(0).also(now("windlass_type_paused").equals(1), "type"),
        "{type}: paused for an hour while jobs are due",
    ),
    "WindlassDoneTwice warning 0s workers-have-died": (
        increase("windlass_results_late_total", "10m").above(5),
        "{type}: work was done that had been given to others by then",
    ),
    # What came in is counted every few seconds, what was done each second: hence the room.
    "WindlassMoreDoneThanCame page 5m workers-have-died": (
        (now("windlass_jobs_completed_total") - now("windlass_jobs_replayed_total")).above(
            1.05 * now("windlass_jobs_enqueued_total") + 1000
        ),
        "{type}: more jobs were completed than ever came in",
    ),
    "WindlassCompletedButWrong page 0s completed-but-wrong": (
        increase("windlass_checks_mismatched_total", "10m").above(0),
        "{type}: completed jobs had not done what they should",
    ),
    "WindlassRecordsNotPruned warning 1h is-all-well": (
        now("windlass_archive_oldest_age_seconds").above(now("windlass_archive_kept_seconds") + 172800),
        "records are two days past their retention",
    ),
}


def _slow(measure: str, seconds: str, within: str) -> Expression:
    """The share of a type's jobs that were measured above a bound."""
    name = f"windlass_job_{measure}_seconds"
    return 1 - rate(f"{name}_bucket", within, le=seconds).total("type") / rate(f"{name}_count", within).total(
        "type"
    )


def _failing(within: str) -> Expression:
    failed, started = (rate(f"windlass_jobs_{what}_total", within) for what in ("failed", "started"))
    return failed.total("type") / started.total("type")


_SHARES: tuple[tuple[str, str, Callable[[str], Expression], str], ...] = (
    ("Queueing", "jobs-are-late", partial(_slow, "wait", "60"), "jobs wait for more than a minute"),
    ("Execution", "a-dependency-is-down", partial(_slow, "run", "300"), "runs take more than five minutes"),
    ("Errors", "roll-out-and-roll-back", _failing, "attempts fail"),
)
# Such a share may be 0.01 in a month. How fast may this budget be used up? In an hour a fiftieth of it, or in
# six hours a twentieth; over that long time and still over the short one.
_BURNS = (
    ("BurnsFast", Severity.PAGE, "2m", "1h", "5m", 0.144, "two"),
    ("BurnsSlowly", Severity.WARNING, "15m", "6h", "30m", 0.06, "five"),
)


def _read() -> Iterator[Alert]:
    for head, (condition, summary) in _TABLE.items():
        name, severity, after, anchor = head.split()
        yield Alert(name, Severity(severity), after, anchor, condition, summary)
    for name, anchor, share, what in _SHARES:
        for speed, burns, after, long, short, bound, days in _BURNS:
            # One failure of two jobs says nothing yet.
            enough = increase("windlass_jobs_started_total", long).above(10)
            condition = share(long).above(bound).also(share(short).above(bound)).also(enough, "type")
            summary = f"{{type}}: {what}, so many that a month's budget is gone in {days} days"
            yield Alert(f"Windlass{name}{speed}", burns, after, anchor, condition, summary)


ALERTS = tuple(_read())
BY_NAME: dict[str, Alert] = {alert.name: alert for alert in ALERTS}
