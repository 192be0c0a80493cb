"""What happened in this process since the store was last told? Counted in batches, told once a second."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import timedelta
from functools import partial

from windlass import settings
from windlass.clock import uuid7
from windlass.errors import StoreBusy, StoreError, StoreUnavailable
from windlass.job import Lease
from windlass.loop import Loop
from windlass.observe import names
from windlass.outcome import Again, Cancelled, Dead, Done, Left, Outcome, Released, Snoozed
from windlass.settings import Settings
from windlass.store.engine import Settlement
from windlass.store.history import OTHER, Flush, Happened
from windlass.store.store import Store

_EVERY = timedelta(seconds=1)
_MILLION = 1_000_000
# So many releases are told apart; others have their turn after so many flushes, which is an hour at least.
_MOST_RELEASES = 10
_NEW_TURN = 3_600
# Loops by the names that people know; all others do upkeep.
_PARTS = {"claimer": "claim", "settler": "settle", "heartbeat": "beat", "ledger": "count"}
# So many classes of errors are told apart, of each type.
_MOST_ERRORS = 20


class Ledger:
    """Counts what happens and tells the store of it.

    What a process that is killed had not told is lost: at most what happened in its last second. What got no
    answer is told again as it was, under the same number, so that it counts once.
    """

    def __init__(self, store: Store, app: str = "") -> None:
        """`app`: the release that runs here, if the application says."""
        self._store = store
        self._app = app
        self._lock = threading.Lock()
        # By release, then by type; and by tenant, of those that operators name.
        self._books = _new_books()
        self._apart: set[str] = set()
        self._tenants: defaultdict[str, _Book] = defaultdict(_Book)
        self._named: frozenset[str] = frozenset()
        self._others: Counter[tuple[str, str]] = Counter()
        # What was measured beside jobs: counts by bucket, and the sum in microseconds behind them.
        self._measured: dict[str, list[int]] = {}
        # The classes of errors that are told apart, by type.
        self._errors: dict[str, set[str]] = {}
        self._telling = threading.Lock()
        self._teller = uuid7()
        self._flushes = 0
        self._unanswered: tuple[Happened, Flush] | None = None
        self.loop = Loop("ledger", self.tick, every=_EVERY, first=_EVERY)

    def follow(self, held: Settings) -> None:
        """Count apart the tenants that operators name."""
        self._named = frozenset(held.value(settings.TENANTS) or ())

    def settled(self, settlements: Iterable[Settlement], app: str | None = None) -> None:
        """Count what came of runs, once for a whole batch; `app`: the release, if they ran elsewhere."""
        named, app = self._named, self._app if app is None else app
        settlements = list(settlements) if named else settlements
        with self._lock:
            # Not without bound: a process may call each run another release, a row for each for years.
            if app and app not in self._apart and (app == self._app or len(self._apart) < _MOST_RELEASES):
                self._apart.add(app)
            book = self._books[app if app in self._apart else ""]
            for each in settlements:
                book[each.lease.job.type].note(each)
            for each in settlements if named else ():
                tenant = each.lease.job.tenant
                self._tenants[tenant if tenant in named else OTHER].note(each)

    def reaped(self, settlements: Iterable[Settlement]) -> None:
        """Count what was taken from workers that are gone, each under the release that it ran."""
        listed = list(settlements)
        for app in {each.app for each in listed}:
            self.settled([each for each in listed if each.app == app], app)
        self.count_each((each.lease.job.type for each in listed), names.REAPED)

    def late(self, leases: Iterable[Lease]) -> None:
        """Count results that came too late."""
        self.count_each((lease.job.type for lease in leases), names.LATE)

    def count_each(self, types: Iterable[str], name: str) -> None:
        """Count something once for each of these types."""
        with self._lock:
            for job_type in types:
                self._others[job_type, name] += 1

    def count(self, name: str, number: int = 1) -> None:
        """Count what does not belong to one type."""
        if number:
            with self._lock:
                self._others["", name] += number

    def store_error(self, loop: str, error: StoreError) -> None:
        """Count an error of the store by the loop that met it; written when the store answers again."""
        kind = "unavailable" if isinstance(error, StoreUnavailable) else "other"
        kind = "busy" if isinstance(error, StoreBusy) else kind
        self.count(f"{names.STORE_ERROR}{_PARTS.get(loop, 'upkeep')}.{kind}")

    def measure(self, measure: str, value: float) -> None:
        """Note one measured value that does not belong to one type."""
        number, micros = bisect_left(names.BOUNDS[measure], value), int(value * _MILLION)
        with self._lock:
            # Every enqueue comes here: names are made only when it is told.
            of = self._measured.get(measure)
            if of is None:
                of = self._measured[measure] = [0] * (len(names.BOUNDS[measure]) + 2)
            of[number] += 1
            of[-1] += micros

    def tick(self) -> None:
        """Tell the store; what it does not take is told the next time, and never as anything else."""
        with self._telling:
            if self._unanswered is not None:
                self._tell(self._unanswered)
            told = self._take()
            if told is not None:
                self._tell(told)

    def _tell(self, told: tuple[Happened, Flush]) -> None:
        self._unanswered = told
        self._store.add_history(*told)
        self._unanswered = None

    def _take(self) -> tuple[Happened, Flush] | None:
        with self._lock:
            books, self._books = self._books, _new_books()
            tenants, self._tenants = self._tenants, defaultdict(_Book)
            happened, self._others = self._others, Counter()
            measured, self._measured = self._measured, {}
            if self._flushes % _NEW_TURN == _NEW_TURN - 1:
                self._apart.clear()
        for measure, (*counts, micros) in measured.items():
            buckets = {
                ("", names.bucket(measure, number)): count for number, count in enumerate(counts) if count
            }
            happened.update(buckets | {("", names.total(measure)): micros})
        for app, types in books.items():
            for job_type, book in types.items():
                happened.update({(job_type, name): value for name, value in book.told(app).items()})
        happened = self._with_known_errors(happened)
        for tenant, book in tenants.items():
            happened.update({("", name): value for name, value in book.told_of(tenant).items()})
        if not happened:
            return None
        self._flushes += 1
        flush = Flush(self._teller, self._flushes, frozenset(app for app in books if app))
        return happened, flush

    def _with_known_errors(self, happened: Counter[tuple[str, str]]) -> Counter[tuple[str, str]]:
        """A handler that makes its classes as it goes is not believed: that would be a row for each."""
        found: Counter[tuple[str, str]] = Counter()
        for (job_type, name), value in happened.items():
            if name.startswith(names.ERROR):
                known = self._errors.setdefault(job_type, set())
                if len(known) < _MOST_ERRORS:
                    known.add(name)
                found[job_type, name if name in known else names.OTHER_ERROR] += value
            else:
                found[job_type, name] += value
        return found


class _Book:
    """What happened to jobs of one type. Every settled job passes here, so little is called."""

    def __init__(self) -> None:
        size = len(names.SECONDS) + 1
        self.completed = 0
        # Attempts that failed of which nobody knows how long they ran.
        self.lost = 0
        self.others: Counter[str] = Counter()
        # How many fell into each bucket, and the seconds of all together.
        self.waits, self.waited = [0] * size, 0.0
        self.runs, self.ran = [0] * size, 0.0
        self.ends, self.ended = [0] * size, 0.0
        self.tries, self.tried = [0] * (len(names.NUMBERS) + 1), 0

    def note(self, settlement: Settlement) -> None:
        ran, outcome, job = settlement.ran, settlement.outcome, settlement.lease.job
        done = type(outcome) is Done
        if done:
            self.completed += 1
            self.tries[bisect_left(names.NUMBERS, job.attempts)] += 1
            self.tried += job.attempts
        else:
            self.others[_ENDED[type(outcome)]] += 1
            if isinstance(outcome, Again | Dead):
                reason, kind = names.failed_because(outcome.error.reason), names.failed_with(outcome.error)
                self.others.update((names.FAILED, reason, kind))
        started = job.started_at
        if ran is None or started is None:
            self.lost += isinstance(outcome, Again | Dead)
            return
        seconds = ran.total_seconds()
        self.runs[bisect_left(names.SECONDS, seconds)] += 1
        self.ran += seconds
        waited = max((started - job.run_at).total_seconds(), 0.0)
        self.waits[bisect_left(names.SECONDS, waited)] += 1
        self.waited += waited
        if done:
            whole = (started - job.enqueued_at).total_seconds() + seconds
            self.ends[bisect_left(names.SECONDS, whole)] += 1
            self.ended += whole

    def told(self, app: str) -> dict[str, int]:
        """Everything; what a release did also under its name, if it has one."""
        happened = dict(self.others) | {names.COMPLETED: self.completed, names.STARTED: sum(self.runs)}
        for measure, buckets, summed in (
            (names.WAIT, self.waits, self.waited),
            (names.RUN, self.runs, self.ran),
            (names.END_TO_END, self.ends, self.ended),
            (names.TRIES, self.tries, self.tried),
        ):
            happened |= {names.bucket(measure, number): value for number, value in enumerate(buckets)}
            happened[names.total(measure)] = round(summed * _MILLION)
        if app:
            runs = {names.bucket(names.RUN, number): value for number, value in enumerate(self.runs)}
            summary = self._summary() | runs
            happened |= {names.of_release(app, name): value for name, value in summary.items()}
        return {name: value for name, value in happened.items() if value}

    def told_of(self, tenant: str) -> dict[str, int]:
        """A summary under a tenant's name."""
        more = {names.COMPLETED: self.completed, names.WAITED: round(self.waited * _MILLION)}
        summary = self._summary() | more
        return {names.of_tenant(tenant, name): value for name, value in summary.items() if value}

    def _summary(self) -> dict[str, int]:
        attempts, failed = sum(self.runs) + self.lost, self.others[names.FAILED]
        return {names.ATTEMPTS: attempts, names.FAILED: failed, names.RAN: round(self.ran * _MILLION)}


def _new_books() -> defaultdict[str, defaultdict[str, _Book]]:
    return defaultdict(partial(defaultdict[str, _Book], _Book))


_ENDED: dict[type[Outcome], str] = {
    Again: names.RETRIED,
    Dead: names.DEAD,
    Snoozed: names.SNOOZED,
    Released: names.RELEASED,
    Left: names.RELEASED,
    Cancelled: names.CANCELLED,
}
