"""What holds now: which types may be claimed, which breakers open, and each type's timeout and policy."""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import NamedTuple, Protocol

from windlass import settings
from windlass.clock import Clock, uuid7
from windlass.job import Reason, TypeInfo
from windlass.loop import Loop
from windlass.outcome import Again, Dead, Done, Outcome, Policy
from windlass.policy import UNLIMITED, Limit, Rules
from windlass.registry import Handler
from windlass.settings import ALL, KEY, Settings
from windlass.store.engine import Settlement
from windlass.store.flow import Breaker, Restriction, Runs, Switches
from windlass.store.store import Store


class Limited(Protocol):
    """A type, as far as its limits go."""

    @property
    def limit(self) -> Limit: ...
    @property
    def limit_key(self) -> str | None: ...


class Declared(Protocol):
    """What code declares of limits: a worker's registry, or the catalogue where handlers are elsewhere."""

    @property
    def limits(self) -> Mapping[str, Limit]: ...
    def get(self, name: str, /) -> Limited | None: ...


class Admission:
    """What code and operators block, as of the last look."""

    def __init__(self, declared: Declared, types: Mapping[str, int]) -> None:
        self._declared = declared
        self.types = types
        self.switches = Switches()
        self.restricted: dict[str, Restriction] = {}
        self.low_share = 0.0
        # Paused, or behind a breaker that an operator opened.
        self._shut: frozenset[str] = frozenset()
        # Types that cannot start here now, because the event loop does not answer.
        self.blocked: frozenset[str] = frozenset()
        # Whose restriction counts what runs; a rate alone does not.
        self.counted: frozenset[str] = frozenset()
        # Those that share a counted limit with types that are served elsewhere: their ends are news there.
        self.shared: frozenset[str] = frozenset()

    def apply(self, settings: Settings, switches: Switches) -> bool:
        """Take what holds now; whether that is anything else than before."""
        before = (self._shut, self.restricted)
        self.switches = switches
        self.low_share = settings.low_share
        self._shut = frozenset(filter(self._is_shut, self.types))
        self.restricted = {
            name: found for name in self.types if (found := self._restriction(name, settings)) is not None
        }
        self.counted = frozenset(name for name, each in self.restricted.items() if each.counted)
        return before != (self._shut, self.restricted)

    def open(self, types: Mapping[str, int]) -> Mapping[str, int]:
        shut = self._shut | self.blocked if self.blocked else self._shut
        if not shut:
            return types
        return {name: version for name, version in types.items() if name not in shut}

    def choose(self, types: Mapping[str, int], *, limited: bool, others: bool) -> Mapping[str, int]:
        """Those of the types that may be claimed and are asked for: restricted ones, the others, or both."""
        restricted = self.restricted
        if self._shut or self.blocked:
            types = self.open(types)
        if limited and others:
            return types
        if not restricted:
            return types if others else {}
        return {name: version for name, version in types.items() if (name in restricted) is limited}

    def shut(self, job_type: str) -> bool:
        """Whether jobs of a type must not start now, but for what is claimed as a probe."""
        restriction = self.restricted.get(job_type)
        return job_type in self._shut or (restriction is not None and restriction.breaker is not None)

    def breaker_of(self, job_type: str) -> str:
        """The name of the breaker before a type: its own, or of the key that it shares."""
        handler = self._declared.get(job_type)
        key = None if handler is None else handler.limit_key
        return job_type if key is None else KEY + key

    def limited(self, job_type: str) -> bool:
        return job_type in self.counted

    def permits(self, types: Iterable[str]) -> Counter[str]:
        """What jobs of these types take until they end, each limit by its name."""
        # Read once: what holds may change at any moment.
        restricted = self.restricted
        found = (restricted[name] for name in types if name in restricted)
        return Counter(name for each in found for name in each.counted)

    @property
    def shares(self) -> bool:
        """Whether any limit is one of several types together."""
        return any(
            name == ALL or name.startswith(KEY) for each in self.restricted.values() for name in each.limits
        )

    def learn(self, types: Mapping[str, TypeInfo]) -> None:
        """Which types there are in all: permits that types elsewhere share are theirs, too."""
        elsewhere = [info for name, info in types.items() if name not in self.types]
        names = {KEY + key for info in elsewhere if (key := info.options.get("limit_key")) is not None}
        names |= {ALL} if elsewhere else set()
        self.shared = frozenset(
            name for name in self.counted if not names.isdisjoint(self.restricted[name].limits)
        )

    def restrictions(self, types: Mapping[str, int]) -> Mapping[str, Restriction]:
        return {name: self.restricted[name] for name in types if name in self.restricted}

    def _restriction(self, job_type: str, settings: Settings) -> Restriction | None:
        handler = self._declared.get(job_type)
        limits = {
            job_type: settings.limit(job_type, UNLIMITED if handler is None else handler.limit),
            ALL: settings.limit(ALL),
        }
        key = None if handler is None else handler.limit_key
        if key is not None:
            limits[KEY + key] = settings.limit(KEY + key, self._declared.limits.get(key))
        bounding = {name: limit for name, limit in limits.items() if limit.bounds}
        name = self.breaker_of(job_type)
        breaker = self.switches.breakers.get(name)
        opened = name if breaker is not None and breaker.open else None
        if not bounding and opened is None:
            return None
        return Restriction(limits=bounding, key=key or "", breaker=opened, probe=settings.breaker(name).probe)

    def _is_shut(self, job_type: str) -> bool:
        breaker = self.switches.breakers.get(self.breaker_of(job_type))
        return job_type in self.switches.pauses or (breaker is not None and breaker.open and breaker.by_hand)


