"""What is wrong, one finding each, and the verdict on all of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from windlass.job import Error, Job, JobState, Reason, View
from windlass.ops.words import count as _count
from windlass.ops.words import serve_type, span, start_worker
from windlass.outcome import OUTSIDE_CLASS

if TYPE_CHECKING:
    from windlass.ops.overview import FleetSummary, TooNew, TypeStatus
    from windlass.store.flow import Breaker


class Cause(StrEnum):
    """What is wrong."""

    NO_WORKER = "no_worker"
    STOPPED = "stopped"
    UNSERVED = "unserved"
    UNREADABLE = "unreadable"
    # Of a payload version that no live worker takes.
    VERSION = "version"
    NOT_PROMOTED = "not_promoted"
    DEPENDENCY = "dependency"
    MISMATCH = "mismatch"
    POISON = "poison"
    PAUSED = "paused"
    HELD = "held"
    TOO_FEW_WORKERS = "too_few_workers"
    IDLE = "idle"
    STUCK = "stuck"
    BACKLOG = "backlog"
    STARVED = "starved"
    UNVERIFIED = "unverified"
    SCHEDULE = "schedule"
    SILENT = "silent"
    MISSING = "missing"
    DEAF = "deaf"
    DEAD = "dead"
    # Died again after several replays.
    REPLAYED = "replayed"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong, or (not `grave`) worth knowing, and the command that mends it."""

    cause: Cause
    grave: bool
    sentence: str
    since: datetime | None = None
    # The type that it is about.
    type: str | None = None
    mend: str | None = None


def lasting(found: Finding, now: datetime) -> str:
    """What was found, and for how long it has been so."""
    return found.sentence if found.since is None else f"{found.sentence}, for {span(now - found.since)}"


def in_a_line(found: Finding, now: datetime) -> str:
    """The same, and what to type."""
    return lasting(found, now) if found.mend is None else f"{lasting(found, now)}: {found.mend}"


# A due job that waits longer than this is worth a word.
LONG_WAIT = timedelta(seconds=60)
# Deaths count as news for so long.
LATELY = timedelta(minutes=15)
# A finding about failures is over when nothing retries and nothing has failed for so long.
OVER_AFTER = timedelta(minutes=2)
# So many jobs must fail before it is more than bad luck.
SEVERAL = 3
# Of so many types it is asked why they fail, if they are not among the newest failures.
MOST_SAMPLED = 5
# Of whatever is done often some fail. That is no trouble while they are fewer than what goes well in half a
# minute, which is this share of what went well within this time.
LATELY_DONE = timedelta(minutes=10)
_FEW = 1 / 20
_BURST = 1_000


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """How things stand: `healthy`, `notice` or `trouble`; the worst finding speaks for all of them."""

    state: str
    sentence: str
    since: datetime | None = None
    findings: tuple[Finding, ...] = ()


class Failures(msgspec.Struct, frozen=True, kw_only=True):
    """A type's newest failures: jobs that wait for another attempt, and jobs that died."""

    retrying: Sequence[Job] = ()
    # Those whose time has come again: an open breaker, or a full worker, keeps them waiting.
    due: Sequence[Job] = ()
    dead: Sequence[Job] = ()
    # How many completed within `LATELY_DONE`.
    completed: int = 0


def worth_a_sample(types: Sequence[TypeStatus]) -> list[str]:
    """The types of which so many fail that one wants to know why."""
    failing = {each.name: each.counts[View.RETRYING] + each.counts[JobState.DEAD] for each in types}
    broken = {each.name for each in types if each.breaker is not None and each.breaker.open}
    worst = sorted(
        (name for name, count in failing.items() if count >= SEVERAL or name in broken),
        key=lambda name: (name not in broken, -failing[name]),
    )
    return worst[:MOST_SAMPLED]


