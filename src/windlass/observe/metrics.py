"""Which metrics are there? Every one once, with its meaning; docs/observability.md is held to it."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from windlass.observe import names

PREFIX = "windlass_"


class Kind(StrEnum):
    """What can be done with a metric's values."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One metric. Of a counter or histogram from the store's history, `counted` is its name there."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    counted: str | None = None


def _of_type(name: str, counted: str, help_: str) -> Metric:
    return Metric(name=name, kind=Kind.COUNTER, help=help_, labels=("type",), counted=counted)


def _of_all(name: str, counted: str, help_: str) -> Metric:
    return Metric(name=name, kind=Kind.COUNTER, help=help_, counted=counted)


def _measured(name: str, counted: str, help_: str, labels: tuple[str, ...] = ()) -> Metric:
    return Metric(name=name, kind=Kind.HISTOGRAM, help=help_, labels=labels, counted=counted)


def _gauge(name: str, help_: str, *labels: str) -> Metric:
    return Metric(name=name, kind=Kind.GAUGE, help=help_, labels=labels)


# Counted in the store: alike from every server, and a restart changes nothing.
COUNTED: tuple[Metric, ...] = (
    _of_type("windlass_jobs_enqueued_total", names.ENQUEUED, "Jobs that came in"),
    _of_type("windlass_jobs_started_total", names.STARTED, "Attempts that ran, once they are settled"),
    _of_type("windlass_jobs_completed_total", names.COMPLETED, "Jobs that completed"),
    _of_type("windlass_jobs_failed_total", names.FAILED, "Attempts that failed"),
    _of_type("windlass_jobs_retried_total", names.RETRIED, "Failed attempts that another one follows"),
    _of_type("windlass_jobs_dead_total", names.DEAD, "How often jobs went to the dead letters"),
    _of_type("windlass_jobs_cancelled_total", names.CANCELLED, "Jobs that were cancelled"),
    _of_type("windlass_jobs_discarded_total", names.DISCARDED, "Dead jobs that were closed for good"),
    _of_type("windlass_jobs_replayed_total", names.REPLAYED, "Dead jobs that were sent back"),
    _of_type("windlass_jobs_snoozed_total", names.SNOOZED, "Runs that asked for a later one"),
    _of_type(
        "windlass_jobs_released_total", names.RELEASED, "Claims that were given back, unstarted or cut off"
    ),
    _of_type("windlass_jobs_reaped_total", names.REAPED, "Leases taken from workers that were gone"),
    _of_type("windlass_results_late_total", names.LATE, "Results discarded because the lease had been lost"),
    _of_type("windlass_checks_matched_total", names.MATCHED, "Verified jobs that did what they should"),
    _of_type(
        "windlass_checks_mismatched_total",
        names.MISMATCHED,
        "Completed jobs that had not done what they should",
    ),
    _of_type("windlass_checks_hung_total", names.CHECKS_HUNG, "Checks that did not end in time"),
    _of_type(
        "windlass_jobs_confirmed_total",
        names.CONFIRMED,
        "Jobs whose effect was acknowledged later, once each",
    ),
    _of_all("windlass_leases_renewed_total", names.RENEWED, "Leases of long jobs that were renewed"),
    _of_all("windlass_leases_lost_total", names.LOST, "Leases that were lost while their job ran"),
    _of_all("windlass_workers_lost_total", names.WORKERS_LOST, "Workers that were declared dead"),
    _of_all("windlass_worker_restarts_total", names.RESTARTS, "Workers that died and were started again"),
    _of_all(
        "windlass_worker_oom_kills_total",
        names.OOM_KILLS,
        "Workers that the kernel killed for lack of memory, as their supervisor saw it",
    ),
    _of_all(
        "windlass_records_pruned_total",
        names.PRUNED,
        "Records of ended and dead jobs that were deleted at the end of their retention",
    ),
    _measured("windlass_job_wait_seconds", names.WAIT, "From due to claimed", ("type",)),
    _measured("windlass_job_run_seconds", names.RUN, "How long attempts ran", ("type",)),
    _measured("windlass_job_end_to_end_seconds", names.END_TO_END, "From enqueued to completed", ("type",)),
    _measured("windlass_job_attempts", names.TRIES, "How many attempts completed jobs took", ("type",)),
    _measured("windlass_enqueue_seconds", names.ENQUEUE, "How long requests to enqueue took, over HTTP"),
    _measured(
        "windlass_enqueue_call_seconds",
        names.ENQUEUE_CALL,
        "How long calls to enqueue took in Python; each process reports once a minute",
    ),
    _measured("windlass_settle_seconds", names.SETTLE, "How long it took to write a batch of outcomes"),
    _measured("windlass_claim_seconds", names.RECEIVE, "From asking for jobs to having some"),
    _measured("windlass_claim_jobs", names.CLAIM, "How many jobs a claim brought, if any"),
)
CLAIMS = Metric(
    name="windlass_claims_total",
    kind=Kind.COUNTER,
    help="Claims: taken (brought jobs), empty (others were faster), contended (a limit was locked), failed",
    labels=("result",),
)
ERRORS = Metric(
    name="windlass_job_errors_total",
    kind=Kind.COUNTER,
    help="Attempts that failed, by the class of the error; of each type the commonest classes",
    labels=("type", "error"),
)
STORE_ERRORS = Metric(
    name="windlass_store_errors_total",
    kind=Kind.COUNTER,
    help="How often the store failed a part of a worker or server: unavailable, busy (timed out), other",
    labels=("part", "error"),
)
PLACE_RESTARTS = Metric(
    name="windlass_worker_place_restarts_total",
    kind=Kind.COUNTER,
    help="Restarts by worker: its host, and which of its supervisor's workers it is",
    labels=("worker",),
)
FAILURES = Metric(
    name="windlass_job_failures_total",
    kind=Kind.COUNTER,
    help="Attempts that failed, by reason",
    labels=("type", "reason"),
)
REQUESTS = Metric(
    name="windlass_enqueue_requests_total",
    kind=Kind.COUNTER,
    help="Requests to enqueue over HTTP: accepted, existing (known), invalid, refused (too many), broken",
    labels=("result",),
)

