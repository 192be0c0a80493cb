"""What does an attempt's result mean for its job? The only place that says done, again or dead."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, assert_never

import msgspec

from windlass.errors import Cancel, FatalError, RetryableError, Snooze
from windlass.job import FREE_INTERRUPTIONS, HUNG, MAX_SNOOZES, Error, Job, Output, Reason, Request, named
from windlass.origin import classes_of, module_of, short_name, told_class
from windlass.policy import Retry, Rule, Rules, ask_rules, usual_rule
from windlass.spans import LONGEST_DELAY

_AT_ONCE = timedelta(0)
_LONGEST_MESSAGE = 2_000
_LONGEST_TRACEBACK = 8_000


# --- results: what happened ---------------------------------------------------------------------


class Returned(msgspec.Struct, frozen=True):
    """The handler returned; `value` is its JSON, `missing` says why there is none although it should be."""

    value: bytes | None = None
    output: Output | None = None
    missing: str | None = None


class Raised(msgspec.Struct, frozen=True):
    """The handler raised."""

    exception: BaseException
    output: Output | None = None
    # What the exception says, if it was read already: that may run code of the application.
    failed: Failed | None = None


class Failed(msgspec.Struct, frozen=True):
    """The handler raised, possibly in another process: what the exception says, without the exception."""

    error: Error
    # What the handler, or its type's function, asked for; the exception's classes by name, nearest first.
    verdict: Rule | Literal["snooze"] | None = None
    kinds: tuple[str, ...] = ()
    delay: timedelta | None = None
    output: Output | None = None
    # What holds for such an exception if nobody says anything, and how long another attempt waits at least.
    default: Rule = "retry"
    at_least: timedelta | None = None


class Crashed(msgspec.Struct, frozen=True):
    """The process that ran the handler died, or took more memory than it may."""

    reason: Literal[Reason.CHILD_CRASHED, Reason.MEMORY_LIMIT]
    message: str
    output: Output | None = None


class TimedOut(msgspec.Struct, frozen=True):
    """The handler was stopped because its time was over."""

    after: timedelta
    output: Output | None = None
    # What to say of it, where there is more to say than the time.
    message: str = ""


class Lost(msgspec.Struct, frozen=True):
    """The worker died, or went silent for so long that its lease ran out."""

    reason: Literal[Reason.WORKER_LOST, Reason.LEASE_EXPIRED]
    # What is known about the cause.
    hang: Error | None = None


class Interrupted(msgspec.Struct, frozen=True):
    """Our own shutdown stopped the handler."""

    output: Output | None = None


class Stopped(msgspec.Struct, frozen=True):
    """An operator's request stopped the handler."""

    request: Request
    output: Output | None = None


class Unstarted(msgspec.Struct, frozen=True):
    """The job was claimed and is given back without having run."""


class Overdue(msgspec.Struct, frozen=True):
    """The job was claimed, but is older than its type allows."""


class Rejected(msgspec.Struct, frozen=True):
    """The payload does not fit the handler."""

    message: str


# How a run ends; and what else may become of a claimed job.
Ran = Returned | Raised | Failed | Crashed | TimedOut | Interrupted | Stopped
Result = Ran | Lost | Unstarted | Overdue | Rejected


# --- outcomes: what the attempt amounts to ------------------------------------------------------


class Done(Returned, frozen=True):
    """The job is completed; `missing` says why its result is not kept."""


class Again(msgspec.Struct, frozen=True):
    """The attempt failed and counts; another one follows after `delay`."""

    delay: timedelta
    error: Error
    output: Output | None = None


class Snoozed(msgspec.Struct, frozen=True):
    """The handler asked for a later run; nothing is counted but the snooze."""

    delay: timedelta


class Released(msgspec.Struct, frozen=True):
    """The job is given back at once with its attempt; `error` tells of an interrupted run."""

    error: Error | None = None
    output: Output | None = None


