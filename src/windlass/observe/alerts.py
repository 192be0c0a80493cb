"""Every alert: its condition, as a rule of Prometheus and in Python, its severity, and its runbook entry.

The rule file, `windlass alerts` and the webhook all come from this table. The tests judge each pair of
conditions on the same scenes, the rules by a real Prometheus: both must hold for the same labels.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum

import msgspec

from windlass.observe.measures import Measures, Series

RUNBOOK = "docs/runbook.md"


class Severity(StrEnum):
    """How soon a person should look."""

    # Now, at any hour.
    PAGE = "page"
    # In working hours.
    WARNING = "warning"


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """A condition, and for how long it must hold before it fires."""

    name: str
    # The condition as a rule of Prometheus, and as a function of measured values.
    expression: str
    holds: Callable[[Measures], Series]
    lasting: timedelta = timedelta(0)
    severity: Severity = Severity.WARNING
    # What is wrong, in one line; {type} and other labels are filled in.
    summary: str
    # The entry of the runbook.
    anchor: str

    @property
    def about_due(self) -> bool:
        """Whether it holds only while jobs are due: then it cannot have held for longer than they are."""
        return self.expression.startswith(_DUE)


# --- the table ----------------------------------------------------------------------------------

_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)

# What share of jobs may wait, run or fail beyond the bounds, and how fast that budget may be used up: in an
# hour a fiftieth of what is meant for a month, or in six hours a twentieth.
_BUDGET = 0.01
_ATTEMPTS = "windlass_release_attempts_total"

# The largest of what several servers report, which all report the same: their sum would count jobs twice.
_DUE = 'sum by (type) (max by (type, priority) (windlass_queue_depth{view="due"}))'
# The share of attempts that fail, and how long they run, by type and release.
_RELEASE_FAILS = f"rate(windlass_release_failures_total[10m]) / rate({_ATTEMPTS}[10m])"
_RELEASE_RUNS = f"rate(windlass_release_run_seconds_total[10m]) / rate({_ATTEMPTS}[10m])"


def _due(m: Measures, **labels: str | tuple[str, ...]) -> Series:
    """How many jobs of each type are due."""
    depth = m.now("windlass_queue_depth").where(view="due", **labels)
    return depth.largest("type", "priority").total("type")


def _failures(m: Measures, within: timedelta, *reasons: str) -> Series:
    return m.increase("windlass_job_failures_total", within).where(reason=reasons)


def _per(m: Measures, part: str, whole: str) -> Series:
    """One counter's rise per rise of another, in ten minutes."""
    return m.rate(part, 10 * _MINUTE) / m.rate(whole, 10 * _MINUTE)


def _average_run(m: Measures, within: timedelta) -> Series:
    return m.increase("windlass_job_run_seconds_sum", within) / m.increase(
        "windlass_job_run_seconds_count", within
    )


def _slowest(newest: int) -> str:
    """How long runs of a type take, under the newest release or under the slowest of the others."""
    return f"max by (type) ({_RELEASE_RUNS} > 0 and on (version) windlass_release_newest == {newest})"


def _slowest_run(m: Measures, *, newest: bool) -> Series:
    """The same in Python."""
    runs = _per(m, "windlass_release_run_seconds_total", _ATTEMPTS).above(0)
    return runs.also(m.now("windlass_release_newest").equal(newest), "version").largest("type")


def _unusual(m: Measures, counter: str) -> Series:
    """Five times the usual rate, and enough to matter."""
    fast = m.rate(counter, 10 * _MINUTE).above(m.rate(counter, 6 * _HOUR) * 5)
    return fast.also(m.increase(counter, 10 * _MINUTE).above(1000))


class _Share(msgspec.Struct, frozen=True):
    """A share of a type's jobs over some time: as PromQL with RANGE for the time, and in Python."""

    expression: str
    of: Callable[[Measures, timedelta], Series]


