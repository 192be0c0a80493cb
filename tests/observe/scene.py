"""What does a test of metrics start from? A real store, whose time is in the test's hand, and a scraper."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.conformance.scene import BOOM, LEASE, MAIL, REPORT, TYPES, a_job
from windlass import connect
from windlass.clock import ManualClock
from windlass.job import Error, JobState, Lease, Reason
from windlass.observe.ledger import Ledger
from windlass.observe.promql import Series
from windlass.ops import Ops
from windlass.outcome import Again, Dead, Done, Outcome, Policy
from windlass.store.protocol import Filter, Settlement, Store, Vitals, Want, WorkerInfo
from windlass.upkeep.reaper import Reaper
from windlass.upkeep.watchman import Watchman

Scrape = dict[str, list[tuple[Mapping[str, str], float]]]
NOW = timedelta(0)


def parsed(text: str) -> Scrape:
    """A scrape by the name of each line, as Prometheus's own client reads it."""
    found: Scrape = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


class Scrapes:
    """A Prometheus of a few lines: it remembers what it scraped, and when."""

    def __init__(self) -> None:
        self._scrapes: list[tuple[float, Scrape]] = []

    def add(self, at: float, text: str) -> None:
        self._scrapes.append((at, parsed(text)))

    def instant(self, name: str) -> Series:
        return self._scrapes[-1][1].get(name, ())

    def increase(self, name: str, seconds: float) -> Series:
        now = self._scrapes[-1][0]
        first = next(scrape for at, scrape in self._scrapes if at >= now - seconds)
        before = {frozenset(labels.items()): value for labels, value in first.get(name, ())}
        return [
            (labels, value - before.get(frozenset(labels.items()), 0.0))
            for labels, value in self.instant(name)
        ]


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
        self.scrapes = Scrapes()
        self.worker("worker-1")

    def worker(self, name: str, types: tuple[str, ...] = (*TYPES,)) -> WorkerInfo:
        """Another worker that takes jobs of these types."""
        info = WorkerInfo(
            id=name,
            host="here",
            boot="b",
            pid_space="p",
            pid=1,
            pid_started=1,
            version="1.0",
            types=types,
            slots=10,
        )
        self.store.join(info)
        return info

    def beat(self, name: str = "worker-1") -> None:
        self.store.beat(name, Vitals())

    def enqueue(self, count: int = 1, **changes: Any) -> None:
        self.store.enqueue([a_job(**changes) for _ in range(count)])

    def claim(self, count: int = 1, worker: str = "worker-1") -> list[Lease]:
        return self.store.claim(Want(worker=worker, types=TYPES, limit=count, lease=LEASE)).leases

    def settle(self, leases: list[Lease], outcome: Outcome, ran: float = 1.0) -> None:
        """What a settler does."""
        settlements = [Settlement(lease, outcome, timedelta(seconds=ran)) for lease in leases]
        late = self.store.settle(settlements)
        gone = {lease.token for lease in late}
        self.ledger.settled(each for each in settlements if each.lease.token not in gone)
        self.ledger.late(late)

    def work(self, count: int = 1, outcome: Outcome | None = None, ran: float = 1.0) -> None:
        """Claim that many jobs, and let all of them end alike."""
        left = count
        while left and (leases := self.claim(min(left, 500))):
            self.settle(leases, outcome or Done(), ran)
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
        self.ledger.tick()
        self.store.take_sample(NOW)
        self.scrape()

    def scrape(self) -> Scrape:
        text = self.ops.scrape()
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


DEAD = Dead(BOOM)
__all__ = ["DEAD", "MAIL", "REPORT", "Stage", "failed", "parsed", "staged"]