class Left(msgspec.Struct, frozen=True):
    """This release cannot read the payload, and another one can: the job waits for a worker of that one.

    Nothing is counted. After `ends_in` everybody may take it again; None: only other releases may.
    """

    ends_in: timedelta | None
    # Which payloads this worker can read, and what it has against this one.
    reader: str
    field: str
    problem: str


class Dead(msgspec.Struct, frozen=True):
    """No further attempt: the job goes to the dead letters. `why` stands above the attempt's own error."""

    error: Error
    why: Error | None = None
    output: Output | None = None
    # The handler said that no attempt can help: nothing is wrong with what it depends on.
    fatal: bool = False


class Cancelled(msgspec.Struct, frozen=True):
    """The job ends as cancelled."""

    error: Error
    output: Output | None = None


Outcome = Done | Again | Snoozed | Released | Left | Dead | Cancelled


# --- the decision -------------------------------------------------------------------------------


class Policy(msgspec.Struct, frozen=True):
    """What a type says about its failures."""

    retry: Retry = Retry()
    rules: Rules = {}
    max_age: timedelta | None = None


def decide(
    job: Job, result: Result, policy: Policy, *, now: datetime, chance: Callable[[], float]
) -> Outcome:
    """What the result of the job's present attempt amounts to. Pure: runner and reaper both ask here.

    `now` is the store's time and `chance` gives numbers in [0, 1) for the jitter.
    """
    match result:
        case Returned(value, output, missing):
            return Done(value, output, missing)
        case Unstarted():
            return Released()
        case Interrupted(output):
            return _interrupted(job, output)
        case Lost(reason, hang):
            return _again(job, policy, now, _AT_ONCE, hang or Error(reason, message=_LOST[reason]))
        case Stopped(request, output):
            return stopped(request, output)
        case Overdue():
            return Dead(_expired(job, policy))
        case Rejected(message):
            return Dead(Error(Reason.INVALID_PAYLOAD, message=clean(message, _LONGEST_MESSAGE)))
        case TimedOut() | Crashed():
            return _failed(job, policy, now, _backoff(job, policy, chance), _error_of(result), result.output)
        case Raised() | Failed():
            return _raised(job, _told(job, result, policy), policy, now, chance)
        case _:
            assert_never(result)


def is_overdue(job: Job, policy: Policy, now: datetime) -> bool:
    """Whether the job is older than its type allows."""
    return policy.max_age is not None and now - job.enqueued_at > policy.max_age


def _error_of(result: TimedOut | Crashed) -> Error:
    if isinstance(result, Crashed):
        return Error(result.reason, message=clean(result.message, _LONGEST_MESSAGE))
    told = result.message or f"stopped after its timeout of {result.after.total_seconds():g} s"
    return Error(Reason.TIMEOUT, message=told)


def _told(job: Job, result: Raised | Failed, policy: Policy) -> Failed:
    if isinstance(result, Failed):
        return result
    if result.failed is not None:
        return result.failed
    return failure(result.exception, policy.rules, named(job), result.output)


def failure(
    exception: BaseException,
    rules: Rules | None = None,
    fields: Mapping[str, Any] = {},
    output: Output | None = None,
) -> Failed:
    """What an exception says, in words that another process understands.

    Rules that are a function are asked here, where the exception is; `fields` name the job in the log. All of
    this may run code of the application, which may raise anything or never return: call it while the
    attempt's time runs.
    """
    verdict = _verdict(exception)
    if verdict is None and callable(rules):
        verdict = ask_rules(rules, exception, fields)
    default, at_least = usual_rule(exception)
    return Failed(
        describe(exception),
        verdict,
        tuple(told_class(kind) for kind in classes_of(exception)),
        _delay(exception) if issubclass(type(exception), (Snooze, RetryableError)) else None,
        output,
        default,
        at_least,
    )


