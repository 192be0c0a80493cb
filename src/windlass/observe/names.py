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
    **dict.fromkeys((WAIT, RUN, END_TO_END, ENQUEUE, ENQUEUE_CALL, SETTLE, RECEIVE), SECONDS),
    CLAIM: JOBS,
    TRIES: NUMBERS,
}


# What came of asking for jobs.
CLAIM_TAKEN = "claims.taken"
CLAIM_EMPTY = "claims.empty"
CLAIM_CONTENDED = "claims.contended"
CLAIM_FAILED = "claims.failed"

# Before a status and a route; a class of errors; a part of a worker or server and how the store failed it;
# the worker that was restarted.
ANSWERED = "answered."
ERROR = "error."
OTHER_ERROR = ERROR + history.OTHER
STORE_ERROR = "store_error."
RESTARTED = f"{RESTARTS}."


def failed_because(reason: Reason) -> str:
    """The name under which failures of one reason are counted."""
    return f"{FAILED}.{reason.value}"


def failed_with(error: Error) -> str:
    """The name under which failures of one class are counted; what has no class goes by its reason."""
    return ERROR + ((error.kind or "").rpartition(".")[2] or error.reason.value)[:_LONGEST_CLASS]


def of_tenant(tenant: str, name: str) -> str:
    """The name under which something is counted of one tenant."""
    return f"tenant.{tenant}.{name}"


def of_service(service: str, name: str) -> str:
    """The name under which something is counted of one service."""
    return f"service.{service}.{name}"


@cache
def bucket(measure: str, number: int) -> str:
    """The name of one bucket."""
    return f"{measure}.{number}"


@cache
def total(measure: str) -> str:
    """The name of the sum of what was measured, in millionths."""
    return f"{measure}.sum"
