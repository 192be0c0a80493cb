"""What does a test of metrics start from? A real store, whose time is in the test's hand, and a scraper."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.conformance.scene import BOOM, LEASE, MAIL, REPORT, TYPES, a_job
from windlass import connect, settings
from windlass.clock import ManualClock
from windlass.job import Error, JobState, Lease, Reason, TypeInfo
from windlass.observe.ledger import Ledger
from windlass.observe.measures import Measures, Series
from windlass.ops import Ops
from windlass.outcome import Again, Dead, Done, Left, Outcome, Policy
from windlass.store.engine import Settlement, Want
from windlass.store.fleet import PoolInfo, Vitals, WorkerInfo
from windlass.store.jobs import Filter
from windlass.store.store import Store
from windlass.upkeep.membership import Watchman
from windlass.upkeep.reaper import Reaper
from windlass.worker.health import Health, expose

Scrape = dict[str, list[tuple[Mapping[str, str], float]]]
NOW = timedelta(0)
# Seconds between two scrapes, at least.
APART = 10


def parsed(text: str) -> Scrape:
    """A scrape by the name of each line, as Prometheus's own client reads it."""
    found: Scrape = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


class Scrapes(Measures):
    """A Prometheus of a few lines: it remembers what it scraped, and when."""

    def __init__(self, apart: float = APART) -> None:
        self._apart = apart
        self._scrapes: list[tuple[float, Scrape]] = []

    @property
    def all(self) -> list[tuple[float, Scrape]]:
        return list(self._scrapes)

    @property
    def last(self) -> float:
        """When the last one was made."""
        return self._scrapes[-1][0]

    def add(self, at: float, text: str) -> None:
        # Nobody scrapes twice within a few seconds, whatever a test's clock says.
        at = max(at, self.last + self._apart) if self._scrapes else at
        self._scrapes.append((at, parsed(text)))

    def now(self, name: str) -> Series:
        return _series(self._scrapes[-1][1].get(name, ()))

    def increase(self, name: str, within: timedelta) -> Series:
        before = self._before(name, within)
        return Series((labels, value - before.get(labels, 0.0)) for labels, value in self.now(name).items())

    def delta(self, name: str, within: timedelta) -> Series:
        before = self._before(name, within)
        return Series((labels, value - before[labels]) for labels, value in self.now(name).items())

    def _before(self, name: str, within: timedelta) -> Series:
        since = self.last - within.total_seconds()
        return _series(next(scrape for at, scrape in self._scrapes if at >= since).get(name, ()))


def _series(values: Iterable[tuple[Mapping[str, str], float]]) -> Series:
    return Series((frozenset(labels.items()), value) for labels, value in values)