log = logging.getLogger("windlass.breaker")

# What says something about a dependency; a lost worker or an operator's word does not.
_FAILURES = frozenset({Reason.EXCEPTION, Reason.TIMEOUT, Reason.CHILD_CRASHED, Reason.MEMORY_LIMIT})
_STRETCH_SECONDS = 5.0
_MOST_NAMED = 100
# For this long after a failure its breaker is reported each second, until every worker has done so.
_REPORTED_FOR = 10.0


class BreakerCounts:
    """Counts runs by breaker and stretch of time, and reports to the store the breakers with failures."""

    def __init__(self, store: Store, breaker_of: Callable[[str], str], *, clock: Clock) -> None:
        self._store = store
        self._breaker_of = breaker_of
        self._clock = clock
        self._lock = threading.Lock()
        # By the breaker's name, and the same by type.
        self._counts: dict[str, _Counts] = {}
        self._by_type: dict[str, _Counts] = {}
        # Its name among the others'; the worker's own may change.
        self._id = uuid7()
        self._forgot = 0

    def note(self, settlements: Iterable[Settlement]) -> None:
        now = self._clock.monotonic()
        stretch = int(now / _STRETCH_SECONDS)
        with self._lock:
            for each in settlements:
                lease, outcome = each.lease, each.outcome
                counts = self._by_type.get(lease.job.type)
                if counts is None:
                    counts = self._counts.setdefault(self._breaker_of(lease.job.type), _Counts())
                    self._by_type[lease.job.type] = counts
                if type(outcome) is Done:
                    counts.unreported.add(stretch)
                    counts.stretches[stretch][0] += 1
                    # It may have been a probe.
                    counts.succeeded.append(lease.token)
                elif _failed(outcome):
                    counts.unreported.add(stretch)
                    counts.fail(stretch, lease.id, now)

    def forget_types(self) -> None:
        """Types may have other breakers now."""
        with self._lock:
            self._by_type.clear()

    def report(self, settings: Settings, switches: Switches) -> bool:
        """Report to the store the breakers under which runs fail, here or elsewhere; whether one changed."""
        now = self._clock.monotonic()
        wanted = {*switches.failing, *(name for name, each in switches.breakers.items() if each.open)}
        with self._lock:
            self._forget(settings, int(now / _STRETCH_SECONDS))
            names = [name for name, each in self._counts.items() if each.is_news(now, wanted=name in wanted)]
            terms = {name: settings.breaker(name) for name in names}
            runs = [
                self._counts[name].report(name, now, terms[name].window)
                for name in names
                if terms[name].share is not None
            ]
        if not runs:
            return False
        try:
            changed = self._store.note_runs(self._id, runs, terms)
        except BaseException:  # wall: jobs and leases are named once: what did not arrive is reported again
            with self._lock:
                for each in runs:
                    self._counts[each.name].keep(each)
            raise
        for breaker in changed:
            _log(breaker)
        return bool(changed)

    def _forget(self, settings: Settings, stretch: int) -> None:
        """Once a stretch: of each name nothing is kept that lies before its window."""
        if stretch == self._forgot:
            return
        self._forgot = stretch
        for name, counts in self._counts.items():
            window = settings.breaker(name).window.total_seconds()
            counts.forget_before(stretch - math.ceil(window / _STRETCH_SECONDS))