def _verdict(exception: BaseException) -> Rule | Literal["snooze"] | None:
    """The handler's own words."""
    said: dict[type, Rule | Literal["snooze"]] = {
        Snooze: "snooze",
        Cancel: "cancel",
        FatalError: "fatal",
        RetryableError: "retry",
    }
    # By its real classes: isinstance() would ask its `__class__`, which may be code of the application.
    return next((verdict for kind, verdict in said.items() if issubclass(type(exception), kind)), None)


def _delay(exception: BaseException) -> timedelta | None:
    try:
        delay: timedelta | None = getattr(exception, "delay", None)
    except BaseException:  # noqa: BLE001 # wall: user code in a property must not end the worker
        return None
    return delay


def _raised(job: Job, failed: Failed, policy: Policy, now: datetime, chance: Callable[[], float]) -> Outcome:
    error, output = failed.error, failed.output
    match failed.verdict or _rule_for(failed, policy.rules) or failed.default:
        case "snooze":
            if job.snoozes < MAX_SNOOZES:
                return Snoozed(_bounded(failed.delay or _AT_ONCE))
            return Dead(Error(Reason.EXCEPTION, "Snooze", f"snoozed {MAX_SNOOZES} times without running"))
        case "cancel":
            return Cancelled(error, output)
        case "fatal":
            return Dead(msgspec.structs.replace(error, fatal=True), output=output, fatal=True)
        case "retry":
            if failed.delay is not None:
                return _again(job, policy, now, failed.delay, error, output)
            seconds = _backoff(job, policy, chance, failed.at_least)
            return _failed(job, policy, now, seconds, error, output)
        case other:
            assert_never(other)


def _rule_for(failed: Failed, rules: Rules) -> Rule | None:
    """The rule of the nearest class; classes are compared by name, since the other process has its own."""
    if rules and not callable(rules):
        by_name = {told_class(kind): rule for kind, rule in rules.items()}
        for kind in failed.kinds:
            if kind in by_name:
                return by_name[kind]
    return None


def _backoff(
    job: Job, policy: Policy, chance: Callable[[], float], at_least: timedelta | None = None
) -> float | None:
    """Seconds until the next attempt, None for no other; not before what the other side asked for."""
    once: list[float] = []

    def drawn() -> float:
        once.append(chance())
        return once[0]

    seconds = policy.retry.delay(job.attempts, drawn)
    if seconds is None or at_least is None:
        return seconds
    # With the jitter on top, or all who were told the same would come back at the same moment.
    return max(seconds, at_least.total_seconds() + policy.retry.jitter * once[0])


def _failed(
    job: Job, policy: Policy, now: datetime, seconds: float | None, error: Error, output: Output | None
) -> Outcome:
    if seconds is None:
        return Dead(error, output=output)
    return _again(job, policy, now, timedelta(seconds=seconds), error, output)


def _again(
    job: Job, policy: Policy, now: datetime, delay: timedelta, error: Error, output: Output | None = None
) -> Outcome:
    if job.attempts >= job.max_attempts:
        return Dead(error, output=output)
    wait = _bounded(delay)
    if is_overdue(job, policy, now + wait):
        return Dead(error, why=_expired(job, policy), output=output)
    return Again(wait, error, output)


def _bounded(delay: timedelta) -> timedelta:
    return min(max(delay, _AT_ONCE), LONGEST_DELAY)


def _interrupted(job: Job, output: Output | None) -> Outcome:
    error = Error(Reason.INTERRUPTED, message="the worker was stopped while the job was running")
    if job.interruptions < FREE_INTERRUPTIONS:
        return Released(error, output)
    if job.attempts >= job.max_attempts:
        return Dead(error, output=output)
    return Again(_AT_ONCE, error, output)


def stopped(request: Request, output: Output | None, error: Error | None = None) -> Outcome:
    """The end that an operator asked for, with the attempt's own error if it has one."""
    error = error or Error(Reason.CANCELLED, message="stopped by an operator's request")
    match request:
        case Request.CANCEL:
            return Cancelled(error, output)
        case Request.BURY:
            return Dead(error, output=output)
        case _:
            assert_never(request)