class Stage:
    """One store, one worker that does what it is told, and somebody who scrapes."""

    dead = Filter(states=(JobState.DEAD,))

    def __init__(self, url: str, clock: ManualClock) -> None:
        self.url = url
        self.clock = clock
        self._opened = connect.open(url, clock=clock)
        self.store: Store = self._opened.store
        self.ops = Ops(self.store)
        self.ledger = Ledger(self.store)
        # Of workers of other releases.
        self._ledgers: dict[str, Ledger] = {}
        self.scrapes = Scrapes()
        # What a worker says at its health address, if somebody scrapes it, too.
        self.probed: Health | None = None
        self.worker("worker-1")
        # As a worker does when it starts: from then on every count is there, as 0.
        self.store.register([TypeInfo(name=name, schema={}) for name in TYPES])

    def follow(self) -> None:
        """Hear what operators have set, as a worker does."""
        for ledger in (self.ledger, *self._ledgers.values()):
            ledger.follow(settings.read(self.store.settings()))

    def worker(
        self,
        name: str,
        types: tuple[str, ...] = (*TYPES,),
        app: str = "",
        pools: Mapping[str, PoolInfo] = {},
        reader: str = "old",
    ) -> WorkerInfo:
        """Another worker that takes jobs of these types; `reader` stands for what it can read."""
        info = WorkerInfo(
            id=name,
            host="here",
            boot="b",
            pid_space="p",
            pid=1,
            pid_started=1,
            version="1.0",
            app=app,
            types=types,
            slots=10,
            pools=pools or {"threads": PoolInfo(10)},
            reader=reader,
        )
        self.store.join(info)
        return info

    def beat(self, name: str = "worker-1") -> None:
        self.store.beat(name, Vitals())

    def enqueue(self, count: int = 1, **changes: Any) -> None:
        self.store.enqueue([a_job(**changes) for _ in range(count)])

    def claim(self, count: int = 1, worker: str = "worker-1") -> list[Lease]:
        return self.store.claim(Want(worker=worker, types=TYPES, limit=count, lease=LEASE)).leases

    def settle(
        self,
        leases: list[Lease],
        outcome: Outcome,
        ran: float | None = 1.0,
        *,
        check_in: timedelta | None = None,
        release: str = "",
    ) -> None:
        """What a settler does."""
        spent = None if ran is None else timedelta(seconds=ran)
        settlements = [Settlement(lease, outcome, spent, check_in=check_in, app=release) for lease in leases]
        late = self.store.settle(settlements)
        gone = {lease.token for lease in late}
        ledger = self._ledger_of(release)
        ledger.settled(each for each in settlements if each.lease.token not in gone)
        ledger.late(late)

    def _ledger_of(self, release: str) -> Ledger:
        if not release:
            return self.ledger
        ledger = self._ledgers.setdefault(release, Ledger(self.store, release))
        self.follow()
        return ledger

    def work(self, count: int = 1, outcome: Outcome | None = None, ran: float = 1.0, **how: Any) -> None:
        """Claim that many jobs, and let all of them end alike."""
        left = count
        while left and (leases := self.claim(min(left, 500))):
            self.settle(leases, outcome or Done(), ran, **how)
            left -= len(leases)

    def reap(self, *workers: str) -> None:
        """These workers are gone, and their jobs are taken back: the reaper's own way."""
        gone = [each for each in self.store.workers() if each.id in workers]
        watchman = Watchman(gone=lambda _: False)
        policy = lambda _: Policy()  # noqa: E731 - the reaper asks by type
        Reaper(
            self.store, self._opened.wakeup, watchman, policy=policy, clock=self.clock, ledger=self.ledger
        ).take_over(gone)

    def look(self) -> None:
        """A sample, a flush and a scrape, as happens every few seconds."""
        self.beat()
        for ledger in (self.ledger, *self._ledgers.values()):
            ledger.tick()
        self.store.take_sample(NOW)
        self.scrape()

    def scrape(self) -> Scrape:
        text = self.ops.scrape() + ("" if self.probed is None else expose([self.probed]))
        self.scrapes.add(self.clock.monotonic(), text)
        return parsed(text)

    def minutes(self, count: int) -> None:
        """Time passes, and somebody looks once a minute."""
        for _ in range(count):
            self.clock.advance(60)
            self.look()

    def hide(self) -> None:
        """The store is away."""
        self._opened.close()

    def find_again(self) -> None:
        """It is back."""
        self._opened = connect.open(self.url, clock=self.clock)
        self.store = self._opened.store
        self.ops, self.ledger = Ops(self.store), Ledger(self.store)

    def close(self) -> None:
        self._opened.close()


@contextlib.contextmanager
def staged(folder: Path) -> Iterator[Stage]:
    """A stage for as long as a block lasts."""
    with contextlib.closing(Stage(f"sqlite:///{folder}/jobs.db", ManualClock())) as stage:
        yield stage


def failed(reason: Reason) -> Again:
    """An attempt that failed for a reason and is to be tried again in an hour."""
    return Again(timedelta(hours=1), Error(reason, message="no"))


def unread(ends_in: timedelta | None = None) -> Left:
    """A worker of the old release cannot read the payload."""
    return Left(ends_in, reader="old", field="payload.copy", problem="payload.copy is unknown")


DEAD = Dead(BOOM)
__all__ = ["DEAD", "MAIL", "REPORT", "Stage", "failed", "parsed", "staged", "unread"]