class _Counts:
    """The runs behind one breaker."""

    def __init__(self) -> None:
        # [done, failed] by stretch; the newest are last.
        self.stretches: defaultdict[int, list[int]] = defaultdict(partial(list, (0, 0)))
        self._failed: set[str] = set()
        # The last few: a probe that succeeds is the only one that runs.
        self.succeeded: deque[str] = deque(maxlen=_MOST_NAMED)
        self._failed_at = -math.inf
        # Stretches that the store does not know in full.
        self.unreported: set[int] = set()

    def fail(self, stretch: int, job_id: str, now: float) -> None:
        self.stretches[stretch][1] += 1
        self._failed_at = now
        if len(self._failed) < _MOST_NAMED:
            self._failed.add(job_id)

    def is_news(self, now: float, *, wanted: bool) -> bool:
        """Whether to report it: runs failed here just now, or elsewhere and we saw some."""
        failed = bool(self._failed) or now - self._failed_at <= _REPORTED_FOR
        return failed or (wanted and bool(self.unreported))

    def report(self, name: str, now: float, window: timedelta) -> Runs:
        """What is news in the window, each stretch as a whole: reported twice, it counts once."""
        oldest = int((now - window.total_seconds()) / _STRETCH_SECONDS)
        runs = Runs(
            name=name,
            stretches=tuple(
                (each, int((now - each * _STRETCH_SECONDS) * 1_000_000), done, failed)
                for each, (done, failed) in self.stretches.items()
                if each in self.unreported and each >= oldest
            ),
            failed=tuple(self._failed),
            succeeded=tuple(self.succeeded),
        )
        self.unreported.clear()
        self._failed.clear()
        self.succeeded.clear()
        return runs

    def keep(self, runs: Runs) -> None:
        self._failed.update(runs.failed[: _MOST_NAMED - len(self._failed)])
        self.succeeded = deque((*runs.succeeded, *self.succeeded), maxlen=_MOST_NAMED)
        self.unreported |= {stretch for stretch, *_ in runs.stretches} & self.stretches.keys()

    def forget_before(self, oldest: int) -> None:
        """Let go of what no breaker will look at; else each type would cost megabytes by the evening."""
        while self.stretches and (first := next(iter(self.stretches))) < oldest:
            del self.stretches[first]
            self.unreported.discard(first)


def _failed(outcome: Outcome) -> bool:
    if isinstance(outcome, Dead) and outcome.fatal:
        return False
    return isinstance(outcome, (Again, Dead)) and outcome.error.reason in _FAILURES


def _log(breaker: Breaker) -> None:
    fields = {"breaker": breaker.name, "why": breaker.why}
    if breaker.open:
        note = "its jobs wait; one is tried from time to time, and lets the others go when it succeeds"
        log.warning("breaker.opened", extra=fields | {"note": note})
    else:
        log.warning("breaker.closed", extra=fields)


