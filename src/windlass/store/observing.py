"""What does a store remember of what happened, and of how much waits? The part that is looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from windlass.job import View
from windlass.store.flow import Depths

# What the store itself counts, and how much waits; observe/names.py has all the names.
ENQUEUED = "enqueued"
DEAD = "dead"
REPLAYED = "replayed"
# Later acknowledgements: the receiver of the work says that it arrived.
CONFIRMED = "confirmed"
DEPTH = "depth"
# Of the depth, what is due.
DUE = "due"
OLDEST = "oldest"
# Of attempts by the release that ran them; each is a name of its own, with the release in it.
RELEASE = "release."
ATTEMPTS = "attempts"
FAILED = "failed"
# In microseconds.
RAN = "ran"
# How long its attempts ran, in buckets: so many, as observe/names.py has bounds.
RUN = "run"
RUN_BUCKETS = 16
# Restarts by the worker that died: its host, and which of the supervisor's workers it was.
RESTARTS = "restarts"
# What is not shown apart: types, tenants.
OTHER = "other"
# Views of jobs that wait.
PENDING = frozenset({View.DUE, View.SCHEDULED, View.RETRYING, View.WAITING, View.UNREADABLE})
# What happened, by type (empty: not of one type) and name.
Happened = Mapping[tuple[str, str], int]


class Step(StrEnum):
    """How finely the past is looked at."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"


# How long each is kept.
KEPT: dict[Step, timedelta] = {
    Step.MINUTE: timedelta(days=2),
    Step.HOUR: timedelta(days=60),
    Step.DAY: timedelta(days=800),
}
LENGTH: dict[Step, timedelta] = {
    Step.MINUTE: timedelta(minutes=1),
    Step.HOUR: timedelta(hours=1),
    Step.DAY: timedelta(days=1),
}


class Flush(msgspec.Struct, frozen=True):
    """Who tells what happened, and for the how many-th time: the same number again is the same flush."""

    teller: str
    number: int
    # Of which releases it tells.
    releases: frozenset[str] = frozenset()


class Release(msgspec.Struct, frozen=True):
    """A release of the application, and when it was first heard of."""

    version: str
    first_at: datetime


def of_release(version: str, name: str) -> str:
    """The name under which something is counted of one release."""
    return f"{RELEASE}{version}.{name}"


def counted_of_release(version: str) -> tuple[str, ...]:
    """All names under which anything is counted of one release: attempts, failures, run time, buckets."""
    buckets = (f"{RUN}.{number}" for number in range(RUN_BUCKETS))
    return tuple(of_release(version, name) for name in (ATTEMPTS, FAILED, RAN, *buckets))


class Past(msgspec.Struct, frozen=True):
    """How often something happened within one step."""

    at: datetime
    type: str
    name: str
    value: int


# A dead job that was replayed so often and died again is poison; such jobs are also counted by themselves.
POISON = "poison"
POISON_REPLAYS = 3


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of one type and priority stood in one view, and how long the first of them has."""

    type: str
    priority: int
    view: str
    count: int
    oldest: timedelta | None = None


class TenantStanding(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of one tenant stood in one view, and how long the first of them has."""

    tenant: str
    view: str
    count: int
    oldest: timedelta | None = None


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """Where all live jobs stood at one moment; None: never looked."""

    at: datetime | None = None
    age: timedelta | None = None
    # How long the look took.
    took: timedelta = timedelta(0)
    standing: tuple[Standing, ...] = ()
    # The same by tenant, of those that operators name and of all others together.
    tenants: tuple[TenantStanding, ...] = ()

    def depths(self) -> Depths:
        """How many waited, by type."""
        pending: Counter[str] = Counter()
        for each in self.standing:
            if each.view in PENDING:
                pending[each.type] += each.count
        return Depths(pending=pending, at=self.at, age=self.age)


class Noticed(msgspec.Struct, frozen=True, kw_only=True):
    """An alert whose condition holds: since when, and whether somebody has been told."""

    name: str
    # As JSON, sorted by name.
    labels: str
    since: datetime
    seen_at: datetime
    value: float
    told: bool = False


# Not an alert: its row says when somebody last looked at them all.
LOOKED = ""
