"""What is wrong, one finding each, and the verdict on all of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from windlass.job import Error, Job, JobState, Reason, View
from windlass.observe import names
from windlass.ops.words import count as _count
from windlass.ops.words import serve_type, span, start_worker
from windlass.outcome import OUTSIDE_CLASS
from windlass.store.jobs import Filter
from windlass.store.store import Store

if TYPE_CHECKING:
    from windlass.ops.overview import FleetSummary, Overview, TypeStatus


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
    # An operation that has not moved for long.
    OPERATION = "operation"
    SILENT = "silent"
    MISSING = "missing"
    DEAF = "deaf"
    DEAD = "dead"
    # Died again after several replays.
    REPLAYED = "replayed"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong, or (not `grave`) worth knowing, and the command that fixes it."""

    cause: Cause
    grave: bool
    sentence: str
    since: datetime | None = None
    # The type that it is about.
    type: str | None = None
    fix: str | None = None


def finding(
    cause: Cause,
    sentence: str,
    fix: str | None = None,
    since: datetime | None = None,
    *,
    of: str | None = None,
    grave: bool = True,
) -> Finding:
    """A finding, about a type if one is named."""
    return Finding(cause=cause, grave=grave, sentence=sentence, since=since, type=of, fix=fix)


def lasting(found: Finding, now: datetime) -> str:
    """What was found, and for how long it has been so."""
    return found.sentence if found.since is None else f"{found.sentence}, for {span(now - found.since)}"


def in_a_line(found: Finding, now: datetime) -> str:
    """The same, and what to type."""
    return lasting(found, now) if found.fix is None else f"{lasting(found, now)}: {found.fix}"


# A due job that waits longer than this is worth a word.
LONG_WAIT = timedelta(seconds=60)
# Deaths count as news for so long.
LATELY = timedelta(minutes=15)
# A finding about failures is over when nothing retries and nothing has failed for so long.
OVER_AFTER = timedelta(minutes=2)
# So many jobs must fail before it is more than bad luck.
SEVERAL = 3
# So many failures are looked at, of all types together, and so many of a type that is not among them.
_NEWEST = 100
_OTHERS = 20
# Those of one type that are tried again are searched for behind its due jobs, and this is done every second.
_FEW_ENOUGH = 50_000
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
    if grave:
        more = f" (and {len(grave) - 1} more)" if len(grave) > 1 else ""
        sentence = grave[0].sentence + more
        return Verdict(state="trouble", sentence=sentence, since=grave[0].since, findings=tuple(found))
    well = "Nothing waits, and no worker is running"
    if fleet.alive:
        working = f"{_count(fleet.alive, 'worker')}, {_count(running, 'job')} running"
        well = f"Healthy: {working}, nothing waits long"
    return Verdict(state="notice" if found else "healthy", sentence=well, findings=tuple(found))


def judged(seen: Overview, store: Store, signalled: Sequence[Finding]) -> Overview:
    """One look at everything, with the verdict; of which signals and schedules tell of their own."""
    worst = worth_a_sample(seen.types)
    failures = _failures(seen, store, worst) if worst else {}
    shown = verdict(seen.now, seen.types, seen.fleet, failures, signalled)
    lines = [in_a_line(each, seen.now) for each in shown.findings]
    return structs.replace(seen, verdict=shown, warnings=lines)


def _failures(seen: Overview, store: Store, worst: Sequence[str]) -> Mapping[str, Failures]:
    """By time and not by type: a few that fail among a million that wait are found at once."""
    found: dict[str, list[Job]] = {}
    for job in store.failures(limit=_NEWEST):
        found.setdefault(job.type, []).append(job)
    # How many jobs of each type went well lately.
    happened = store.increases([LATELY_DONE])[LATELY_DONE]
    for each in seen.types:
        # One that fails more than all others must not hide what they fail of.
        if each.name in worst and each.name not in found:
            found[each.name] = _others(store, each)
    return {
        name: Failures(
            retrying=[job for job in jobs if job.view(seen.now) is View.RETRYING],
            due=[job for job in jobs if job.view(seen.now) is View.DUE],
            dead=[job for job in jobs if job.state is JobState.DEAD],
            completed=happened.get((name, names.COMPLETED), 0),
        )
        for name, jobs in found.items()
    }


