"""What is counted, and under which names does the store's history have it?"""

from __future__ import annotations

from functools import cache

from windlass.job import Error, Reason
from windlass.store import history

ENQUEUED = history.ENQUEUED
DEAD = history.DEAD
REPLAYED = history.REPLAYED
CONFIRMED = history.CONFIRMED
DEPTH = history.DEPTH
DUE = history.DUE
# In microseconds.
OLDEST = history.OLDEST

# Of a release and type, or of a tenant; RAN and WAITED in microseconds.
ATTEMPTS = history.ATTEMPTS
RAN = history.RAN
WAITED = "waited"
of_release = history.of_release
# Of one type each.
STARTED = "started"
COMPLETED = "completed"
FAILED = history.FAILED
RETRIED = "retried"
CANCELLED = "cancelled"
DISCARDED = "discarded"
SNOOZED = "snoozed"
RELEASED = "released"
REAPED = "reaped"
# Results that came after their lease had been lost.
LATE = "late"
# What came of verification samples.
MATCHED = "matched"
MISMATCHED = "mismatched"
CHECKS_HUNG = "checks_hung"
# Of all of them together.
RENEWED = "renewed"
LOST = "lost"
WORKERS_LOST = "workers_lost"
RESTARTS = history.RESTARTS
OOM_KILLS = "oom_kills"
# Records that were deleted at the end of their retention.
PRUNED = "pruned"

# Requests to enqueue over HTTP, by what came of them.
ACCEPTED = "accepted"
INVALID = "invalid"
EXISTING = "existing"
REFUSED = "refused"
BROKEN = "broken"

# Measured, each as `name.sum` in microseconds and `name.0` and so on, a count for each bucket.
WAIT = "wait"
RUN = history.RUN
END_TO_END = "end_to_end"
ENQUEUE = "enqueue"
# In the process of a producer, by a call in Python.
ENQUEUE_CALL = "enqueue_call"
SETTLE = "settle"
CLAIM = "claim"
RECEIVE = "receive"
TRIES = "tries"

# In seconds, how many jobs a claim brought, and how many attempts a job took.
SECONDS = (0.005, 0.02, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0, 21600.0)
_LONGEST_CLASS = 100
JOBS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)
NUMBERS = (1.0, 2.0, 3.0, 5.0, 10.0, 20.0)
BOUNDS: dict[str, tuple[float, ...]] = {
    WAIT: SECONDS,
    RUN: SECONDS,
    END_TO_END: SECONDS,
    ENQUEUE: SECONDS,
    ENQUEUE_CALL: SECONDS,
    SETTLE: SECONDS,
    CLAIM: JOBS,
    RECEIVE: SECONDS,
    TRIES: NUMBERS,
}


# What came of asking for jobs.
CLAIM_TAKEN = "claims.taken"
CLAIM_EMPTY = "claims.empty"
CLAIM_CONTENDED = "claims.contended"
CLAIM_FAILED = "claims.failed"

_ANSWERED = "answered."
_ERROR = "error."
OTHER_ERROR = _ERROR + history.OTHER
_STORE_ERROR = "store_error."
_RESTARTED = f"{RESTARTS}."


def failed_because(reason: Reason) -> str:
    """The name under which failures of one reason are counted."""
    return f"{FAILED}.{reason.value}"


def failed_with(error: Error) -> str:
    """The name under which failures of one class are counted; what has no class goes by its reason."""
    return _ERROR + ((error.kind or "").rpartition(".")[2] or error.reason.value)[:_LONGEST_CLASS]


def error_of(name: str) -> str | None:
    """The class of such a name; None if it is another one."""
    return name.removeprefix(_ERROR) if name.startswith(_ERROR) else None


def store_error(part: str, error: str) -> str:
    """The name under which it is counted that the store failed a part of a worker or server."""
    return f"{_STORE_ERROR}{part}.{error}"


def store_error_of(name: str) -> tuple[str, str] | None:
    """The part and the error of such a name; None if it is another one."""
    if not name.startswith(_STORE_ERROR):
        return None
    part, _, error = name.removeprefix(_STORE_ERROR).partition(".")
    return part, error


def restarted(worker: str) -> str:
    """The name under which restarts in one worker's place are counted."""
    return f"{_RESTARTED}{worker}"


def restarted_of(name: str) -> str | None:
    """The worker of such a name; None if it is another one."""
    return name.removeprefix(_RESTARTED) if name.startswith(_RESTARTED) else None


def of_tenant(tenant: str, name: str) -> str:
    """The name under which something is counted of one tenant."""
    return f"tenant.{tenant}.{name}"


def of_service(service: str, name: str) -> str:
    """The name under which something is counted of one service."""
    return f"service.{service}.{name}"


def answered(status: int, route: str) -> str:
    """The name under which answers of one status are counted, by route."""
    return f"{_ANSWERED}{status}.{route}"


def answer_of(name: str) -> tuple[str, str] | None:
    """The route and the status of such a name; None if it is another one."""
    if not name.startswith(_ANSWERED):
        return None
    status, _, route = name.removeprefix(_ANSWERED).partition(".")
    return route, status


@cache
def bucket(measure: str, number: int) -> str:
    """The name of one bucket."""
    return f"{measure}.{number}"


@cache
def total(measure: str) -> str:
    """The name of the sum of what was measured, in millionths."""
    return f"{measure}.sum"
