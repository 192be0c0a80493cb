"""Which metrics are there? Every one once, with its meaning; docs/observability.md is held to it."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from windlass.observe import names


class Kind(StrEnum):
    """What can be done with a metric's values."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(msgspec.Struct, frozen=True):
    """One metric. Of a counter or histogram from the store's history, `counted` is its name there."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    counted: str = ""


def _metrics(table: str) -> tuple[Metric, ...]:
    """Read lines of `NAME LABEL ... = COUNTED: meaning`; COUNTED is its name in names.py, if any."""
    made = []
    for line in table.strip().splitlines():
        head, _, meaning = line.partition(": ")
        head, _, constant = head.partition(" = ")
        name, *labels = head.split()
        counted: str = getattr(names, constant) if constant else ""
        kind = Kind.HISTOGRAM if counted in names.BOUNDS else Kind.GAUGE
        kind = Kind.COUNTER if name.endswith("_total") else kind
        made.append(Metric(name, kind, tuple(labels), meaning.strip(), counted))
    return tuple(made)


# Counted in the store: alike from every server, and a restart changes nothing.
COUNTED = _metrics("""
    windlass_jobs_enqueued_total type = ENQUEUED: Jobs that came in
    windlass_jobs_started_total type = STARTED: Attempts that ran, once they are settled
    windlass_jobs_completed_total type = COMPLETED: Jobs that completed
    windlass_jobs_failed_total type = FAILED: Attempts that failed
    windlass_jobs_retried_total type = RETRIED: Failed attempts that another one follows
    windlass_jobs_dead_total type = DEAD: How often jobs went to the dead letters
    windlass_jobs_cancelled_total type = CANCELLED: Jobs that were cancelled
    windlass_jobs_discarded_total type = DISCARDED: Dead jobs that were closed for good
    windlass_jobs_replayed_total type = REPLAYED: Dead jobs that were sent back
    windlass_jobs_snoozed_total type = SNOOZED: Runs that asked for a later one
    windlass_jobs_released_total type = RELEASED: Claims that were given back, unstarted or cut off
    windlass_jobs_reaped_total type = REAPED: Leases taken from workers that were gone
    windlass_results_late_total type = LATE: Results discarded because the lease had been lost
    windlass_checks_matched_total type = MATCHED: Verified jobs that did what they should
    windlass_checks_mismatched_total type = MISMATCHED: Completed jobs that had not done what they should
    windlass_checks_hung_total type = CHECKS_HUNG: Checks that did not end in time
    windlass_jobs_confirmed_total type = CONFIRMED: Jobs whose effect was acknowledged later, once each
    windlass_leases_renewed_total = RENEWED: Leases of long jobs that were renewed
    windlass_leases_lost_total = LOST: Leases that were lost while their job ran
    windlass_workers_lost_total = WORKERS_LOST: Workers that were declared dead
    windlass_worker_restarts_total = RESTARTS: Workers that died and were started again
    windlass_worker_oom_kills_total = OOM_KILLS: \
        Workers that the kernel killed for lack of memory, as their supervisor saw it
    windlass_records_pruned_total = PRUNED: \
        Records of ended and dead jobs that were deleted at the end of their retention
    windlass_job_wait_seconds type = WAIT: From due to claimed
    windlass_job_run_seconds type = RUN: How long attempts ran
    windlass_job_end_to_end_seconds type = END_TO_END: From enqueued to completed
    windlass_job_attempts type = TRIES: How many attempts completed jobs took
    windlass_enqueue_seconds = ENQUEUE: How long requests to enqueue took, over HTTP
    windlass_enqueue_call_seconds = ENQUEUE_CALL: \
        How long calls to enqueue took in Python; each process reports once a minute
    windlass_settle_seconds = SETTLE: How long it took to write a batch of outcomes
    windlass_claim_seconds = RECEIVE: From asking for jobs to having some
    windlass_claim_jobs = CLAIM: How many jobs a claim brought, if any
""")
_LABELLED = _metrics("""
    windlass_claims_total result: \
        Claims: taken (brought jobs), empty (others were faster), contended (a limit was locked), failed
    windlass_job_failures_total type reason: Attempts that failed, by reason
    windlass_job_errors_total type error: \
        Attempts that failed, by the class of the error; of each type the commonest classes
    windlass_store_errors_total part error: \
        How often the store failed a part of a worker or server: unavailable, busy (timed out), other
    windlass_worker_place_restarts_total worker: \
        Restarts by worker: its host, and which of its supervisor's workers it is
    windlass_enqueue_requests_total result: \
        Requests to enqueue over HTTP: accepted, existing (known), invalid, refused (too many), broken
    windlass_http_refusals_total route status: \
        Requests over HTTP that were answered with 401, 403, 421, 429 or 5xx, by route