def _others(store: Store, each: TypeStatus) -> list[Job]:
    name, counts = each.name, each.counts
    wanted = [Filter(types=(name,), states=(JobState.DEAD,))] if counts[JobState.DEAD] else []
    if counts[View.RETRYING] and counts[View.DUE] <= _FEW_ENOUGH:
        wanted.append(Filter(types=(name,), view=View.RETRYING))
    return [job for where in wanted for job in store.find(where, limit=_OTHERS).jobs]


def _fleet_findings(now: datetime, types: Sequence[TypeStatus], fleet: FleetSummary) -> Iterator[Finding]:
    due, health = [each for each in types if each.counts[View.DUE]], "windlass worker health"
    if due and not fleet.alive:
        oldest = max((each.oldest_due for each in types if each.oldest_due is not None), default=None)
        waiting = sum(each.counts[View.DUE] for each in due)
        sentence = f"No worker is running: {_count(waiting, 'job')} {_wait(waiting)}"
        start = start_worker(each.name for each in due)
        yield finding(Cause.NO_WORKER, sentence, start, _before(now, oldest))
    if fleet.silent:
        what = f"what {'it' if fleet.silent == 1 else 'they'} ran is taken back"
        when = "" if fleet.alive else " when a worker runs"
        # Nobody is left who could take it back.
        grave = not fleet.alive and any(each.counts[JobState.PROCESSING] for each in types)
        sentence = f"{_count(fleet.silent, 'worker')} fell silent; {what}{when}"
        yield finding(Cause.SILENT, sentence, health, grave=grave)
    if fleet.missing:
        where = "its place" if fleet.missing == 1 else "their places"
        sentence = f"{_count(fleet.missing, 'worker')} died and no other has started in {where}"
        fix = health if fleet.alive else start_worker(each.name for each in types)
        # Grave: nobody is left to run the next job.
        yield finding(Cause.MISSING, sentence, fix, grave=not fleet.alive)
    if deaf := fleet.deaf:
        sentence = (
            f"{_count(len(deaf), 'worker')} not notified of new jobs "
            f"({', '.join(sorted(set(deaf)))}), which start within a second and not at once; behind a "
            "transaction pooler, say windlass_pooler=on in the database URL"
        )
        yield finding(Cause.DEAF, sentence, health, grave=False)


def _type_findings(
    now: datetime, each: TypeStatus, fleet: FleetSummary, failures: Failures, running: int
) -> Iterator[Finding]:
    """What is wrong with one type. What holds all of its jobs back is named, and not what follows from it."""
    if stuck := each.counts[View.STUCK]:
        leases = "its lease" if stuck == 1 else "their leases"
        sentence = f"{_count(stuck, 'job')} of {each.name} ran out of {leases}"
        fix = f"windlass list --state stuck --type {each.name}"
        yield finding(Cause.STUCK, sentence, fix, grave=not fleet.alive, of=each.name)
    if (held := _shut(each, failures)) is not None:
        yield held
        return
    failing = _failing(now, each, failures)
    if failing is not None:
        yield failing
    served = each.counts[View.DUE] and fleet.alive and not (failing is not None and failing.grave)
    if (newer := each.too_new) is not None:
        # Jobs wait for workers of a newer release.
        none = f"No running worker takes version {newer.version} of {each.name}, only versions up to"
        sentence = f"{none} {newer.newest}: {_count(newer.count, 'job')} {_wait(newer.count)}"
        fix = f"windlass list --type {each.name} --state due"
        yield finding(Cause.VERSION, sentence, fix, now - newer.oldest, of=each.name)
        served = served and newer.count < each.counts[View.DUE]
    if served and (slow := _slow(now, each, running)) is not None:
        yield slow