def verdict(
    now: datetime,
    types: Sequence[TypeStatus],
    fleet: FleetSummary,
    failures: Mapping[str, Failures],
    signalled: Sequence[Finding] = (),
) -> Verdict:
    """The findings, the worst first, and the sentence that sums them up; with those that signals tell of."""
    running = sum(each.counts[JobState.PROCESSING] for each in types)
    found = list(_fleet_findings(now, types, fleet))
    for each in types:
        found += _type_findings(now, each, fleet, failures.get(each.name, Failures()), running)
    # Jobs that are not let in only look as if nobody had time for them.
    shut_out = {each.type for each in signalled if each.cause is Cause.NOT_PROMOTED}
    found = [each for each in found if each.type not in shut_out or each.cause not in _BY_THE_WAIT]
    found += signalled
    found += _dead_letters(types, {each.type for each in found if each.cause is Cause.POISON})
    found.sort(key=lambda each: (not each.grave, list(Cause).index(each.cause), each.since or now))
    grave = [each for each in found if each.grave]
    if not found:
        return Verdict(state="healthy", sentence=_all_well(types, fleet))
    if not grave:
        return Verdict(state="notice", sentence=_all_well(types, fleet), findings=tuple(found))
    first = grave[0]
    more = f" (and {len(grave) - 1} more)" if len(grave) > 1 else ""
    return Verdict(state="trouble", sentence=first.sentence + more, since=first.since, findings=tuple(found))


def _all_well(types: Sequence[TypeStatus], fleet: FleetSummary) -> str:
    if not fleet.alive:
        return "Nothing waits, and no worker is running"
    running = sum(each.counts[JobState.PROCESSING] for each in types)
    return f"Healthy: {_count(fleet.alive, 'worker')}, {_count(running, 'job')} running, nothing waits long"


def _fleet_findings(now: datetime, types: Sequence[TypeStatus], fleet: FleetSummary) -> Sequence[Finding]:
    found: list[Finding] = []
    due = sum(each.counts[View.DUE] for each in types)
    if due and not fleet.alive:
        oldest = max((each.oldest_due for each in types if each.oldest_due is not None), default=None)
        found.append(
            Finding(
                cause=Cause.NO_WORKER,
                grave=True,
                sentence=f"No worker is running: {_count(due, 'job')} {_wait(due)}",
                since=_before(now, oldest),
                mend=start_worker(each.name for each in types if each.counts[View.DUE]),
            )
        )
    if fleet.silent:
        found.append(
            Finding(
                cause=Cause.SILENT,
                # Nobody is left who could take it back.
                grave=not fleet.alive and any(each.counts[JobState.PROCESSING] for each in types),
                sentence=f"{_count(fleet.silent, 'worker')} fell silent; "
                f"what {'it' if fleet.silent == 1 else 'they'} ran is taken back"
                + ("" if fleet.alive else " when a worker runs"),
                mend="windlass worker health",
            )
        )
    if fleet.missing:
        found.append(
            Finding(
                cause=Cause.MISSING,
                # Nobody is left to run the next job.
                grave=not fleet.alive,
                sentence=f"{_count(fleet.missing, 'worker')} died and no other has started in "
                + ("its place" if fleet.missing == 1 else "their places"),
                mend="windlass worker health" if fleet.alive else start_worker(each.name for each in types),
            )
        )
    if deaf := fleet.deaf:
        found.append(
            Finding(
                cause=Cause.DEAF,
                grave=False,
                sentence=f"{_count(len(deaf), 'worker')} not notified of new jobs "
                f"({', '.join(sorted(set(deaf)))}), which start within a second and not at once; behind a "
                "transaction pooler, say windlass_pooler=on in the database URL",
                mend="windlass worker health",
            )
        )
    return found


