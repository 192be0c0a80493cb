"""What does a store remember of what happened, and of how much waits? The part that is looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

import msgspec

from windlass.job import View
from windlass.store.flow import Depths

# What the store itself counts, and how much waits; observe/names.py has all the names.
ENQUEUED = "enqueued"
DEAD = "dead"
REPLAYED = "replayed"
DEPTH = "depth"
OLDEST = "oldest"
# Of attempts by the release that ran them; each is a name of its own, with the release in it.
RELEASE = "release."
ATTEMPTS = "attempts"
FAILED = "failed"
# In microseconds.
RAN = "ran"
# What is not shown apart: types, tenants.
OTHER = "other"
# Views of jobs that wait.
PENDING = frozenset({View.DUE, View.SCHEDULED, View.RETRYING, View.WAITING})
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
    """All names under which anything is counted of one release."""
    return tuple(of_release(version, name) for name in (ATTEMPTS, FAILED, RAN))


class Past(msgspec.Struct, frozen=True):
    """How often something happened within one step."""

    at: datetime
    type: str
    name: str
    value: int


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


class Observing(Protocol):
    """Looking at what happened. Nothing here grows with the number of jobs that ended."""

    def add_history(self, happened: Happened, flush: Flush | None = None) -> None:
        """Count what happened, now; a flush counts once, however often it is told."""

    def totals(self) -> dict[tuple[str, str], int]:
        """Everything that was ever counted, by type and name."""

    def history(
        self, step: Step, since: datetime, before: datetime, *, types: Sequence[str] | None = None
    ) -> list[Past]:
        """What happened in each step, oldest first; of what was measured the sums alone.

        Of all types and of what belongs to none, or of these types only.
        """

    def history_of_others(
        self, step: Step, since: datetime, before: datetime, *, types: Sequence[str]
    ) -> list[Past]:
        """The same of all types but these, added up, as of one type `other`."""

    def releases(self) -> list[Release]:
        """The releases of the application whose attempts were counted apart, the newest first."""

    def increases(self, since: Sequence[timedelta]) -> dict[timedelta, dict[tuple[str, str], int]]:
        """What happened in the last so many minutes, for each of these."""

    def gauge_at(self, name: str, ago: timedelta) -> dict[str, int]:
        """How much of something waited so long ago, by type; empty if nobody looked then."""

    def sample(self) -> Sample:
        """Where all live jobs stood at the last look."""

    def take_sample(self, older_than: timedelta) -> Sample:
        """The same, looked at anew if the last look is older than that."""

    def oldest_record(self) -> datetime | None:
        """When the oldest job of the archive ended, to the day; None if it is empty."""

    def noticed(self) -> list[Noticed]:
        """Alerts whose condition held when last looked, or of whose end nobody has been told yet."""

    def notice(self, holding: Mapping[tuple[str, str], float]) -> list[Noticed]:
        """Keep which alerts hold now, by name and labels, with their values.

        Answers all that hold, and those that hold no more while somebody thinks they do.
        """

    def may_tell(self, name: str, labels: str, *, fires: bool) -> bool:
        """Take it upon oneself to tell somebody that an alert fires, or that it is over.

        True for one of those who ask, who then says `told`; if it does not within a minute, others may.
        """

    def told(self, name: str, labels: str, *, fires: bool | None) -> None:
        """Somebody has been told that it fires, or is over; None: nobody could be reached, others may try."""