REFUSALS = Metric(
    name="windlass_http_refusals_total",
    kind=Kind.COUNTER,
    help="Requests over HTTP that were answered with 401, 403, 421, 429 or 5xx, by route",
    labels=("route", "status"),
)

# Of the services that have API keys and produce, and of those beyond the bound together.
SERVICE_ENQUEUED = Metric(
    name="windlass_service_enqueued_total",
    kind=Kind.COUNTER,
    help="Jobs that came in over HTTP, by the service whose API key they came with",
    labels=("service",),
)
SERVICE_REQUESTS = Metric(
    name="windlass_service_requests_total",
    kind=Kind.COUNTER,
    help="Its requests to enqueue: accepted, existing (known), invalid, refused (too many), broken",
    labels=("service", "result"),
)
SERVICES: tuple[Metric, ...] = (SERVICE_ENQUEUED, SERVICE_REQUESTS)

# Of attempts by the release that ran them, if the application names its releases.
OF_RELEASE: tuple[Metric, ...] = tuple(
    Metric(name=name, kind=Kind.COUNTER, help=help_, labels=("type", "version"), counted=counted)
    for name, counted, help_ in (
        ("windlass_release_attempts_total", names.ATTEMPTS, "Attempts, by the release that ran them"),
        ("windlass_release_failures_total", names.FAILED, "Those that failed"),
        ("windlass_release_run_seconds_total", names.RAN, "How long they ran together"),
    )
)

RELEASE_RUN = Metric(
    name="windlass_release_duration_seconds",
    kind=Kind.HISTOGRAM,
    help="How long attempts ran, by the release that ran them",
    labels=("type", "version"),
)

# Of the tenants that operators name (the setting metrics.tenants), and of all others together.
OF_TENANT: tuple[Metric, ...] = tuple(
    Metric(name=name, kind=Kind.COUNTER, help=help_, labels=("tenant",), counted=counted)
    for name, counted, help_ in (
        ("windlass_tenant_attempts_total", names.ATTEMPTS, "Attempts at the tenant's jobs"),
        ("windlass_tenant_failures_total", names.FAILED, "Those that failed"),
        ("windlass_tenant_completed_total", names.COMPLETED, "Jobs that completed"),
        ("windlass_tenant_wait_seconds_total", names.WAITED, "How long those that ran had waited"),
        ("windlass_tenant_run_seconds_total", names.RAN, "How long they ran"),
    )
)
TENANT_JOBS = _gauge("windlass_tenant_jobs", "The tenant's live jobs, by view", "tenant", "view")
TENANT_OLDEST = _gauge(
    "windlass_tenant_oldest_due_age_seconds", "For how long its first due job has been due", "tenant"
)
TENANTS: tuple[Metric, ...] = (*OF_TENANT, TENANT_JOBS, TENANT_OLDEST)

