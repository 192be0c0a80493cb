"""Is a history possible, given what docs/guarantees.md promises?

Each job is a register of its own: its enqueue, its executions, what operators did to it, and what the store
says of it in the end. A fault explains what happened to the executions of its process, and nothing else.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from tests.history.end import End
from tests.history.record import FAULTS, Call, Outcome, Verb
from tests.history.result import Promise, Result, few
from windlass.job import ENDED, LIVE, Job, JobState, Reason

ACCEPTED = "no accepted job is missing"
ASKED = "no job is there, and none ran, that no one had asked for"
REFUSED = "no refused job is there"
KEYS = "a key means one job"
ALL_ENDED = "every job has ended"
LEASED = "no job is processing without a live lease"
ATTEMPTS = "no job ran more often than max_attempts"
NUMBERS = "attempts are numbered in the order of their starts"
OVERLAPS = "executions of a job overlap only if the first was cut off"
AGAIN = "nothing ran again that no fault had touched"
RERUN = "what was cut off ran again, or has ended"
LATE = "what was killed ran again in time"
COMPLETED = "a job is completed only if a handler returned"
RETURNED = "what returned untouched is completed"
STOPPED = "a cancelled or ended job does not start again"
DEAD = "a dead job has its errors in its story"
STORY = "every attempt is in the story of its job"
LEGAL = "every job is in a state that its calls allow"
COUNTS = "the store's counts are those of its tables"
SOUND = "the store's own check finds nothing"

# Of executions: where handlers record nothing, they cannot be judged.
OF_RUNS = frozenset({NUMBERS, OVERLAPS, AGAIN, RERUN, LATE, COMPLETED, RETURNED, STOPPED})
_ALL = (
    *(ACCEPTED, ASKED, REFUSED, KEYS, ALL_ENDED, LEASED, ATTEMPTS, NUMBERS, OVERLAPS, AGAIN, RERUN, LATE),
    *(COMPLETED, RETURNED, STOPPED, DEAD, STORY, LEGAL, COUNTS, SOUND),
)
# What operators do to one job; other verbs mean something to the script that records them.
ACTIONS = frozenset({"cancel", "bury", "discard", "replay", "edit"})
_LOST = frozenset({Reason.WORKER_LOST, Reason.LEASE_EXPIRED})
# After these a process may still be there, and may not know that its leases are lost.
_LINGERING = frozenset({Verb.FREEZE, Verb.CUT_OFF})
_ARCHIVED = ENDED - LIVE
# How many of the newest ended jobs the store counts one by one.
_COUNTED_RECORDS = 10_000
# How many records a job keeps.
_STORY_LENGTH = 50


@dataclass(frozen=True)
class Rules:
    """What differs between runs."""

    # Every job is to have ended.
    all_end: bool = True
    # Jobs that are processing have a live lease: not where the last workers are killed in the end.
    leases: bool = True
    # What was killed runs again within these seconds, while the store is there; None is not judged.
    rerun: float | None = None
    # A living worker records an execution's end within this time.
    recorded: float = 5.0
    # After an outage every process has found the store again within this time.
    reconnected: float = 6.0
    # Job types whose handlers record their executions; None: all do.
    recording: frozenset[str] | None = None

    def times(self, slack: float) -> Rules:
        """The same on a machine on which everything takes longer."""
        rerun = None if self.rerun is None else slack * self.rerun
        return replace(
            self, rerun=rerun, recorded=slack * self.recorded, reconnected=slack * self.reconnected
        )

    def records(self, job: Job) -> bool:
        """Whether this job's handler records its executions."""
        return self.recording is None or job.type in self.recording


NOT_RECORDED = Rules(recording=frozenset())


class Problem(NamedTuple):
    """A promise that a job's history breaks."""

    promise: str
    job: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.job} ({self.detail})" if self.detail else self.job