def _dead_letters(types: Sequence[TypeStatus], other: Collection[str | None]) -> Iterator[Finding]:
    """Those that lie there, all types in one line; of which so many die now is told of by itself."""
    dead = {each.name: each.counts[JobState.DEAD] for each in types if each.name not in other}
    most = sorted((name for name, number in dead.items() if number), key=lambda name: (-dead[name], name))
    if not most:
        return
    named = [f"{dead[name]:,} of {name}" for name in most[:_NAMED]]
    more = [_count(len(most) - _NAMED, "more type")] if len(most) > _NAMED else []
    only = most[0] if len(most) == 1 else None
    letters = _count(sum(dead.values()), "dead letter")
    sentence = f"{letters} of {only}" if only else f"{letters}: {', '.join([*named, *more])}"
    fix = f"windlass dlq list --type {only}" if only else "windlass dlq list --group"
    yield finding(Cause.DEAD, sentence, fix, of=only, grave=False)


def _shut(each: TypeStatus, failures: Failures) -> Finding | None:
    """A pause, or an open breaker."""
    waiting = each.counts[View.DUE]
    behind = f": {_count(waiting, 'job')} {_wait(waiting)}" if waiting else ""
    pause, breaker = each.paused, each.breaker
    if pause is not None:
        why = f" ({pause.why})" if pause.why else ""
        sentence = f"{each.name} is paused by {pause.by}{why}{behind}"
        fix = f"windlass resume {each.name}"
        return finding(Cause.PAUSED, sentence, fix, pause.at, grave=_is_long(each), of=each.name)
    if breaker is None or not breaker.open:
        return None
    if breaker.by_hand:
        why = f" ({breaker.why})" if breaker.why else ""
        sentence = f"The circuit breaker of {each.name} was opened by {breaker.by}{why}{behind}"
        fix = f"windlass breaker {each.name} auto"
        return finding(Cause.PAUSED, sentence, fix, breaker.at, grave=_is_long(each), of=each.name)
    # An open breaker says that jobs keep failing. Whether a dependency is down, their errors tell.
    failed = [*failures.retrying, *failures.due] or list(failures.dead)
    outside = [job for job in failed if _is_outage(job)]
    behind = f"; its circuit breaker is open{behind}"
    if failed and 2 * len(outside) >= len(failed):
        sure = any(job.error is not None and certain_outage(job.error) for job in outside)
        down = f"A dependency of {each.name} {'is' if sure else 'seems to be'} down{_quoted(outside)}"
        return finding(
            Cause.DEPENDENCY, down + behind, f"windlass breaker {each.name} close", breaker.at, of=each.name
        )
    sentence = f"Jobs of {each.name} keep failing{_quoted(failed)}{behind}"
    return finding(Cause.POISON, sentence, _where_they_are(each), breaker.at, of=each.name)


def _failing(now: datetime, each: TypeStatus, failures: Failures) -> Finding | None:
    """Attempts fail: by what is outside, or by the handler itself. Over when nothing fails any more."""
    # What somebody buried is in the dead letters on purpose.
    failed = [job for job in failures.dead if not job.error or job.error.reason is not Reason.CANCELLED]
    died = [job for job in failed if job.finished_at is not None and now - job.finished_at <= LATELY]
    last = max((job.finished_at for job in died if job.finished_at is not None), default=None)
    retrying = each.counts[View.RETRYING]
    if not retrying and (last is None or now - last > OVER_AFTER):
        return None
    grave = retrying + len(died) >= _FEW * failures.completed
    outside = [job for job in (*failures.retrying, *died) if _is_outage(job)]
    if len(outside) >= SEVERAL and 2 * len(outside) >= len(failures.retrying) + len(died):
        behind = f": {_count(retrying, 'job')} {_wait(retrying)} for another attempt" if retrying else ""
        sentence = f"A dependency of {each.name} seems to be down{_quoted(outside)}{behind}"
        since = _first_failure(outside)
        return finding(Cause.DEPENDENCY, sentence, _where_they_are(each), since, grave=grave, of=each.name)
    inside = [job for job in (*died, *failures.retrying) if job not in outside]
    if len(inside) < SEVERAL:
        return None
    dying = f"{_count(len(died), 'job')} died within {int(LATELY.total_seconds() // 60)} minutes"
    many = dying if len(died) >= SEVERAL else f"{_count(retrying, 'job')} failed"
    sentence = f"Jobs of {each.name} keep failing{_quoted(inside)}: {many}"
    where = _where_they_are(each, dead_first=True)
    return finding(Cause.POISON, sentence, where, _first_failure(inside), grave=grave, of=each.name)