# --- live settings: which timeout and policy hold for each type now, as operators change them --------

_TICK = timedelta(seconds=1)
# Refreshed at least this often, also without a new revision; in ticks.
_REFRESHED = 60
_ADOPTIONS = 2
# Live jobs are sampled this often, by one of the workers; the others find that it was done.
_SAMPLED = 15
_SAMPLE_AGE = timedelta(seconds=12)


class InForce(NamedTuple):
    """What holds for a type that is served here."""

    policy: Policy
    timeout: timedelta


@dataclass(eq=False)
class LiveSettings:
    """What operators have set, as of the last look, applied to what the code says."""

    store: Store
    handlers: Mapping[str, Handler]
    admission: Admission
    breaker_counts: BreakerCounts
    # Called with the settings whenever they are read.
    on_read: Callable[[Settings], None]
    # Called when admission changed; and each minute, or at once when the store's file was replaced.
    on_switch: Callable[[], None] = lambda: None
    each_minute: Sequence[Callable[[], None]] = ()
    # Heartbeats report new revisions; without them, the settings are read each second.
    announced: bool = True

    def __post_init__(self) -> None:
        self._ticks = self._noticed = self._read = self._adoptions = 0
        self._generation: int | None = None
        # By type, of those that are served here.
        self.in_force: dict[str, InForce] = {}
        self._apply(Settings({}))
        # A thread of its own: a look at the settings may wait for a connection, and a beat must not.
        self.loop = Loop("settings", self.tick, every=_TICK, first=_TICK)

    def tick(self) -> None:
        """Report how runs end if some fail; read the settings now and then, or when there is news."""
        self._ticks += 1
        generation = self.store.generation
        replaced = self._generation not in (None, generation)
        is_minute = replaced or self._ticks % _REFRESHED == 0
        if is_minute or self._noticed != self._read or not self.announced:
            self.refresh()
        if is_minute:
            for call in self.each_minute:
                call()
        self._generation = generation
        # The first time at once: nobody may have looked for long.
        if self._ticks % _SAMPLED == 1:
            self.store.take_sample(_SAMPLE_AGE)
        if self.breaker_counts.report(self._settings, self.admission.switches):
            self.refresh()

    def refresh(self) -> None:
        noticed, admission = self._noticed, self.admission
        self._apply(settings.read(self.store.settings()))
        if admission.apply(self._settings, self.store.switches()):
            self._adoptions = _ADOPTIONS
            self.on_switch()
        if admission.shares and self.handlers:
            admission.learn(self.store.types())
        if admission.restricted and self._adoptions:
            # More than once: a claim may be under way that did not know of the limit.
            self.store.adopt(admission.restricted)
        self._adoptions = max(0, self._adoptions - 1)
        self._read = noticed

    def notice(self, revision: int) -> None:
        """A look shows how often anything was set or switched: if that is news, it is read at once."""
        self._noticed = revision
        if revision != self._read:
            self.loop.wake()

    def policy(self, job_type: str) -> Policy:
        """What follows from a failure; for types without a handler here, what the catalogue says."""
        known = self.in_force.get(job_type)
        if known is not None:
            return known.policy
        return policy_of(job_type, self.store.types().get(job_type), self._settings)

    def _apply(self, now: Settings) -> None:
        self._settings = now
        self.on_read(now)
        for name, handler in self.handlers.items():
            info = handler.info()
            policy = policy_of(name, info, now, handler.policy.rules)
            self.in_force[name] = InForce(policy, now.of_type(name, info.options).run.timeout)


def policy_of(job_type: str, known: TypeInfo | None, now: Settings, rules: Rules | None = None) -> Policy:
    """What follows from a failure of a type, by its code's options and what operators have set.

    Rules are about exceptions and are not in the catalogue: only a process with the handler meets those.
    """
    found = now.of_type(job_type, {} if known is None else known.options)
    return Policy(retry=found.run.retry, rules={} if rules is None else rules, max_age=found.max_age)