class Verdict(NamedTuple):
    """What a history amounts to."""

    problems: list[Problem]
    promises: list[Promise]
    # From each kill to the next start of what it cut off.
    recovery: list[float]
    counts: dict[str, float]
    injected: dict[str, int]

    @property
    def held(self) -> bool:
        """Whether every promise held."""
        return not self.problems

    def add_to(self, result: Result) -> None:
        """Make it part of a run's result."""
        result.add(*self.promises)
        result.recovery += self.recovery
        result.counts |= self.counts
        result.injected |= self.injected


class Faults:
    """What was done to processes, and when the store was away."""

    def __init__(self, calls: Iterable[Call], rules: Rules) -> None:
        self._rules = rules
        self._by_process: defaultdict[str, list[Call]] = defaultdict(list)
        self.outages: list[Call] = []
        self.all = [call for call in calls if call.verb in FAULTS]
        for call in self.all:
            if call.verb == Verb.OUTAGE:
                self.outages.append(call)
            else:
                self._by_process[call.process].append(call)

    def touching(self, run: Call, before: float) -> Iterator[Call]:
        """The faults that may have cost an execution its record by that time; an outage alone never does."""
        for each in self._of(run):
            in_time = run.end is None or each.start <= run.end + self._rules.recorded + self.away(
                run.end, each.start
            )
            # A command may outlive its killed worker for a moment, and begin in it.
            lasts = each.end is None or each.end >= run.start or (each.verb == Verb.KILL and not each.jobs)
            if each.start <= before and lasts and in_time:
                yield each

    def untouched(self, run: Call, before: float) -> bool:
        """Whether no fault explains that an execution is not recorded by that time."""
        return next(self.touching(run, before), None) is None

    def stale(self, run: Call) -> bool:
        """Whether its process may have begun it without knowing that its lease was lost."""
        return any(each.verb in _LINGERING and each.start <= run.start for each in self._of(run))

    def away(self, since: float, until: float) -> float:
        """For how many seconds between two moments nothing could be recorded: no second counts twice."""
        seconds, counted = 0.0, since
        for each in sorted(self.outages, key=lambda each: each.start):
            begins = max(counted, each.start)
            ends = min(until, (each.end or until) + self._rules.reconnected)
            if ends > begins:
                seconds, counted = seconds + ends - begins, ends
        return seconds

    def _of(self, run: Call) -> Iterator[Call]:
        for each in (*self._by_process.get(run.process, ()), *self._by_process.get("*", ())):
            if not each.jobs or run.job in each.jobs:
                yield each


