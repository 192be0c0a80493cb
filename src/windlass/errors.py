"""Every error that Windlass raises, and what it means.

WindlassError
├── InvalidValue            a value out of its range or form (also a ValueError)
├── Refused                 well-formed, but against the rules; nothing was changed
│   ├── UnknownType         no such job type is registered
│   ├── InvalidPayload      the payload does not fit the type's schema, or is too large
│   ├── KeyMissing          a field is encrypted, or to be encrypted, with a key that is not here
│   ├── JobNotFound         no job has that id or key
│   ├── WorkerNotFound      no worker has that id
│   ├── ScheduleNotFound    no schedule has that name
│   ├── QueueFull           too many jobs wait already; try again later
│   └── Conflict            the request conflicts with what exists
│       ├── KeyConflict     the key is taken by a job with another type or payload
│       ├── AmbiguousKey    several jobs have the key, of different tenants or callers
│       ├── IdConflict      the caller-made id is taken
│       ├── ScheduleConflict  the name is taken, or the schedule is the code's
│       ├── UniqueConflict  another job holds the unique name
│       ├── WrongState      the job's state does not allow the verb
│       └── ConfirmationNeeded  a sensitive job is replayed only with a confirmation
├── StoreError              the store did not do what it was asked
│   ├── StoreBusy           another process held the write lock for too long
│   ├── StoreUnavailable    cannot be opened, reached or written
│   ├── StoreMismatch       not a Windlass store, or of a version that this code does not know
│   └── StoreMoved          its jobs are in another store now
├── LeaseLost               this attempt lost its lease; its result was discarded
├── TransactionTooLong      a handler held the only writer for too long; nothing was written
├── WaitTimeout             `job.wait()` ended before the job did
├── JobUnsuccessful         `job.result()` of a job that ended without one
├── ResultMissing           `job.result()` of a completed job whose result could not be kept
└── Verdict                 raised by handlers to say what shall happen
    ├── RetryableError      try again later
    ├── FatalError          never try again: to the dead letters
    ├── Snooze              not now: again after a delay, no attempt used
    └── Cancel              end as cancelled
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, ClassVar, Protocol

from windlass.spans import LONGEST_DELAY, Duration, checked_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class WindlassError(Exception):
    """The root of all errors that Windlass raises."""

    def __reduce__(self) -> tuple[object, ...]:
        # Copies, also in another process, are made without calling the constructors of the classes below.
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[WindlassError], args: tuple[object, ...], state: dict[str, object]) -> WindlassError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


class InvalidValue(WindlassError, ValueError):
    """A value that is out of its range or form; `field` names it, `value` is what was given."""

    def __init__(self, message: str, *, field: str, value: object, allowed: str = "") -> None:
        self.field = field
        self.value = value
        # What would have been accepted, as words that follow "must be".
        self.allowed = allowed
        super().__init__(message)


def must_be(field: str, value: object, allowed: str) -> InvalidValue:
    """The usual message: the field, what is allowed, and what was given."""
    message = f"{field} must be {allowed}, got {_shown(value)}"
    return InvalidValue(message, field=field, value=value, allowed=allowed)


def every_problem(error: WindlassError) -> list[str]:
    """What is wrong, a line for each problem; an error reads as its first one."""
    problems: Sequence[WindlassError] = getattr(error, "problems", ())
    return [str(error), *(str(each) for each in problems[1:])]


class Refused(WindlassError):
    """A well-formed request that the rules do not allow; nothing was changed."""

    # Of many jobs, the one that was refused, counted from 0.
    index: int | None = None
    # Of more than one transaction takes, how many were stored before it; the others were not.
    stored: int = 0

    def __str__(self) -> str:
        told = super().__str__()
        if self.index is not None:
            told = f"job {self.index} of the batch: {told}"
        return f"{told} (the first {self.stored:,} jobs of the batch are stored)" if self.stored else told

    def moved(self, by: int) -> None:
        """Count the job that was refused from `by` jobs further ahead."""
        if self.index is not None:
            self.index += by


class UnknownType(Refused):
    """No job type of that name is registered in the store."""

    def __init__(self, job_type: str, known: Iterable[str]) -> None:
        self.job_type = job_type
        names = ", ".join(sorted(known)) or "none"
        super().__init__(f"unknown job type {_shown(job_type)}; registered types: {names}")


class InvalidPayload(Refused):
    """The payload does not fit the schema of its type, cannot be stored, or is too large."""

    # Every value in it that is not allowed, where single ones are to blame.
    problems: tuple[InvalidValue, ...] = ()
    too_large: bool = False


class KeyMissing(Refused):
    """A field is encrypted, or shall be, and this process does not have the key."""


class JobNotFound(Refused):
    """No job has that id or key, or no batch that id."""

    def __init__(self, name: str, what: str = "job") -> None:
        self.name = name
        names = "id or key" if what == "job" else "id"
        super().__init__(f"no {what} has the {names} {_shown(name)}")


class WorkerNotFound(Refused):
    """No worker has that id."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"no worker has the id {_shown(name)}; `windlass worker health` lists them")


