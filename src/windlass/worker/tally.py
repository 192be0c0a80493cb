"""What came of this worker's runs lately, and what does the fleet make of it?"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Iterable
from datetime import timedelta

from windlass.clock import Clock, uuid7
from windlass.job import Lease, Reason
from windlass.outcome import Again, Dead, Done, Outcome
from windlass.settings import Settings
from windlass.store.flow import Breaker, Runs, Switches
from windlass.store.store import Store

log = logging.getLogger("windlass.breaker")

# What says something about a dependency; a lost worker or an operator's word does not.
_FAILURES = frozenset({Reason.EXCEPTION, Reason.TIMEOUT, Reason.CHILD_CRASHED, Reason.MEMORY_LIMIT})
_STRETCH_SECONDS = 5.0
_MOST_NAMED = 100
# So long after a failure its name is told of each second, until every worker has done so.
_TOLD_AFTER = 10.0


class Tally:
    """Counts runs by breaker and stretch of time. The store hears of those of which some run failed."""

    def __init__(self, store: Store, breaker_of: Callable[[str], str], *, clock: Clock) -> None:
        self._store = store
        self._breaker_of = breaker_of
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[str, _Seen] = {}
        # Its name among the others'; the worker's own may change.
        self._id = uuid7()
        self._forgot = 0

    @property
    def kept(self) -> int:
        """Of how many stretches something is kept."""
        with self._lock:
            return sum(seen.kept for seen in self._seen.values())

    def note(self, outcomes: Iterable[tuple[Lease, Outcome]]) -> None:
        """Count what was settled."""
        now = self._clock.monotonic()
        stretch = int(now / _STRETCH_SECONDS)
        # Those of a batch are mostly of one type.
        by_type: dict[str, _Seen] = {}
        with self._lock:
            for lease, outcome in outcomes:
                seen = by_type.get(lease.job.type)
                if seen is None:
                    seen = by_type[lease.job.type] = self._of(lease)
                if isinstance(outcome, Done):
                    seen.succeed(stretch, lease.token)
                elif _failed(outcome):
                    seen.fail(stretch, lease.id, now)

    def tell(self, settings: Settings, switches: Switches) -> bool:
        """Tell the store of names under which runs fail, here or elsewhere; whether a breaker changed."""
        now = self._clock.monotonic()
        wanted = {*switches.failing, *(name for name, each in switches.breakers.items() if each.open)}
        with self._lock:
            self._forget(settings, int(now / _STRETCH_SECONDS))
            names = [name for name, seen in self._seen.items() if seen.is_news(now, wanted=name in wanted)]
            terms = {name: settings.breaker(name) for name in names}
            runs = [
                self._seen[name].told(name, now, terms[name].window)
                for name in names
                if terms[name].share is not None
            ]
        if not runs:
            return False
        try:
            changed = self._store.note_runs(self._id, runs, terms)
        except BaseException:  # wall: jobs and leases are named once: told to nobody, they are told again
            with self._lock:
                for each in runs:
                    self._seen[each.name].keep(each)
            raise
        for breaker in changed:
            _tell(breaker)
        return bool(changed)

    def _forget(self, settings: Settings, stretch: int) -> None:
        """Once a stretch: of each name nothing is kept that lies before its window."""
        if stretch == self._forgot:
            return
        self._forgot = stretch
        for name, seen in self._seen.items():
            window = settings.breaker(name).window.total_seconds()
            seen.forget_before(stretch - math.ceil(window / _STRETCH_SECONDS))

    def _of(self, lease: Lease) -> _Seen:
        name = self._breaker_of(lease.job.type)
        seen = self._seen.get(name)
        if seen is None:
            seen = self._seen[name] = _Seen()
        return seen


class _Seen:
    """The runs under one name."""

    def __init__(self) -> None:
        # (done, failed) by stretch; the newest are last.
        self._stretches: dict[int, list[int]] = {}
        self._failed: set[str] = set()
        # The last few: a probe that succeeds is the only one that runs.
        self._succeeded: deque[str] = deque(maxlen=_MOST_NAMED)
        self._failed_at = float("-inf")
        # Stretches of which the store has not heard all.
        self._untold: set[int] = set()

    @property
    def kept(self) -> int:
        """How many stretches are kept."""
        return len(self._stretches)

    def succeed(self, stretch: int, token: str) -> None:
        """A run succeeded; it may have been a probe."""
        self._counts(stretch)[0] += 1
        self._succeeded.append(token)

    def fail(self, stretch: int, job_id: str, now: float) -> None:
        """A run failed."""
        self._counts(stretch)[1] += 1
        self._failed_at = now
        if len(self._failed) < _MOST_NAMED:
            self._failed.add(job_id)

    def _counts(self, stretch: int) -> list[int]:
        self._untold.add(stretch)
        counts = self._stretches.get(stretch)
        if counts is None:
            counts = self._stretches[stretch] = [0, 0]
        return counts

    def is_news(self, now: float, *, wanted: bool) -> bool:
        """Whether the store should hear of it: runs failed here just now, or elsewhere and we saw some."""
        failed = bool(self._failed) or now - self._failed_at <= _TOLD_AFTER
        return failed or (wanted and bool(self._untold))

    def told(self, name: str, now: float, window: timedelta) -> Runs:
        """What is news in the window, each stretch as a whole: told twice, it counts once."""
        oldest = int((now - window.total_seconds()) / _STRETCH_SECONDS)
        runs = Runs(
            name=name,
            stretches=tuple(self._whole(each, now) for each in sorted(self._untold) if each >= oldest),
            failed=tuple(self._failed),
            succeeded=tuple(self._succeeded),
        )
        self._untold.clear()
        self._failed.clear()
        self._succeeded.clear()
        return runs

    def _whole(self, stretch: int, now: float) -> tuple[int, int, int, int]:
        done, failed = self._stretches[stretch]
        return stretch, int((now - stretch * _STRETCH_SECONDS) * 1_000_000), done, failed

    def keep(self, runs: Runs) -> None:
        """What was told did not arrive."""
        self._failed.update(runs.failed[: _MOST_NAMED - len(self._failed)])
        self._succeeded = deque((*runs.succeeded, *self._succeeded), maxlen=_MOST_NAMED)
        self._untold |= {stretch for stretch, *_ in runs.stretches} & self._stretches.keys()

    def forget_before(self, oldest: int) -> None:
        """Let go of what no breaker will look at; else each type would cost megabytes by the evening."""
        while self._stretches and (first := next(iter(self._stretches))) < oldest:
            del self._stretches[first]
            self._untold.discard(first)


def _failed(outcome: Outcome) -> bool:
    if isinstance(outcome, Dead) and outcome.fatal:
        return False
    return isinstance(outcome, (Again, Dead)) and outcome.error.reason in _FAILURES


def _tell(breaker: Breaker) -> None:
    if breaker.open:
        note = "its jobs wait; one is tried from time to time, and lets the others go when it succeeds"
        log.warning("breaker.opened", extra={"breaker": breaker.name, "why": breaker.why, "note": note})
    else:
        log.warning("breaker.closed", extra={"breaker": breaker.name, "why": breaker.why})