def _beyond(measure: str, seconds: int) -> _Share:
    """The share of measured jobs above a bound."""
    name = f"windlass_job_{measure}_seconds"
    within = f'sum by (type) (rate({name}_bucket{{le="{seconds}"}}[RANGE]))'

    def share(m: Measures, time: timedelta) -> Series:
        fast = m.rate(f"{name}_bucket", time).where(le=str(seconds)).total("type")
        return fast / m.rate(f"{name}_count", time).total("type") * -1 + 1

    return _Share(f"1 - {within} / sum by (type) (rate({name}_count[RANGE]))", share)


_FAILING = _Share(
    "sum by (type) (rate(windlass_jobs_failed_total[RANGE])) "
    "/ sum by (type) (rate(windlass_jobs_started_total[RANGE]))",
    lambda m, time: (
        m.rate("windlass_jobs_failed_total", time).total("type")
        / m.rate("windlass_jobs_started_total", time).total("type")
    ),
)


def _burning(name: str, share: _Share, what: str, anchor: str) -> tuple[Alert, Alert]:
    """Two alerts on how fast the month's budget is used up: over a long time, and still now."""

    def burns(long: timedelta, short: timedelta, times: float) -> tuple[str, Callable[[Measures], Series]]:
        bound = round(times * _BUDGET, 6)
        shares = (share.expression.replace("RANGE", span(each)) for each in (long, short))
        # One failure of two jobs says nothing yet.
        enough = f"increase(windlass_jobs_started_total[{span(long)}]) > 10"
        expression = " and ".join([*(f"({each}) > {bound:g}" for each in shares), f"on (type) {enough}"])

        def holds(m: Measures) -> Series:
            started = m.increase("windlass_jobs_started_total", long).above(10)
            return share.of(m, long).above(bound).also(share.of(m, short).above(bound)).also(started, "type")

        return expression, holds

    expression, holds = burns(_HOUR, 5 * _MINUTE, 14.4)
    fast = Alert(
        name=f"Windlass{name}BurnsFast",
        expression=expression,
        holds=holds,
        lasting=2 * _MINUTE,
        severity=Severity.PAGE,
        summary=f"{{type}}: {what}, so many that a month's budget is gone in two days",
        anchor=anchor,
    )
    expression, holds = burns(6 * _HOUR, 30 * _MINUTE, 6.0)
    slow = Alert(
        name=f"Windlass{name}BurnsSlowly",
        expression=expression,
        holds=holds,
        lasting=15 * _MINUTE,
        summary=f"{{type}}: {what}, so many that a month's budget is gone in five days",
        anchor=anchor,
    )
    return fast, slow


def span(time: timedelta) -> str:
    """A time as Prometheus writes it."""
    for seconds, unit in ((3600, "h"), (60, "m")):
        if time and time.total_seconds() % seconds == 0:
            return f"{int(time.total_seconds()) // seconds}{unit}"
    return f"{int(time.total_seconds())}s"