def _expired(job: Job, policy: Policy) -> Error:
    limit = policy.max_age.total_seconds() if policy.max_age else 0
    return Error(
        Reason.EXPIRED, message=f"older than its type's max_age of {limit:g} s; enqueued {job.enqueued_at}"
    )


_LOST: dict[Reason, str] = {
    Reason.WORKER_LOST: "the worker died or went silent while the job was running",
    Reason.LEASE_EXPIRED: "the lease ran out without being renewed",
}


# Names of classes such as ConnectionError, httpx.ReadTimeout, socket.gaierror, ServiceUnavailable.
OUTSIDE_CLASS = re.compile(
    r"Connect(ion|Error|Timeout|$)|Timeout|gaierror|herror|Unavailable|Unreachable|BadGateway"
    r"|NetworkError|TransportError|NameResolution|ServerSelection|SSLError"
)
_SERVER_ERRORS = range(500, 600)


def hung(seconds: float, stacks: str) -> Error:
    """A job that kept its worker from answering; the stacks tell where."""
    message = f"the worker did not answer for {seconds:.0f} s; this job seems to hold the GIL"
    told = clean(stacks or "no stacks could be read", _LONGEST_TRACEBACK)
    return Error(Reason.WORKER_LOST, HUNG, message, told)


# --- telling of errors --------------------------------------------------------------------------


def describe(exception: BaseException) -> Error:
    """An exception as a record that every store can keep."""
    kind = type(exception)
    # Where the worker's own exceptions are defined is nobody's business but ours.
    module, name = module_of(kind), told_class(kind)
    if module == "builtins" or module.startswith("windlass.worker."):
        name = name.removeprefix(f"{module}.")
    try:
        message = str(exception)
    except BaseException as broken:  # noqa: BLE001 # wall: user code in __str__ must not end the worker
        message = f"<its message could not be read: {short_name(type(broken))}>"
    return Error(
        Reason.EXCEPTION,
        clean(name, _LONGEST_MESSAGE),
        clean(message, _LONGEST_MESSAGE),
        clean_end(_traceback(exception), _LONGEST_TRACEBACK),
        outside=_comes_from_outside(exception),
    )


def _traceback(exception: BaseException) -> str:
    """Its traceback with those of its causes; if that cannot be had, the lines where it was raised."""
    try:
        return "".join(traceback.format_exception(exception))
    except BaseException:  # noqa: BLE001 # wall: user code in __str__ must not end the worker
        where: Any = BaseException.__dict__["__traceback__"]
    try:
        return "".join(traceback.format_tb(where.__get__(exception)))
    except BaseException:  # noqa: BLE001 # wall: a module's loader is user code, too
        return ""


def _comes_from_outside(exception: BaseException) -> bool:
    """Whether its class says that something else did not answer, or failed: never by its message."""
    if any(OUTSIDE_CLASS.search(short_name(kind)) for kind in classes_of(exception)):
        return True
    try:
        response = getattr(exception, "response", None)
        status = getattr(response, "status_code", None) or getattr(exception, "code", None)
        status = status or getattr(exception, "status", None)
    except BaseException:  # noqa: BLE001 # wall: user code in a property must not end the worker
        return False
    return type(status) is int and status in _SERVER_ERRORS


def clean(text: str, limit: int) -> str:
    """What every store can keep of a text: no NUL, no half characters, at most `limit` long."""
    text = _storable(text)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit} more characters)"


def clean_end(text: str, limit: int) -> str:
    """As `clean`, but the end of a long text is kept: that is where tracebacks and commands say why."""
    text = _storable(text)
    return text if len(text) <= limit else f"({len(text) - limit} characters before) …{text[-limit:]}"


def _storable(text: str) -> str:
    # Past the methods of a subclass of str, which may be user code.
    return str.replace(text, "\0", "\N{SYMBOL FOR NULL}").encode("utf-8", "replace").decode("utf-8")