def _type_findings(
    now: datetime, each: TypeStatus, fleet: FleetSummary, failures: Failures, running: int
) -> Sequence[Finding]:
    """What is wrong with one type. What holds all of its jobs back is named, and not what follows from it."""
    found: list[Finding] = []
    if stuck := each.counts[View.STUCK]:
        found.append(
            Finding(
                cause=Cause.STUCK,
                grave=not fleet.alive,
                sentence=f"{_count(stuck, 'job')} of {each.name} ran out of "
                + ("its lease" if stuck == 1 else "their leases"),
                type=each.name,
                mend=f"windlass list --state stuck --type {each.name}",
            )
        )
    if (held := _shut(each, failures)) is not None:
        found.append(held)
    else:
        failing = _failing(now, each, failures)
        found += [] if failing is None else [failing]
        served = each.counts[View.DUE] and fleet.alive and not (failing is not None and failing.grave)
        if each.too_new is not None:
            found.append(_too_new(now, each, each.too_new))
            served = served and each.too_new.count < each.counts[View.DUE]
        if served and (slow := _slow(now, each, running)) is not None:
            found.append(slow)
    return found


def _dead_letters(types: Sequence[TypeStatus], told: Collection[str | None]) -> Iterator[Finding]:
    """Those that lie there, all types in one line; of which so many die now is told of by itself."""
    dead = {each.name: each.counts[JobState.DEAD] for each in types if each.name not in told}
    most = sorted((name for name, number in dead.items() if number), key=lambda name: (-dead[name], name))
    if not most:
        return
    named = [f"{dead[name]:,} of {name}" for name in most[:_NAMED]]
    more = [_count(len(most) - _NAMED, "more type")] if len(most) > _NAMED else []
    only = most[0] if len(most) == 1 else None
    letters = _count(sum(dead.values()), "dead letter")
    yield Finding(
        cause=Cause.DEAD,
        grave=False,
        sentence=f"{letters} of {only}" if only else f"{letters}: {', '.join([*named, *more])}",
        type=only,
        mend=f"windlass dlq list --type {only}" if only else "windlass dlq list --group",
    )


def _shut(each: TypeStatus, failures: Failures) -> Finding | None:
    """A pause, or an open breaker."""
    waiting = each.counts[View.DUE]
    behind = f": {_count(waiting, 'job')} {_wait(waiting)}" if waiting else ""
    if each.paused is not None:
        why = f" ({each.paused.why})" if each.paused.why else ""
        return Finding(
            cause=Cause.PAUSED,
            grave=_is_long(each),
            sentence=f"{each.name} is paused by {each.paused.by}{why}{behind}",
            since=each.paused.at,
            type=each.name,
            mend=f"windlass resume {each.name}",
        )
    if each.breaker is None or not each.breaker.open:
        return None
    if each.breaker.by_hand:
        why = f" ({each.breaker.why})" if each.breaker.why else ""
        return Finding(
            cause=Cause.PAUSED,
            grave=_is_long(each),
            sentence=f"The circuit breaker of {each.name} was opened by {each.breaker.by}{why}{behind}",
            since=each.breaker.at,
            type=each.name,
            mend=f"windlass breaker {each.name} auto",
        )
    return _behind_breaker(each, each.breaker, failures, behind)


def _behind_breaker(each: TypeStatus, breaker: Breaker, failures: Failures, behind: str) -> Finding:
    """An open breaker says that jobs keep failing. Whether a dependency is down, their errors tell."""
    failed = [*failures.retrying, *failures.due] or list(failures.dead)
    outside = [job for job in failed if _is_outage(job)]
    if failed and 2 * len(outside) >= len(failed):
        sure = any(job.error is not None and certain_outage(job.error) for job in outside)
        return Finding(
            cause=Cause.DEPENDENCY,
            grave=True,
            sentence=f"A dependency of {each.name} {'is' if sure else 'seems to be'} down{_told(outside)}; "
            f"its circuit breaker is open{behind}",
            since=breaker.at,
            type=each.name,
            mend=f"windlass breaker {each.name} close",
        )
    return Finding(
        cause=Cause.POISON,
        grave=True,
        sentence=f"Jobs of {each.name} keep failing{_told(failed)}; its circuit breaker is open{behind}",
        since=breaker.at,
        type=each.name,
        mend=_where_they_are(each),
    )


