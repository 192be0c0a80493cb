"""When should somebody be told? ONE table: rule file, `windlass alerts` and webhooks all come from it."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

import msgspec

RUNBOOK = "docs/runbook.md"


class Severity(StrEnum):
    """How soon somebody should look."""

    # Now, whatever the hour.
    PAGE = "page"
    # In working hours.
    WARNING = "warning"


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """A condition, and for how long it must hold before somebody is told."""

    name: str
    expression: str
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

# What share of jobs may wait, run or fail beyond the bounds, and how fast that budget may be used up: in an
# hour a fiftieth of what is meant for a month, or in six hours a twentieth.
_BUDGET = 0.01
_FAST = ("1h", "5m", 14.4)
_SLOW = ("6h", "30m", 6.0)


def _burn(share: str, long: str, short: str, times: float) -> str:
    bound = f"{times * _BUDGET:g}"
    # One failure of two jobs says nothing yet.
    enough = f"increase(windlass_jobs_started_total[{long}]) > 10"
    shares = (share.replace("RANGE", stretch) for stretch in (long, short))
    return " and ".join([*(f"({each}) > {bound}" for each in shares), f"on (type) {enough}"])


def _beyond(measure: str, seconds: int) -> str:
    """The share of measured jobs above a bound."""
    return (
        f'1 - sum by (type) (rate(windlass_job_{measure}_seconds_bucket{{le="{seconds}"}}[RANGE])) '
        f"/ sum by (type) (rate(windlass_job_{measure}_seconds_count[RANGE]))"
    )


# The largest of what several servers say, which all say the same: adding them up would count jobs twice.
_DUE = 'sum by (type) (max by (type, priority) (windlass_queue_depth{view="due"}))'
_FAILING = (
    "sum by (type) (rate(windlass_jobs_failed_total[RANGE])) "
    "/ sum by (type) (rate(windlass_jobs_started_total[RANGE]))"
)
# The share of attempts that fail, and how long they run, by type and release.
_RELEASE_FAILS = "rate(windlass_release_failures_total[10m]) / rate(windlass_release_attempts_total[10m])"
_RELEASE_RUNS = "rate(windlass_release_run_seconds_total[10m]) / rate(windlass_release_attempts_total[10m])"


def _slowest(newest: int) -> str:
    """How long runs of a type take, under the newest release or under that of the others that is slowest."""
    return f"max by (type) ({_RELEASE_RUNS} > 0 and on (version) windlass_release_newest == {newest})"


def _burning(name: str, share: str, what: str, anchor: str) -> tuple[Alert, Alert]:
    fast = Alert(
        name=f"Windlass{name}BurnsFast",
        expression=_burn(share, *_FAST),
        lasting=2 * _MINUTE,
        severity=Severity.PAGE,
        summary=f"{{type}}: {what}, so many that a month's budget is gone in two days",
        anchor=anchor,
    )
    slow = Alert(
        name=f"Windlass{name}BurnsSlowly",
        expression=_burn(share, *_SLOW),
        lasting=15 * _MINUTE,
        summary=f"{{type}}: {what}, so many that a month's budget is gone in five days",
        anchor=anchor,
    )
    return fast, slow


ALERTS: tuple[Alert, ...] = (
    Alert(
        name="WindlassStoreAway",
        expression="windlass_store_up == 0",
        lasting=timedelta(seconds=30),
        severity=Severity.PAGE,
        summary="the store does not answer",
        anchor="producers-get-errors",
    ),
    Alert(
        name="WindlassNobodyLooks",
        expression="windlass_sample_age_seconds > 120",
        lasting=_MINUTE,
        severity=Severity.PAGE,
        summary="no worker and no server has looked at the queue for two minutes",
        anchor="jobs-are-late",
    ),
    Alert(
        name="WindlassNoWorkers",
        expression=f"{_DUE} > 0 and on (type) windlass_type_workers == 0",
        lasting=_MINUTE,
        severity=Severity.PAGE,
        summary="{type}: jobs are due and no running worker takes them",
        anchor="jobs-are-late",
    ),
    Alert(
        name="WindlassWorkerSilent",
        expression='windlass_workers{state="silent"} > 0',
        lasting=_MINUTE,
        summary="a worker has stopped beating, and nobody has taken its jobs back yet",
        anchor="workers-have-died",
    ),
    Alert(
        name="WindlassWorkerUnhealthy",
        # Of workers whose health address is scraped; the server cannot see it.
        expression="windlass_worker_healthy == 0",
        lasting=timedelta(seconds=30),
        summary="the worker {worker} is not well: it does not claim, or cannot reach the store",
        anchor="workers-have-died",
    ),
    Alert(
        name="WindlassWorkerMissing",
        expression='windlass_workers{state="missing"} > 0',
        lasting=_MINUTE,
        summary="a worker died and no other has started in its place",
        anchor="workers-have-died",
    ),
    Alert(
        name="WindlassWorkersDie",
        expression="increase(windlass_workers_lost_total[10m]) > 2",
        severity=Severity.PAGE,
        summary="workers die again and again",
        anchor="workers-have-died",
    ),
    Alert(
        name="WindlassWorkerRestarts",
        expression="increase(windlass_worker_restarts_total[10m]) > 3",
        severity=Severity.PAGE,
        summary="workers are started again and again",
        anchor="workers-have-died",
    ),
    Alert(
        name="WindlassOutOfMemory",
        expression='increase(windlass_job_failures_total{reason="memory_limit"}[10m]) > 0',
        summary="{type}: jobs were ended for their memory",
        anchor="a-poison-job",
    ),
    Alert(
        name="WindlassWorkerOutOfMemory",
        expression="increase(windlass_worker_oom_kills_total[10m]) > 0",
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
        severity=Severity.PAGE,
        summary="{type}: jobs take the process down that runs them",
        anchor="a-poison-job",
    ),
    Alert(
        name="WindlassUnreadable",
        # Longer than a deploy takes that begins with the producers.
        expression="max by (type) (windlass_jobs_unreadable) > 0",
        lasting=10 * _MINUTE,
        severity=Severity.PAGE,
        summary="{type}: no live worker can read the payload of jobs that another release made",
        anchor="jobs-that-no-worker-can-read",
    ),
    Alert(
        name="WindlassDeadLetters",
        expression="windlass_dlq_depth > 0",
        summary="{type}: there are dead letters",
        anchor="there-are-dead-letters",
    ),
    Alert(
        name="WindlassReplaysFail",
        expression="windlass_dlq_poison > 0",
        summary="{type}: jobs have died again after three replays",
        anchor="a-poison-job",
    ),
    Alert(
        name="WindlassDeadLettersGrow",
        expression="increase(windlass_jobs_dead_total[10m]) > 10",
        severity=Severity.PAGE,
        summary="{type}: more than ten jobs died within ten minutes",
        anchor="there-are-dead-letters",
    ),
    Alert(
        name="WindlassQueueDeep",
        expression=f"{_DUE} > 10000",
        lasting=5 * _MINUTE,
        severity=Severity.PAGE,
        summary="{type}: more than 10,000 jobs are due",
        anchor="jobs-are-late",
    ),
    Alert(
        name="WindlassQueueDeepInAll",
        expression='sum (max by (type, priority) (windlass_queue_depth{view="due"})) > 10000',
        lasting=5 * _MINUTE,
        severity=Severity.PAGE,
        summary="more than 10,000 jobs of all types together are due",
        anchor="jobs-are-late",
    ),
    Alert(
        name="WindlassQueueGrows",
        expression="max by (type) (delta(windlass_queue_due[10m])) > 1000",
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
        summary="{type}: the same jobs leave the queue and come back, again and again",
        anchor="workers-have-died",
    ),
    Alert(
        name="WindlassQueueOld",
        expression="max by (type) (windlass_oldest_due_age_seconds) > 600",
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
        lasting=5 * _MINUTE,
        summary="the service {service} enqueues five times as many jobs as usual",
        anchor="an-import-floods-the-queue",
    ),
    Alert(
        name="WindlassBreakerOpen",
        expression="windlass_breaker_open == 1",
        summary="the circuit breaker of {breaker} is open",
        anchor="a-dependency-is-down",
    ),
    Alert(
        name="WindlassPausedWithJobs",
        expression=f"{_DUE} > 0 and on (type) windlass_type_paused == 1",
        lasting=60 * _MINUTE,
        summary="{type}: paused for an hour while jobs are due",
        anchor="stop-a-type-and-let-it-go-on",
    ),
    Alert(
        name="WindlassDoneTwice",
        expression="increase(windlass_results_late_total[10m]) > 5",
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
        lasting=5 * _MINUTE,
        severity=Severity.PAGE,
        summary="{type}: more jobs were completed than ever came in",
        anchor="workers-have-died",
    ),
    Alert(
        name="WindlassCompletedButWrong",
        expression="increase(windlass_checks_mismatched_total[10m]) > 0",
        severity=Severity.PAGE,
        summary="{type}: completed jobs had not done what they should",
        anchor="completed-but-wrong",
    ),
    Alert(
        name="WindlassRecordsNotPruned",
        expression="windlass_archive_oldest_age_seconds > windlass_archive_kept_seconds + 172800",
        lasting=60 * _MINUTE,
        summary="records are two days past their retention",
        anchor="is-all-well",
    ),
    *_burning("Queueing", _beyond("wait", 60), "jobs wait for more than a minute", "jobs-are-late"),
    *_burning("Execution", _beyond("run", 300), "runs take more than five minutes", "a-dependency-is-down"),
    *_burning("Errors", _FAILING, "attempts fail", "roll-out-and-roll-back"),
)
BY_NAME: dict[str, Alert] = {alert.name: alert for alert in ALERTS}