class ScheduleNotFound(Refused):
    """No schedule has that name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"no schedule has the name {_shown(name)}; `windlass schedule list` lists them")


class QueueFull(Refused):
    """Too many jobs are waiting, so no more are accepted; the same request may succeed later."""

    retryable: ClassVar[bool] = True
    retry_after: ClassVar[float] = 5.0

    def __init__(self, of: str, depth: int, limit: int, setting: str = "hard_depth") -> None:
        self.depth = depth
        self.limit = limit
        waiting = f"about {depth:,} jobs {of} are waiting, limit {limit:,} ({setting})"
        super().__init__(f"{waiting}; not stored, retry later")


class Conflict(Refused):
    """The request conflicts with what exists."""

    # The other job of the same batch that is the reason, counted from 0.
    twin: int | None = None

    def clashes(self, twin: int) -> None:
        """Say which other job of the same batch is the reason."""
        self.twin = twin
        self.args = (self._twice(twin),)
        self.__dict__["job_id"] = None

    def moved(self, by: int) -> None:
        """Count both jobs from `by` jobs further ahead."""
        super().moved(by)
        if self.twin is not None:
            before, _, after = str(self.args[0]).rpartition(f"job {self.twin}")
            self.twin += by
            self.args = (f"{before}job {self.twin}{after}",)

    def _twice(self, twin: int) -> str:
        return f"it conflicts with job {twin} of the same batch"


class KeyConflict(Conflict):
    """The key is taken by a job of another type or payload; answering with that job would lose work."""

    def __init__(self, key: str, job_id: str) -> None:
        self.key = key
        self.job_id = job_id
        super().__init__(
            f"key {_shown(key)} belongs to job {job_id}, which has another type or payload; "
            'use another key, or on_conflict="existing" to be given that job',
        )

    def _twice(self, twin: int) -> str:
        return f"key {_shown(self.key)} is also the key of job {twin}, which has another type or payload"


class AmbiguousKey(Conflict):
    """Several jobs have the key, each within its own tenant or caller; none of them was picked."""

    def __init__(self, key: str, jobs: Sequence[_Owned]) -> None:
        self.key = key
        self.jobs = tuple(job.id for job in jobs)
        shown = ", ".join(f"{job.id}{_owner(job)}" for job in jobs)
        super().__init__(
            f"key {_shown(key)} belongs to {len(jobs)} jobs: {shown}; name the tenant, or use a job's id"
        )


class _Owned(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def tenant(self) -> str: ...
    @property
    def caller(self) -> str: ...


def _owner(job: _Owned) -> str:
    told = [f"tenant {_shown(job.tenant)}" if job.tenant else "no tenant"]
    return f" ({', '.join(told + [f'caller {_shown(job.caller)}'] * bool(job.caller))})"


class IdConflict(Conflict):
    """The id made by the caller belongs to another job."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(f"id {job_id} belongs to another job; leave the id out to be given a new one")


class ScheduleConflict(Conflict):
    """The name is taken by another schedule, or the schedule belongs to the code."""

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        super().__init__(f"schedule {_shown(name)} {why}")


class UniqueConflict(Conflict):
    """Another job holds the unique name, and the request may not take its place."""

    def __init__(self, name: str, job_id: str, state: str) -> None:
        self.name = name
        self.job_id = job_id
        self.state = state
        super().__init__(f"the unique name {_shown(name)} is held by job {job_id}, which is {state}")

    def _twice(self, twin: int) -> str:
        return f"the unique name {_shown(self.name)} is also asked for by job {twin}"