def _failing(now: datetime, each: TypeStatus, failures: Failures) -> Finding | None:
    """Attempts fail: by what is outside, or by the handler itself. Over when nothing fails any more."""
    died = [job for job in failures.dead if _died(job) and now - (job.finished_at or now) <= LATELY]
    last = max((job.finished_at for job in died if job.finished_at is not None), default=None)
    if not each.counts[View.RETRYING] and (last is None or now - last > OVER_AFTER):
        return None
    grave = each.counts[View.RETRYING] + len(died) >= _FEW * failures.completed
    outside = [job for job in (*failures.retrying, *died) if _is_outage(job)]
    if len(outside) >= SEVERAL and 2 * len(outside) >= len(failures.retrying) + len(died):
        waiting = each.counts[View.RETRYING]
        behind = f": {_count(waiting, 'job')} {_wait(waiting)} for another attempt" if waiting else ""
        return Finding(
            cause=Cause.DEPENDENCY,
            grave=grave,
            sentence=f"A dependency of {each.name} seems to be down{_told(outside)}{behind}",
            since=_first_failure(outside),
            type=each.name,
            mend=_where_they_are(each),
        )
    inside = [job for job in (*died, *failures.retrying) if job not in outside]
    if len(inside) < SEVERAL:
        return None
    dying = f"{_count(len(died), 'job')} died within {int(LATELY.total_seconds() // 60)} minutes"
    failed = dying if len(died) >= SEVERAL else f"{_count(each.counts[View.RETRYING], 'job')} failed"
    return Finding(
        cause=Cause.POISON,
        grave=grave,
        sentence=f"Jobs of {each.name} keep failing{_told(inside)}: {failed}",
        since=_first_failure(inside),
        type=each.name,
        mend=_where_they_are(each, dead_first=True),
    )


def _died(job: Job) -> bool:
    """Whether it failed: what somebody buried is in the dead letters on purpose."""
    return job.finished_at is not None and (job.error is None or job.error.reason is not Reason.CANCELLED)


def _where_they_are(each: TypeStatus, *, dead_first: bool = False) -> str:
    """The command that lists jobs which failed; never one that would list nothing."""
    dead = f"windlass dlq list --type {each.name}" if each.counts[JobState.DEAD] else None
    retrying = f"windlass list --state retrying --type {each.name}" if each.counts[View.RETRYING] else None
    first, second = (dead, retrying) if dead_first else (retrying, dead)
    return first or second or f"windlass list --type {each.name}"


def _too_new(now: datetime, each: TypeStatus, newer: TooNew) -> Finding:
    """Jobs wait for workers of a newer release."""
    return Finding(
        cause=Cause.VERSION,
        grave=True,
        sentence=f"No running worker takes version {newer.version} of {each.name}, only versions up to "
        f"{newer.newest}: {_count(newer.count, 'job')} {_wait(newer.count)}",
        since=now - newer.oldest,
        type=each.name,
        mend=f"windlass list --type {each.name} --state due",
    )


def _slow(now: datetime, each: TypeStatus, running: int) -> Finding | None:
    """Jobs wait though nothing is shut."""
    waiting, since = each.counts[View.DUE], _before(now, each.oldest_due)
    if not each.workers:
        return Finding(
            cause=Cause.UNSERVED,
            grave=True,
            sentence=f"No running worker serves {each.name}: {_count(waiting, 'job')} {_wait(waiting)} "
            f"(cancel {'it' if waiting == 1 else 'them'} if the function was deleted)",
            since=since,
            type=each.name,
            mend=serve_type(each.name),
        )
    if _is_long(each):
        return _late(each, since, running)
    if waiting < _BURST:
        return None
    sentence = f"A backlog is being worked off: {_jobs_wait(each)}, none for long"
    return Finding(cause=Cause.BACKLOG, grave=False, sentence=sentence, since=since, type=each.name)