@dataclass
class Register:
    """One job: what was asked, what ran, what operators did, and how it ended."""

    id: str
    enqueues: list[Call] = field(default_factory=list)
    runs: list[Call] = field(default_factory=list)
    actions: list[Call] = field(default_factory=list)
    found: Job | None = None

    @property
    def accepted(self) -> bool:
        """Whether an enqueue was answered with it."""
        return any(self.id in call.answer for call in self.enqueues)

    def problems(
        self, faults: Faults, rules: Rules, now: datetime, workers: Collection[str]
    ) -> Iterator[Problem]:
        """What is not possible."""
        job = self.found
        yield from self._asked()
        if job is None:
            if self.accepted:
                yield Problem(ACCEPTED, self.id)
            return
        yield from self._state(job, rules, now, workers)
        yield from self._attempts(job, faults)
        yield from self._story(job)
        if rules.records(job):
            yield from self._pairs(faults)
            yield from self._cut_off(job, faults, rules)
            yield from self._completed(job, faults, rules)
            yield from self._stopped(job, faults)

    def _asked(self) -> Iterator[Problem]:
        """A job, and each execution, comes after a request for it that was not refused."""
        since = [call.start for call in self.enqueues if call.outcome is not Outcome.REFUSED]
        if since:
            early = [run for run in self.runs if run.start < min(since)]
            if early:
                yield Problem(ASKED, self.id, "it ran before it was enqueued")
        elif self.enqueues:
            if self.found is not None or self.runs:
                yield Problem(REFUSED, self.id)
        elif self.found is not None or self.runs:
            yield Problem(ASKED, self.id)

    def _state(self, job: Job, rules: Rules, now: datetime, workers: Collection[str]) -> Iterator[Problem]:
        if rules.all_end and job.state not in ENDED:
            yield Problem(ALL_ENDED, job.id, job.state)
        if job.state is JobState.PROCESSING and rules.leases:
            live = job.lease_until is not None and job.lease_until > now and job.worker in workers
            if not live:
                yield Problem(LEASED, job.id, f"{job.worker} until {job.lease_until}")
        verbs = {call.verb for call in self.actions if call.outcome is not Outcome.REFUSED}
        if job.state is JobState.CANCELLED and "cancel" not in verbs:
            yield Problem(LEGAL, job.id, "cancelled by no one")
        if job.state is JobState.DISCARDED and "discard" not in verbs:
            yield Problem(LEGAL, job.id, "discarded by no one")
        if job.state is JobState.DEAD and job.error is not None and not verbs:
            early = job.attempts < job.max_attempts
            if early and job.error.reason in _LOST:
                yield Problem(LEGAL, job.id, f"dead at attempt {job.attempts} of {job.max_attempts}")

    def _attempts(self, job: Job, faults: Faults) -> Iterator[Problem]:
        """Snoozes and what our own shutdown interrupts do not count; a replay or new work begins at zero."""
        stopped = sum(
            any(each.verb == Verb.STOP for each in faults.touching(run, float("inf"))) for run in self.runs
        )
        lives = 1 + job.replay_count + len(self._replacing())
        allowed = job.max_attempts * lives + job.snoozes + min(stopped, job.interruptions)
        most = max((run.attempt for run in self.runs), default=0)
        if job.attempts > job.max_attempts or most > job.max_attempts or len(self.runs) > allowed:
            ran = f"{len(self.runs)} executions, attempt {max(most, job.attempts)} of {job.max_attempts}"
            yield Problem(ATTEMPTS, job.id, ran)

    def _story(self, job: Job) -> Iterator[Problem]:
        buried = any(call.verb == "bury" for call in self.actions)
        if job.state is JobState.DEAD and not buried:
            last = job.history[-1].error if job.history else None
            if job.error is None or last is None:
                yield Problem(DEAD, job.id)
        if job.ended and not job.replay_count and len(job.history) < _STORY_LENGTH and not self.actions:
            told = {entry.number for entry in job.history}
            missing = set(range(1, job.attempts + 1)) - told
            if missing:
                yield Problem(STORY, job.id, f"without attempt {min(missing)}")

    def _pairs(self, faults: Faults) -> Iterator[Problem]:
        """Each execution against those that began before it."""
        runs = sorted(self.runs, key=lambda run: run.start)
        for place, later in enumerate(runs):
            for run in runs[:place]:
                overlap = run.end is not None and run.end > later.start
                if overlap and faults.untouched(run, later.start) and not faults.stale(later):
                    yield Problem(OVERLAPS, self.id, f"attempts {run.attempt} and {later.attempt}")
            if place:
                yield from self._pair(runs[place - 1], later, faults)

    def _pair(self, run: Call, later: Call, faults: Faults) -> Iterator[Problem]:
        if self._replayed(run.start, later.start) or faults.stale(later):
            return
        touched = list(faults.touching(run, later.start))
        snoozed = self.found is not None and self.found.snoozes
        if run.outcome is not Outcome.REFUSED and not touched:
            yield Problem(AGAIN, self.id, f"after attempt {run.attempt}")
        again = any(each.verb in (Verb.STOP, *_LINGERING) for each in touched) or snoozed
        renewed = any(run.start < (each.end or later.start) for each in self._replacing(later.start))
        if later.attempt <= run.attempt and not again and not renewed:
            yield Problem(NUMBERS, self.id, f"attempt {later.attempt} after {run.attempt}")

    def _cut_off(self, job: Job, faults: Faults, rules: Rules) -> Iterator[Problem]:
        """What a kill ended runs again within its time, unless that was its last attempt."""
        for run, kill in self.killed(faults):
            later = self.after(kill)
            if later is None:
                over = job.state in ENDED and job.state is not JobState.COMPLETED
                if rules.all_end and not over:
                    yield Problem(RERUN, self.id, f"attempt {run.attempt}; it is {job.state}")
            elif rules.rerun is not None:
                waited = later.start - kill.start
                if waited - faults.away(kill.start, later.start) >= rules.rerun:
                    yield Problem(LATE, self.id, f"{waited:.1f} s")

    def killed(self, faults: Faults) -> Iterator[tuple[Call, Call]]:
        """The executions that a kill cut off, each with its kill."""
        for run in self.runs:
            if run.end is None:
                touching = faults.touching(run, float("inf"))
                kill = next((each for each in touching if each.verb == Verb.KILL), None)
                if kill is not None and kill.start >= run.start:
                    yield run, kill

    def after(self, kill: Call) -> Call | None:
        """The next execution after a kill."""
        later = [run for run in self.runs if run.start > kill.start]
        return min(later, key=lambda run: run.start, default=None)

    def _completed(self, job: Job, faults: Faults, rules: Rules) -> Iterator[Problem]:
        returned = [run for run in self.runs if run.answered]
        if job.state is JobState.COMPLETED and not returned:
            yield Problem(COMPLETED, self.id, f"{len(self.runs)} executions, and none returned")
        untouched = [run for run in returned if faults.untouched(run, float("inf")) and not faults.stale(run)]
        over = (job.ended or rules.all_end) and job.state is not JobState.COMPLETED
        if untouched and over and not self.actions:
            yield Problem(RETURNED, self.id, f"it is {job.state}")

    def _stopped(self, job: Job, faults: Faults) -> Iterator[Problem]:
        """After an answered cancel, bury or discard nothing starts, unless it was claimed before."""
        for call in self.actions:
            if call.verb not in ("cancel", "bury", "discard") or not call.answered or call.end is None:
                continue
            later = [run for run in self.runs if run.start > call.end and not faults.stale(run)]
            later = [run for run in later if not self._replayed(call.start, run.start)]
            if len(later) > (call.state == JobState.PROCESSING):
                yield Problem(STOPPED, self.id, f"{call.verb}, then attempt {later[0].attempt}")
            ended = call.state in (JobState.CANCELLED, JobState.DISCARDED)
            replayed = self._replayed(call.start, float("inf"))
            if ended and not replayed and job.state not in (JobState.CANCELLED, JobState.DISCARDED):
                yield Problem(STOPPED, self.id, f"{call.verb} was answered, and it is {job.state}")

    def _replacing(self, before: float = float("inf")) -> list[Call]:
        """The enqueues that may have given this job new work by then: it has their unique name."""
        return [
            call
            for call in self.enqueues
            if self.id in call.answer and self.id not in call.jobs and not call.keys and call.start < before
        ]

    def _replayed(self, since: float, before: float) -> bool:
        """Whether an operator may have let it run again between two moments."""
        return any(
            call.verb == "replay"
            and call.outcome is not Outcome.REFUSED
            and call.start < before
            and (call.end is None or call.end > since)
            for call in self.actions
        )