ALERTS: tuple[Alert, ...] = (
    Alert(
        name="WindlassStoreAway",
        expression="windlass_store_up == 0",
        holds=lambda m: m.now("windlass_store_up").equal(0),
        lasting=timedelta(seconds=30),
        severity=Severity.PAGE,
        summary="the store does not answer",
        anchor="producers-get-errors",
    ),
    Alert(
        name="WindlassNobodyLooks",
        expression="windlass_sample_age_seconds > 120",
        holds=lambda m: m.now("windlass_sample_age_seconds").above(120),
        lasting=_MINUTE,
        severity=Severity.PAGE,
        summary="no worker and no server has looked at the queue for two minutes",
        anchor="jobs-are-late",
    ),
    Alert(
        name="WindlassNoWorkers",
        expression=f"{_DUE} > 0 and on (type) windlass_type_workers == 0",
        holds=lambda m: _due(m).above(0).also(m.now("windlass_type_workers").equal(0), "type"),
        lasting=_MINUTE,
        severity=Severity.PAGE,
        summary="{type}: jobs are due and no running worker takes them",
        anchor="jobs-are-late",
    ),
    Alert(
        name="WindlassWorkerSilent",
        expression='windlass_workers{state="silent"} > 0',
        holds=lambda m: m.now("windlass_workers").where(state="silent").above(0),
        lasting=_MINUTE,
        summary="a worker has stopped beating, and nobody has taken its jobs back yet",
        anchor="workers-have-died",
    ),
    Alert(
        name="WindlassWorkerUnhealthy",
        # Of workers whose health address is scraped; the server cannot see it.
        expression="windlass_worker_healthy == 0",
        holds=lambda m: m.now("windlass_worker_healthy").equal(0),
        lasting=timedelta(seconds=30),
        summary="the worker {worker} is not well: it does not claim, or cannot reach the store",
        anchor="workers-have-died",
    ),
    Alert(
        name="WindlassWorkerMissing",
        expression='windlass_workers{state="missing"} > 0',
        holds=lambda m: m.now("windlass_workers").where(state="missing").above(0),
        lasting=_MINUTE,
        summary="a worker died and no other has started in its place",
        anchor="workers-have-died",
    ),
    Alert(
        name="WindlassWorkersDie",
        expression="increase(windlass_workers_lost_total[10m]) > 2",
        holds=lambda m: m.increase("windlass_workers_lost_total", 10 * _MINUTE).above(2),
        severity=Severity.PAGE,
        summary="workers die again and again",
        anchor="workers-have-died",
    ),
    Alert(
        name="WindlassWorkerRestarts",
        expression="increase(windlass_worker_restarts_total[10m]) > 3",
        holds=lambda m: m.increase("windlass_worker_restarts_total", 10 * _MINUTE).above(3),
        severity=Severity.PAGE,
        summary="workers are started again and again",
        anchor="workers-have-died",
    ),
    Alert(
        name="WindlassOutOfMemory",
        expression='increase(windlass_job_failures_total{reason="memory_limit"}[10m]) > 0',
        holds=lambda m: _failures(m, 10 * _MINUTE, "memory_limit").above(0),
        summary="{type}: jobs were ended for their memory",
        anchor="a-poison-job",
    ),
    Alert(
        name="WindlassWorkerOutOfMemory",
        expression="increase(windlass_worker_oom_kills_total[10m]) > 0",
        holds=lambda m: m.increase("windlass_worker_oom_kills_total", 10 * _MINUTE).above(0),
        severity=Severity.PAGE,
        summary="the kernel killed workers for lack of memory",
        anchor="a-poison-job",
    ),
    Alert(
        name="WindlassPoisonJobs",
        expression=(
            "sum by (type) (max by (type, reason) (increase(windlass_job_failures_total"
            '{reason=~"worker_lost|child_crashed|memory_limit"}[30m]))) > 3'
        ),
        holds=lambda m: (
            _failures(m, 30 * _MINUTE, "worker_lost", "child_crashed", "memory_limit")
            .largest("type", "reason")
            .total("type")
            .above(3)
        ),
        severity=Severity.PAGE,
        summary="{type}: jobs take the process down that runs them",
        anchor="a-poison-job",
    ),
    Alert(
        name="WindlassUnreadable",
        # Longer than a deploy takes that begins with the producers.
        expression="max by (type) (windlass_jobs_unreadable) > 0",
        holds=lambda m: m.now("windlass_jobs_unreadable").largest("type").above(0),
        lasting=10 * _MINUTE,
        severity=Severity.PAGE,
        summary="{type}: no live worker can read the payload of jobs that another release made",
        anchor="jobs-that-no-worker-can-read",
    ),
    Alert(
        name="WindlassDeadLetters",
        expression="windlass_dlq_depth > 0",
        holds=lambda m: m.now("windlass_dlq_depth").above(0),
        summary="{type}: there are dead letters",
        anchor="there-are-dead-letters",
    ),
    Alert(
        name="WindlassReplaysFail",
        expression="windlass_dlq_poison > 0",
        holds=lambda m: m.now("windlass_dlq_poison").above(0),
        summary="{type}: jobs have died again after three replays",
        anchor="a-poison-job",
    ),
    Alert(
        name="WindlassDeadLettersGrow",
        expression="increase(windlass_jobs_dead_total[10m]) > 10",
        holds=lambda m: m.increase("windlass_jobs_dead_total", 10 * _MINUTE).above(10),
        severity=Severity.PAGE,
        summary="{type}: more than ten deaths of jobs within ten minutes",
        anchor="there-are-dead-letters",
    ),
    Alert(
        name="WindlassQueueDeep",
        expression=f"{_DUE} > 10000",
        holds=lambda m: _due(m).above(10_000),
        lasting=5 * _MINUTE,
        severity=Severity.PAGE,
        summary="{type}: more than 10,000 jobs are due",
        anchor="jobs-are-late",
    ),
    Alert(
        name="WindlassQueueDeepInAll",
        expression='sum (max by (type, priority) (windlass_queue_depth{view="due"})) > 10000',
        holds=lambda m: _due(m).total().above(10_000),
        lasting=5 * _MINUTE,
        severity=Severity.PAGE,
        summary="more than 10,000 jobs of all types together are due",
        anchor="jobs-are-late",
    ),
    Alert(
        name="WindlassQueueGrows",
        expression="max by (type) (delta(windlass_queue_due[10m])) > 1000",
        holds=lambda m: m.delta("windlass_queue_due", 10 * _MINUTE).largest("type").above(1000),
        lasting=5 * _MINUTE,
        summary="{type}: the number of due jobs grows by more than 100 a minute",
        anchor="jobs-are-late",
    ),
    Alert(
        name="WindlassQueueOscillates",
        # Jobs come back rather than in: such as claims that are lost again and again.
        expression=(
            "max by (type) (windlass_queue_swings) > 3 and on (type) "
            "(increase(windlass_jobs_reaped_total[30m]) + increase(windlass_jobs_retried_total[30m]) "
            "+ increase(windlass_jobs_released_total[30m]) > increase(windlass_jobs_enqueued_total[30m]))"
        ),
        holds=lambda m: (
            m.now("windlass_queue_swings")
            .largest("type")
            .above(3)
            .also(
                (
                    m.increase("windlass_jobs_reaped_total", 30 * _MINUTE)
                    + m.increase("windlass_jobs_retried_total", 30 * _MINUTE)
                    + m.increase("windlass_jobs_released_total", 30 * _MINUTE)
                ).above(m.increase("windlass_jobs_enqueued_total", 30 * _MINUTE)),
                "type",
            )
        ),
        summary="{type}: the same jobs leave the queue and come back, again and again",
        anchor="workers-have-died",
    ),
    Alert(
        name="WindlassQueueOld",
        expression="max by (type) (windlass_oldest_due_age_seconds) > 600",
        holds=lambda m: m.now("windlass_oldest_due_age_seconds").largest("type").above(600),
        severity=Severity.PAGE,
        summary="{type}: a job has been due for more than ten minutes",
        anchor="jobs-are-late",
    ),
    Alert(
        name="WindlassHighPriorityWaits",
        expression=(
            "sum by (type) (max by (type, priority) "
            '(windlass_queue_depth{view="due",priority=~"8|9|10"})) > 100'
        ),
        holds=lambda m: _due(m, priority=("8", "9", "10")).above(100),
        lasting=_MINUTE,
        severity=Severity.PAGE,
        summary="{type}: more than 100 jobs of high priority are due",
        anchor="jobs-are-late",
    ),
    Alert(
        name="WindlassPriorityStarved",
        expression=(
            "windlass_oldest_due_age_seconds > 600 "
            "and on (type) increase(windlass_jobs_completed_total[10m]) > 0"
        ),
        holds=lambda m: (
            m.now("windlass_oldest_due_age_seconds")
            .above(600)
            .also(m.increase("windlass_jobs_completed_total", 10 * _MINUTE).above(0), "type")
        ),
        lasting=5 * _MINUTE,
        summary="{type}: jobs of priority {priority} wait while others of the type are done",
        anchor="jobs-are-late",
    ),
    Alert(
        name="WindlassThroughputFell",
        expression=(
            "rate(windlass_jobs_completed_total[10m]) < 0.5 * rate(windlass_jobs_completed_total[1h]) "
            f"and on (type) {_DUE} > 100"
        ),
        holds=lambda m: (
            m.rate("windlass_jobs_completed_total", 10 * _MINUTE)
            .below(m.rate("windlass_jobs_completed_total", _HOUR) * 0.5)
            .also(_due(m).above(100), "type")
        ),
        lasting=5 * _MINUTE,
        summary="{type}: less than half as many jobs are done as before, and many wait",
        anchor="jobs-are-late",
    ),
    Alert(
        name="WindlassRunsSlower",
        expression=(
            "increase(windlass_job_run_seconds_sum[10m]) / increase(windlass_job_run_seconds_count[10m]) "
            "> 2 * "
            "(increase(windlass_job_run_seconds_sum[6h]) / increase(windlass_job_run_seconds_count[6h])) "
            "and increase(windlass_job_run_seconds_count[10m]) > 20"
        ),
        holds=lambda m: (
            _average_run(m, 10 * _MINUTE)
            .above(_average_run(m, 6 * _HOUR) * 2)
            .also(m.increase("windlass_job_run_seconds_count", 10 * _MINUTE).above(20))
        ),
        lasting=5 * _MINUTE,
        summary="{type}: runs take more than twice as long as before",
        anchor="a-dependency-is-down",
    ),
    Alert(
        name="WindlassErrorRate",
        expression=(
            "rate(windlass_jobs_failed_total[10m]) / rate(windlass_jobs_started_total[10m]) > 0.5 "
            "and increase(windlass_jobs_started_total[10m]) > 10"
        ),
        holds=lambda m: (
            _per(m, "windlass_jobs_failed_total", "windlass_jobs_started_total")
            .above(0.5)
            .also(m.increase("windlass_jobs_started_total", 10 * _MINUTE).above(10))
        ),
        lasting=5 * _MINUTE,
        severity=Severity.PAGE,
        summary="{type}: more than half of all attempts fail",
        anchor="roll-out-and-roll-back",
    ),
    Alert(
        name="WindlassReleaseFails",
        # Only beside another release that does well: if all of them fail, it is not the release.
        expression=(
            f"{_RELEASE_FAILS} > 0.2 and increase(windlass_release_attempts_total[10m]) > 10 "
            f"and on (type) {_RELEASE_FAILS} < 0.05"
        ),
        holds=lambda m: (
            _per(m, "windlass_release_failures_total", _ATTEMPTS)
            .above(0.2)
            .also(m.increase(_ATTEMPTS, 10 * _MINUTE).above(10))
            .also(_per(m, "windlass_release_failures_total", _ATTEMPTS).below(0.05), "type")
        ),
        lasting=_MINUTE,
        severity=Severity.PAGE,
        summary="{type}: release {version} fails in more than a fifth of its attempts, and another does not",
        anchor="roll-out-and-roll-back",
    ),
    Alert(
        name="WindlassReleaseSlower",
        # Than all that run beside it: whatever slows all of them down is not the release.
        expression=(
            f"{_slowest(1)} > 1.2 * {_slowest(0)} and on (type) max by (type) "
            "(increase(windlass_release_attempts_total[10m]) "
            "and on (version) windlass_release_newest == 1) > 100"
        ),
        holds=lambda m: (
            _slowest_run(m, newest=True)
            .above(_slowest_run(m, newest=False) * 1.2)
            .also(
                m.increase(_ATTEMPTS, 10 * _MINUTE)
                .also(m.now("windlass_release_newest").equal(1), "version")
                .largest("type")
                .above(100),
                "type",
            )
        ),
        lasting=10 * _MINUTE,
        summary="{type}: runs take a fifth longer under the newest release than under any other",
        anchor="roll-out-and-roll-back",
    ),
    Alert(
        name="WindlassEnqueueErrors",
        expression=(
            'sum (rate(windlass_enqueue_requests_total{result=~"refused|broken"}[5m])) '
            "/ sum (rate(windlass_enqueue_requests_total[5m])) > 0.01"
        ),
        holds=lambda m: (
            m.rate("windlass_enqueue_requests_total", 5 * _MINUTE).where(result=("refused", "broken")).total()
            / m.rate("windlass_enqueue_requests_total", 5 * _MINUTE).total()
        ).above(0.01),
        lasting=5 * _MINUTE,
        severity=Severity.PAGE,
        summary="more than one request in a hundred to enqueue is refused or fails",
        anchor="producers-get-errors",
    ),
    Alert(
        name="WindlassEnqueueUnusual",
        expression=(
            "rate(windlass_jobs_enqueued_total[10m]) > 5 * rate(windlass_jobs_enqueued_total[6h]) "
            "and increase(windlass_jobs_enqueued_total[10m]) > 1000"
        ),
        holds=lambda m: _unusual(m, "windlass_jobs_enqueued_total"),
        lasting=5 * _MINUTE,
        summary="{type}: five times as many jobs come in as usual",
        anchor="an-import-floods-the-queue",
    ),
    Alert(
        name="WindlassServiceUnusual",
        expression=(
            "rate(windlass_service_enqueued_total[10m]) > 5 * rate(windlass_service_enqueued_total[6h]) "
            "and increase(windlass_service_enqueued_total[10m]) > 1000"
        ),
        holds=lambda m: _unusual(m, "windlass_service_enqueued_total"),
        lasting=5 * _MINUTE,
        summary="the service {service} enqueues five times as many jobs as usual",
        anchor="an-import-floods-the-queue",
    ),
    Alert(
        name="WindlassBreakerOpen",
        expression="windlass_breaker_open == 1",
        holds=lambda m: m.now("windlass_breaker_open").equal(1),
        summary="the circuit breaker of {breaker} is open",
        anchor="a-dependency-is-down",
    ),
    Alert(
        name="WindlassPausedWithJobs",
        expression=f"{_DUE} > 0 and on (type) windlass_type_paused == 1",
        holds=lambda m: _due(m).above(0).also(m.now("windlass_type_paused").equal(1), "type"),
        lasting=60 * _MINUTE,
        summary="{type}: paused for an hour while jobs are due",
        anchor="stop-a-type-and-let-it-go-on",
    ),
    Alert(
        name="WindlassDoneTwice",
        expression="increase(windlass_results_late_total[10m]) > 5",
        holds=lambda m: m.increase("windlass_results_late_total", 10 * _MINUTE).above(5),
        summary="{type}: work was done that had been given to others by then",
        anchor="workers-have-died",
    ),
    Alert(
        name="WindlassMoreDoneThanCame",
        # What came in is counted every few seconds, what was done each second: hence the room.
        expression=(
            "windlass_jobs_completed_total - windlass_jobs_replayed_total "
            "> 1.05 * windlass_jobs_enqueued_total + 1000"
        ),
        holds=lambda m: (
            m.now("windlass_jobs_completed_total") - m.now("windlass_jobs_replayed_total")
        ).above(m.now("windlass_jobs_enqueued_total") * 1.05 + 1000),
        lasting=5 * _MINUTE,
        severity=Severity.PAGE,
        summary="{type}: more jobs were completed than ever came in",
        anchor="workers-have-died",
    ),
    Alert(
        name="WindlassCompletedButWrong",
        expression="increase(windlass_checks_mismatched_total[10m]) > 0",
        holds=lambda m: m.increase("windlass_checks_mismatched_total", 10 * _MINUTE).above(0),
        severity=Severity.PAGE,
        summary="{type}: completed jobs had not done what they should",
        anchor="completed-but-wrong",
    ),
    Alert(
        name="WindlassRecordsNotPruned",
        expression="windlass_archive_oldest_age_seconds > windlass_archive_kept_seconds + 172800",
        holds=lambda m: m.now("windlass_archive_oldest_age_seconds").above(
            m.now("windlass_archive_kept_seconds") + 172_800
        ),
        lasting=60 * _MINUTE,
        summary="records are two days past their retention",
        anchor="is-all-well",
    ),
    *_burning("Queueing", _beyond("wait", 60), "jobs wait for more than a minute", "jobs-are-late"),
    *_burning("Execution", _beyond("run", 300), "runs take more than five minutes", "a-dependency-is-down"),
    *_burning("Errors", _FAILING, "attempts fail", "roll-out-and-roll-back"),
)
BY_NAME: dict[str, Alert] = {alert.name: alert for alert in ALERTS}