def _late(each: TypeStatus, since: datetime | None, running: int) -> Finding:
    """Jobs have waited for long, and workers serve them: held back, idle, or too few."""
    busy, limit = each.counts[JobState.PROCESSING], each.limit
    if (limit.concurrency is not None and busy >= limit.concurrency) or limit.rate is not None:
        return Finding(
            cause=Cause.HELD,
            grave=True,
            sentence=f"The limit of {each.name} holds {_count(each.counts[View.DUE], 'job')} back",
            since=since,
            type=each.name,
            mend=f"windlass limit {each.name}",
        )
    if not running:
        return Finding(
            cause=Cause.IDLE,
            grave=True,
            sentence=f"{_jobs_wait(each)} though {_count(each.workers, 'worker')} could take them",
            since=since,
            type=each.name,
            mend="windlass worker health",
        )
    serving = "1 worker that serves" if each.workers == 1 else f"{each.workers} workers that serve"
    return Finding(
        cause=Cause.TOO_FEW_WORKERS,
        grave=True,
        sentence=f"Too few workers: {_jobs_wait(each)} behind the {serving} them",
        since=since,
        type=each.name,
        mend=f"{serve_type(each.name)} --count 2",
    )


def outage(error: Error) -> bool:
    """Whether an error looks like something outside that does not answer: by its class, else by its words."""
    if error.fatal or _class_name(error) in _OURS:
        return False
    if certain_outage(error):
        return True
    # Running into the type's own timeout says nothing of where: the handler may wait for its own lock.
    # Words are weak evidence: those of a mistake in the code count for nothing.
    return error.reason is Reason.EXCEPTION and bool(_OUTSIDE_SAID.search(error.message))


def certain_outage(error: Error) -> bool:
    """Whether the error's class says so; of errors of older releases only the name is known."""
    return not error.fatal and (error.outside or OUTSIDE_CLASS.search(_class_name(error)) is not None)


def _is_outage(job: Job) -> bool:
    return job.error is not None and outage(job.error)


def _class_name(error: Error) -> str:
    return (error.kind or "").rpartition(".")[2]


def _told(jobs: Sequence[Job]) -> str:
    """The most common error among them, in brackets."""
    said = Counter(_named(job.error) for job in jobs if job.error is not None)
    return f" ({said.most_common(1)[0][0]})" if said else ""


def _named(error: Error) -> str:
    name = (error.kind or error.reason.value).rpartition(".")[2]
    line = error.message.partition("\n")[0]
    message = line if len(line) <= _LONGEST else line[:_LONGEST] + "…"
    return f"{name}: {message}" if message else name


def _first_failure(jobs: Sequence[Job]) -> datetime | None:
    """When the first of these failed, as far as their attempts tell."""
    moments = [attempt.finished_at for job in jobs for attempt in job.history if attempt.error is not None]
    return min(moments, default=None)


def _is_long(each: TypeStatus) -> bool:
    return each.oldest_due is not None and each.oldest_due > LONG_WAIT


def _before(now: datetime, waited: timedelta | None) -> datetime | None:
    return None if waited is None else now - waited


def _jobs_wait(each: TypeStatus) -> str:
    waiting = each.counts[View.DUE]
    return f"{_count(waiting, 'job')} of {each.name} {_wait(waiting)}"


def _wait(number: int) -> str:
    return "waits" if number == 1 else "wait"


# What is concluded from nothing but how long jobs have waited.
_BY_THE_WAIT = (Cause.HELD, Cause.TOO_FEW_WORKERS, Cause.IDLE, Cause.BACKLOG)
_LONGEST = 120
_NAMED = 3
# Mistakes in a handler, and what a handler says of its own job: whatever their messages say, nothing is down.
_OURS = frozenset(
    {
        *("ArithmeticError", "AssertionError", "AttributeError", "FatalError", "ImportError", "IndexError"),
        *("InvalidValue", "KeyError", "LookupError", "ModuleNotFoundError", "NameError", "PayloadError"),
        *("NotImplementedError", "RecursionError", "SyntaxError", "TypeError", "UnboundLocalError"),
        *("UnicodeDecodeError", "UnicodeEncodeError", "ValidationError", "ValueError", "ZeroDivisionError"),
    }
)
_OUTSIDE_SAID = re.compile(
    r"\b50[234]\b|refused|timed out|unreachable|unavailable|not answer|reset by peer|name resolution",
    re.IGNORECASE,
)
