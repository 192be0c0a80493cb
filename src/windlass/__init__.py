"""Windlass: a background job queue for Python on SQLite or PostgreSQL."""

import logging

from windlass.context import Context
from windlass.errors import (
    AmbiguousKey,
    Cancel,
    ConfirmationNeeded,
    Conflict,
    FatalError,
    IdConflict,
    InvalidPayload,
    InvalidValue,
    JobNotFound,
    JobUnsuccessful,
    KeyConflict,
    KeyMissing,
    LeaseLost,
    QueueFull,
    Refused,
    ResultMissing,
    RetryableError,
    Snooze,
    StoreBusy,
    StoreError,
    StoreMismatch,
    StoreMoved,
    StoreUnavailable,
    TransactionTooLong,
    UniqueConflict,
    UnknownType,
    WaitTimeout,
    WindlassError,
    WrongState,
)
from windlass.job import Job, JobState
from windlass.policy import Retry
from windlass.queue import Client, ContextJobType, JobHandle, JobType, Queue

__all__ = [
    "AmbiguousKey",
    "Cancel",
    "Client",
    "ConfirmationNeeded",
    "Conflict",
    "Context",
    "ContextJobType",
    "FatalError",
    "IdConflict",
    "InvalidPayload",
    "InvalidValue",
    "Job",
    "JobHandle",
    "JobNotFound",
    "JobState",
    "JobType",
    "JobUnsuccessful",
    "KeyConflict",
    "KeyMissing",
    "LeaseLost",
    "Queue",
    "QueueFull",
    "Refused",
    "ResultMissing",
    "Retry",
    "RetryableError",
    "Snooze",
    "StoreBusy",
    "StoreError",
    "StoreMismatch",
    "StoreMoved",
    "StoreUnavailable",
    "TransactionTooLong",
    "UniqueConflict",
    "UnknownType",
    "WaitTimeout",
    "WindlassError",
    "WrongState",
]

# The application decides what is logged, and where; without its word nothing is.
logging.getLogger("windlass").addHandler(logging.NullHandler())