# How things stand, from the store.
QUEUE_DEPTH = _gauge(
    "windlass_queue_depth",
    "Jobs that wait: due, scheduled, retrying, waiting for others, or unreadable so far",
    "type",
    "priority",
    "view",
)
QUEUE_DUE = _gauge("windlass_queue_due", "Jobs that are due", "type")
SWINGS = _gauge(
    "windlass_queue_swings",
    "How often the number of due jobs turned within 30 minutes",
    "type",
)
OLDEST_DUE = _gauge(
    "windlass_oldest_due_age_seconds", "For how long the first due job has been due", "type", "priority"
)
PROCESSING = _gauge("windlass_jobs_processing", "Jobs that run", "type")
STUCK = _gauge("windlass_jobs_stuck", "Running jobs whose lease has run out", "type")
UNREADABLE = _gauge(
    "windlass_jobs_unreadable",
    "Jobs of another release whose payload no live worker can read",
    "type",
)
DLQ_DEPTH = _gauge("windlass_dlq_depth", "Dead letters", "type")
DLQ_OLDEST = _gauge("windlass_dlq_oldest_age_seconds", "Age of the oldest dead job", "type")
DLQ_POISON = _gauge("windlass_dlq_poison", "Dead letters that died again after three replays", "type")
SAMPLE_AGE = _gauge("windlass_sample_age_seconds", "How old these depths and ages are")
SAMPLE_TIME = _gauge("windlass_sample_duration_seconds", "How long it took to find them")
WORKERS = _gauge(
    "windlass_workers",
    "Workers: alive, draining, deaf, silent, missing (died, not replaced)",
    "state",
)
VERSIONS = _gauge("windlass_workers_by_version", "Workers that are alive, by release", "version")
NEWEST = _gauge("windlass_release_newest", "1 if no release was first heard of later, else 0", "version")
POOL_WORKERS = _gauge("windlass_pool_workers", "Workers that are alive and have the pool", "pool")
POOL_SLOTS = _gauge(
    "windlass_pool_slots", "What the pool can run at once, on all workers: all, busy, held", "pool", "state"
)
SLOTS = _gauge("windlass_slots", "What all workers can run at once: all, busy, held", "state")
SERVING = _gauge("windlass_type_workers", "Workers that are alive and take jobs of the type", "type")
PAUSED = _gauge("windlass_type_paused", "1 while the type is paused", "type")
BREAKER = _gauge("windlass_breaker_open", "1 while the circuit breaker is open", "breaker")
ARCHIVE_AGE = _gauge(
    "windlass_archive_oldest_age_seconds", "When the oldest record ended, to the day on PostgreSQL"
)
ARCHIVE_KEPT = _gauge("windlass_archive_kept_seconds", "How long records are to be kept")
TICK_AGE = _gauge("windlass_tick_age_seconds", "Since upkeep last succeeded anywhere", "tick")
CHECKS_WAITING = _gauge("windlass_checks_waiting", "Verification samples that are not checked yet", "type")
DESIRED = _gauge("windlass_desired_workers", "How many workers the load asks for")
STORE_UP = _gauge("windlass_store_up", "1 if the store answered this scrape")

STANDING: tuple[Metric, ...] = (
    *(
        QUEUE_DEPTH,
        QUEUE_DUE,
        SWINGS,
        OLDEST_DUE,
        PROCESSING,
        STUCK,
        UNREADABLE,
        DLQ_DEPTH,
        DLQ_OLDEST,
        DLQ_POISON,
        SAMPLE_AGE,
        SAMPLE_TIME,
    ),
    *(WORKERS, VERSIONS, NEWEST, POOL_WORKERS, POOL_SLOTS, SLOTS, SERVING, PAUSED, BREAKER),
    *(ARCHIVE_AGE, ARCHIVE_KEPT, TICK_AGE, CHECKS_WAITING, DESIRED, STORE_UP),
)


# What a worker, or the supervisor of several, says at its health address; gone when it is.
def _own(name: str, kind: Kind, help_: str, *labels: str) -> Metric:
    return Metric(name=name, kind=kind, help=help_, labels=("worker", *labels))


OWN_SLOTS = _own("windlass_worker_slots", Kind.GAUGE, "What it can run at once: all, busy, held", "state")
OWN_HEALTH = _own("windlass_worker_healthy", Kind.GAUGE, "1 if it claims and the store answers")
OWN_UNSETTLED = _own("windlass_worker_unsettled", Kind.GAUGE, "Outcomes that wait to be written")
OWN_BEAT = _own(
    "windlass_worker_beat_age_seconds", Kind.GAUGE, "Since the last beat that the store confirmed"
)
OWN_DONE = _own("windlass_worker_completed_total", Kind.COUNTER, "Jobs that it completed since it started")
OWN_FAILED = _own("windlass_worker_failed_total", Kind.COUNTER, "Attempts that failed since it started")
OWN_LATE = _own("windlass_worker_late_total", Kind.COUNTER, "Results that came too late since it started")
OWN_RESIDENT = _own("windlass_worker_resident_bytes", Kind.GAUGE, "Memory of its process and those below it")
OWN_TROUBLE = _own(
    "windlass_worker_ticks_failed_total",
    Kind.COUNTER,
    "Claims, beats and the like that failed since it started, most often because the store was away",
    "part",
)
OWN_INFO = _own("windlass_worker_info", Kind.GAUGE, "1; the release that it runs", "version")
OWN: tuple[Metric, ...] = (
    *(OWN_SLOTS, OWN_HEALTH, OWN_UNSETTLED, OWN_BEAT, OWN_DONE, OWN_FAILED, OWN_LATE, OWN_RESIDENT),
    OWN_TROUBLE,
    OWN_INFO,
)

# All that the store counts, but by service and by tenant.
KEPT: tuple[Metric, ...] = (
    *(*COUNTED, CLAIMS, FAILURES, ERRORS, STORE_ERRORS, PLACE_RESTARTS, REQUESTS, REFUSALS),
    *(*OF_RELEASE, RELEASE_RUN),
)
METRICS: tuple[Metric, ...] = (
    *KEPT,
    *(*SERVICES, *TENANTS, *STANDING, *OWN),
)