def _where_they_are(each: TypeStatus, *, dead_first: bool = False) -> str:
    """The command that lists jobs which failed; never one that would list nothing."""
    dead = f"windlass dlq list --type {each.name}" if each.counts[JobState.DEAD] else None
    retrying = f"windlass list --state retrying --type {each.name}" if each.counts[View.RETRYING] else None
    first, second = (dead, retrying) if dead_first else (retrying, dead)
    return first or second or f"windlass list --type {each.name}"


def _slow(now: datetime, each: TypeStatus, running: int) -> Finding | None:
    """Jobs wait though nothing is shut."""
    waiting, since = each.counts[View.DUE], _before(now, each.oldest_due)
    many = f"{_count(waiting, 'job')} of {each.name} {_wait(waiting)}"
    if not each.workers:
        sentence = (
            f"No running worker serves {each.name}: {_count(waiting, 'job')} {_wait(waiting)} "
            f"(cancel {'it' if waiting == 1 else 'them'} if the function was deleted)"
        )
        return finding(Cause.UNSERVED, sentence, serve_type(each.name), since, of=each.name)
    if not _is_long(each):
        sentence = f"A backlog is being worked off: {many}, none for long"
        return (
            None
            if waiting < _BURST
            else finding(Cause.BACKLOG, sentence, since=since, grave=False, of=each.name)
        )
    # They have waited for long, and workers serve them: held back, idle, or too few.
    busy, limit = each.counts[JobState.PROCESSING], each.limit
    if (limit.concurrency is not None and busy >= limit.concurrency) or limit.rate is not None:
        sentence = f"The limit of {each.name} holds {_count(waiting, 'job')} back"
        return finding(Cause.HELD, sentence, f"windlass limit {each.name}", since, of=each.name)
    if not running:
        idle = f"{many} though {_count(each.workers, 'worker')} could take them"
        return finding(Cause.IDLE, idle, "windlass worker health", since, of=each.name)
    serving = "1 worker that serves" if each.workers == 1 else f"{each.workers} workers that serve"
    sentence = f"Too few workers: {many} behind the {serving} them"
    return finding(Cause.TOO_FEW_WORKERS, sentence, f"{serve_type(each.name)} --count 2", since, of=each.name)


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


def _quoted(jobs: Sequence[Job]) -> str:
    """The most common error among them, in brackets."""
    said: Counter[str] = Counter()
    for error in (job.error for job in jobs if job.error is not None):
        line = error.message.partition("\n")[0]
        message = line if len(line) <= _LONGEST else line[:_LONGEST] + "…"
        name = _class_name(error) or error.reason.value
        said[f"{name}: {message}" if message else name] += 1
    return f" ({said.most_common(1)[0][0]})" if said else ""


def _first_failure(jobs: Sequence[Job]) -> datetime | None:
    """When the first of these failed, as far as their attempts tell."""
    moments = [attempt.finished_at for job in jobs for attempt in job.history if attempt.error is not None]
    return min(moments, default=None)


def _is_long(each: TypeStatus) -> bool:
    return each.oldest_due is not None and each.oldest_due > LONG_WAIT


def _before(now: datetime, waited: timedelta | None) -> datetime | None:
    return None if waited is None else now - waited


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