def most_at_once(runs: Iterable[Call], faults: Faults) -> int:
    """The most executions that ran at one time; what was killed ran until then."""
    moments = []
    for run in runs:
        kill = next((each for each in faults.touching(run, float("inf")) if each.verb == Verb.KILL), None)
        end = run.end if run.end is not None else None if kill is None else max(run.start, kill.start)
        moments.append((run.start, 1))
        if end is not None:
            moments.append((end, -1))
    most = now = 0
    for _, change in sorted(moments):
        now += change
        most = max(most, now)
    return most


def registers(calls: Iterable[Call], jobs: Mapping[str, Job]) -> dict[str, Register]:
    """The calls by the jobs that they are about."""
    found: dict[str, Register] = {}
    by_key = {job.key: job.id for job in jobs.values() if job.key}

    def of(job: str) -> Register:
        return found.setdefault(job, Register(job, found=jobs.get(job)))

    for job in jobs:
        of(job)
    for call in calls:
        if call.verb in FAULTS:
            continue
        # What an enqueue was not answered for may be there under its key.
        known = [by_key[key] for key in call.keys if key in by_key]
        for job in dict.fromkeys((*call.jobs, *call.answer, *known)):
            register = of(job)
            if call.verb == Verb.ENQUEUE:
                register.enqueues.append(call)
            elif call.verb == Verb.RUN:
                register.runs.append(call)
            elif call.verb in ACTIONS:
                register.actions.append(call)
    return found