class WrongState(Conflict):
    """The job's state does not allow the verb."""

    def __init__(self, job_id: str, verb: str, state: str, allowed: str, hint: str = "") -> None:
        self.job_id = job_id
        self.state = state
        message = f"cannot {_doing(verb)} job {job_id}: it is {state}; {verb} is for {allowed} jobs"
        super().__init__(f"{message}; {hint}" if hint else message)

    def named(self, verb: str) -> None:
        """Speak of the verb that was asked for: to the store and to a server some verbs are edits."""
        message = str(self.args[0]).replace("cannot edit job ", f"cannot {_doing(verb)} job ", 1)
        self.args = (message.replace("; edit is for ", f"; {verb} is for ", 1),)


def _doing(verb: str) -> str:
    return "change the priority of" if verb == "priority" else verb


class ConfirmationNeeded(Conflict):
    """The job's type is marked as sensitive: whoever replays it must say that they have looked at it."""

    def __init__(self, job_id: str, job_type: str) -> None:
        self.job_id = job_id
        super().__init__(
            f"type {_shown(job_type)} is sensitive: look at job {job_id} and at what its attempts have done, "
            'then replay it with --confirm (over HTTP "confirm": true)'
        )


class StoreError(WindlassError):
    """The store did not do what it was asked, or could not say that it did.

    `retryable`: the same request may succeed later, and sending it again with the same key, id or draft
    does not do it twice.
    """

    retryable: ClassVar[bool] = False


class StoreBusy(StoreError):
    """Somebody else held the write lock for too long; nothing was written. Trying again is safe."""

    retryable: ClassVar[bool] = True


class StoreUnavailable(StoreError):
    """The store cannot be opened, reached or written, or its answer was lost. Trying again later is safe."""

    retryable: ClassVar[bool] = True


class StoreMismatch(StoreError):
    """Not a Windlass store, or made by a version that this code does not know."""


class StoreMoved(StoreError):
    """The jobs are in another store now. This one can be read, and nobody may write to it."""

    def __init__(self, place: str, moved_to: str) -> None:
        self.moved_to = moved_to
        super().__init__(f"{place} has moved to {moved_to}; nothing was written: use that store")


class LeaseLost(WindlassError):
    """The attempt lost its lease: the job is another worker's, or has ended. What it wrote is undone."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(f"this attempt lost its lease on job {job_id}; its result was discarded")


class TransactionTooLong(WindlassError):
    """A handler's transaction held the only writer of a file for too long, and was undone."""

    def __init__(self, path: str, seconds: float) -> None:
        super().__init__(
            f"a transaction on {path} may take {seconds:g} s, since nobody else can write meanwhile; it was "
            "undone: do the slow part before it"
        )


class WaitTimeout(WindlassError, TimeoutError):
    """The job had not ended when the wait was over; it continues."""


class JobUnsuccessful(WindlassError):
    """The job ended without a result: dead, cancelled or discarded."""


class ResultMissing(WindlassError):
    """The job completed, but what its handler returned could not be kept."""

    def __init__(self, job_id: str, why: str) -> None:
        self.job_id = job_id
        self.why = why
        super().__init__(f"job {job_id} completed, but its result was not kept: {why}")


class Verdict(WindlassError):
    """What a handler raises to say what shall happen to its job."""


class RetryableError(Verdict):
    """Try again, after `after` (or `delay`, the same) if given, else after the type's backoff."""

    def __init__(
        self, message: str = "", *, after: Duration | None = None, delay: Duration | None = None
    ) -> None:
        super().__init__(message)
        if after is not None and delay is not None:
            raise must_be("delay", delay, "left out when after is given")
        name, given = ("delay", delay) if after is None else ("after", after)
        self.delay = None if given is None else _delay(f"RetryableError({name}=)", given)


class FatalError(Verdict):
    """No further attempt can help: the job goes to the dead letters at once."""


class Snooze(Verdict):
    """Not now: run again after `delay`; this attempt is not counted."""

    def __init__(self, delay: Duration, message: str = "") -> None:
        super().__init__(message)
        self.delay = _delay("Snooze(delay)", delay)


class Cancel(Verdict):
    """The job is no longer wanted: it ends as cancelled."""


def _delay(field: str, value: Duration) -> timedelta:
    found = checked_duration(value, LONGEST_DELAY)
    if isinstance(found, str):
        raise must_be(field, value, found)
    return found


def _shown(value: object) -> str:
    text = value.isoformat() if isinstance(value, datetime) else repr(value)
    text = str(value) if isinstance(value, timedelta) else text
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"


_LONGEST_SHOWN = 200