""")
# Of attempts by the release that ran them, if the application names its releases.
OF_RELEASE = _metrics("""
    windlass_release_attempts_total type version = ATTEMPTS: Attempts, by the release that ran them
    windlass_release_failures_total type version = FAILED: Those that failed
    windlass_release_run_seconds_total type version = RAN: How long they ran together
    windlass_release_duration_seconds type version = RUN: How long attempts ran, by the release that ran them
""")
# Of the services that have API keys and produce, and of those beyond the bound together.
SERVICES = _metrics("""
    windlass_service_enqueued_total service: \
        Jobs that came in over HTTP, by the service whose API key they came with
    windlass_service_requests_total service result: \
        Its requests to enqueue: accepted, existing (known), invalid, refused (too many), broken
""")
# Of the tenants that operators name (the setting metrics.tenants), and of all others together.
OF_TENANT = _metrics("""
    windlass_tenant_attempts_total tenant = ATTEMPTS: Attempts at the tenant's jobs
    windlass_tenant_failures_total tenant = FAILED: Those that failed
    windlass_tenant_completed_total tenant = COMPLETED: Jobs that completed
    windlass_tenant_wait_seconds_total tenant = WAITED: How long those that ran had waited
    windlass_tenant_run_seconds_total tenant = RAN: How long they ran
""")
_TENANTS_NOW = _metrics("""
    windlass_tenant_jobs tenant view: The tenant's live jobs, by view
    windlass_tenant_oldest_due_age_seconds tenant: For how long its first due job has been due
""")
# How things stand, from the store.
STANDING = _metrics("""
    windlass_queue_depth type priority view: \
        Jobs that wait: due, scheduled, retrying, waiting for others, or unreadable so far
    windlass_queue_due type: Jobs that are due
    windlass_queue_swings type: How often the number of due jobs turned within 30 minutes
    windlass_oldest_due_age_seconds type priority: For how long the first due job has been due
    windlass_jobs_processing type: Jobs that run
    windlass_jobs_stuck type: Running jobs whose lease has run out
    windlass_jobs_unreadable type: Jobs of another release whose payload no live worker can read
    windlass_dlq_depth type: Dead letters
    windlass_dlq_oldest_age_seconds type: Age of the oldest dead job
    windlass_dlq_poison type: Dead letters that died again after three replays
    windlass_sample_age_seconds: How old these depths and ages are
    windlass_sample_duration_seconds: How long it took to find them
    windlass_workers state: Workers: alive, draining, deaf, silent, missing (died, not replaced)
    windlass_workers_by_version version: Workers that are alive, by release
    windlass_release_newest version: 1 if no release was first heard of later, else 0
    windlass_pool_workers pool: Workers that are alive and have the pool
    windlass_pool_slots pool state: What the pool can run at once, on all workers: all, busy, held
    windlass_slots state: What all workers can run at once: all, busy, held
    windlass_type_workers type: Workers that are alive and take jobs of the type
    windlass_type_paused type: 1 while the type is paused
    windlass_breaker_open breaker: 1 while the circuit breaker is open
    windlass_archive_oldest_age_seconds: When the oldest record ended, to the day on PostgreSQL
    windlass_archive_kept_seconds: How long records are to be kept
    windlass_tick_age_seconds tick: Since upkeep last succeeded anywhere
    windlass_checks_waiting type: Verification samples that are not checked yet
    windlass_desired_workers: How many workers the load asks for
    windlass_store_up: 1 if the store answered this scrape
""")
# What a worker, or the supervisor of several, says at its health address; gone when it is.
OWN = _metrics("""
    windlass_worker_slots worker state: What it can run at once: all, busy, held
    windlass_worker_healthy worker: 1 if it claims and the store answers
    windlass_worker_unsettled worker: Outcomes that wait to be written
    windlass_worker_beat_age_seconds worker: Since the last beat that the store confirmed
    windlass_worker_completed_total worker: Jobs that it completed since it started
    windlass_worker_failed_total worker: Attempts that failed since it started
    windlass_worker_late_total worker: Results that came too late since it started
    windlass_worker_resident_bytes worker: Memory of its process and those below it
    windlass_worker_ticks_failed_total worker part: \
        Claims, beats and the like that failed since it started, most often because the store was away
    windlass_worker_info worker version: 1; the release that it runs
""")
# All that the store counts, but by service and by tenant.
KEPT = (*COUNTED, *_LABELLED, *OF_RELEASE)
TENANTS = (*OF_TENANT, *_TENANTS_NOW)
METRICS = (*KEPT, *SERVICES, *TENANTS, *STANDING, *OWN)
BY_NAME = {metric.name: metric for metric in METRICS}