def check(calls: Sequence[Call], end: End, rules: Rules | None = None) -> Verdict:
    """Judge a history by what the store shows in the end."""
    rules = rules or Rules()
    faults = Faults(calls, rules)
    found = registers(calls, end.jobs)
    problems = [
        problem
        for register in found.values()
        for problem in register.problems(faults, rules, end.now, end.workers)
    ]
    problems += _keys(calls, end)
    problems += [Problem(SOUND, "the store", each) for each in end.problems]
    problems += _wrong_counts(end, killed=any(each.verb == Verb.KILL for each in faults.all))
    recovery = [
        later.start - kill.start
        for register in found.values()
        for _, kill in register.killed(faults)
        if (later := register.after(kill)) is not None
    ]
    judged = [each for each in _ALL if _judged(each, rules)]
    broken = {each: [problem for problem in problems if problem.promise == each] for each in judged}
    promises = [Promise(each, not wrong, few(wrong)) for each, wrong in broken.items()]
    injected = Counter(f"{each.verb}s" for each in faults.all)
    return Verdict(problems, promises, sorted(recovery), _counts(found, faults, problems), dict(injected))


def _wrong_counts(end: End, *, killed: bool) -> Iterator[Problem]:
    """Of more records than the store counts, a killed worker's last second is missing in its counters."""
    for state in sorted(end.counted.keys() | end.rows.keys()):
        counted, rows = end.counted.get(state, 0), end.rows.get(state, 0)
        short = killed and state in _ARCHIVED and _COUNTED_RECORDS <= counted < rows
        if counted != rows and not short:
            yield Problem(COUNTS, state, f"counted {counted}, in the tables {rows}")


def _judged(promise: str, rules: Rules) -> bool:
    """Whether the rules let a promise be judged: what is not looked at is not said to hold."""
    if promise == ALL_ENDED:
        return rules.all_end
    if promise == LEASED:
        return rules.leases
    if promise == LATE:
        return rules.rerun is not None
    return promise not in OF_RUNS or rules.recording is None or bool(rules.recording)


def _keys(calls: Iterable[Call], end: End) -> Iterator[Problem]:
    """Every answer to a key names the same job, and the store has one job of it."""
    stored: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)
    answered: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)
    for job in end.jobs.values():
        if job.key:
            stored[job.key, job.caller, job.tenant].add(job.id)
    for call in calls:
        for key, job_id in zip(call.keys, call.answer, strict=False):
            answered[key,].add(job_id)
            if job_id in end.jobs and end.jobs[job_id].key != key:
                yield Problem(KEYS, key, f"was answered with {job_id}, which has {end.jobs[job_id].key}")
    for (key, *_), ids in [*stored.items(), *answered.items()]:
        if len(ids) > 1:
            yield Problem(KEYS, key, f"{len(ids)} jobs")


def _counts(found: Mapping[str, Register], faults: Faults, problems: Iterable[Problem]) -> dict[str, float]:
    every = found.values()
    states = Counter(str(each.found.state) for each in every if each.found is not None)
    return {
        "accepted": sum(each.accepted for each in every),
        "lost": sum(problem.promise == ACCEPTED for problem in problems),
        **states,
        "executions": sum(len(each.runs) for each in every),
        # Killed after the work and before its record.
        "doubled": sum(sum(run.answered for run in each.runs) > 1 for each in every),
        "cut off": sum(1 for each in every for _ in each.killed(faults)),
    }
