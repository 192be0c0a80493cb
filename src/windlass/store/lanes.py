"""The next due jobs of a type: by priority, tenants in turn, then seq."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import timedelta
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from windlass.job import HIGHEST_PRIORITY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from windlass.store.engine import Tx

    # How many more of a tenant's jobs may start; None: any number.
    Spare = Callable[[str], int | None]


class Candidate(NamedTuple):
    """A due job."""

    priority: int
    seq: int
    tenant: str
    type: str


class Due(Protocol):
    """What says in which order jobs start."""

    @property
    def priority(self) -> int:
        """The job's priority."""

    @property
    def seq(self) -> int:
        """The job's number."""

    @property
    def tenant(self) -> str:
        """The job's tenant."""

    @property
    def type(self) -> str:
        """The job's type."""


D = TypeVar("D", bound=Due)


def in_order(found: list[D], turns: Mapping[str, str]) -> list[D]:
    """The claim order: by priority, then the first job of every tenant, then the second, and so on; then seq.

    Tenants take turns, by type beginning after the one served last.
    """
    if len(found) < _TWO:
        return found
    ordered = sorted(found, key=_urgency)
    if len({each.tenant for each in ordered}) <= 1:
        return ordered
    served: defaultdict[tuple[int, str], int] = defaultdict(int)
    ranked = []
    for each in ordered:
        lane = (-each.priority, each.tenant)
        wrapped = each.tenant <= turns.get(each.type, "")
        ranked.append((lane[0], served[lane], wrapped, each.tenant, each.seq, each))
        served[lane] += 1
    ranked.sort(key=itemgetter(0, 1, 2, 3, 4))
    return [each for *_, each in ranked]


def _urgency(each: Due) -> tuple[int, int]:
    return -each.priority, each.seq


_TWO = 2


class Lanes:
    """The due jobs of one type, at a cost that does not depend on what is not asked for."""

    def __init__(self, tx: Tx, job_type: str, known: int, *, after: str, spare: Spare | None = None) -> None:
        """Versions up to `known`; tenants take turns, beginning after the one served last."""
        self._tx = tx
        self._type = job_type
        self._known = known
        self._after = after
        self._spare = spare

    def first(self, limit: int) -> list[Candidate]:
        """At least the next `limit` jobs, in any order."""
        if self._spare is None:
            alone = self._tx.rows(
                "lane_alone", type=self._type, known=self._known, limit=limit, now=self._tx.now
            )
            if alone:
                found = []
                for row in alone:
                    found.append(Candidate(row["priority"], row["seq"], row["tenant"], self._type))  # noqa: PERF401 - no frame
                return found
        found = [each for version in self._versions() for each in self._of_version(version, limit)]
        return self._spared(found)

    def lowest(self, limit: int) -> list[Candidate]:
        """The same of the lowest priority that waits."""
        found: list[Candidate] = []
        for version in self._versions():
            row = self._tx.row("lane_lowest", type=self._type, version=version)
            if row is not None:
                found += self._of_priority(version, row["priority"], limit)
        return self._spared(found)

    def _spared(self, found: list[Candidate]) -> list[Candidate]:
        """No more of a tenant than may start, whatever their versions and priorities."""
        if self._spare is None:
            return found
        left: dict[str, int | None] = {
            tenant: self._spare(tenant) for tenant in {each.tenant for each in found}
        }
        kept: list[Candidate] = []
        for each in sorted(found, key=_urgency):
            spare = left[each.tenant]
            if spare != 0:
                kept.append(each)
                left[each.tenant] = None if spare is None else spare - 1
        return kept

    def _of_version(self, version: int, limit: int) -> list[Candidate]:
        """The first jobs of a version, priority by priority."""
        found: list[Candidate] = []
        below = HIGHEST_PRIORITY + 1
        while len(found) < limit:
            top = self._tx.row("lane_priority", type=self._type, version=version, below=below)
            if top is None:
                break
            below = top["priority"]
            found += self._of_priority(version, below, limit - len(found))
        return found

    def _of_priority(self, version: int, priority: int, limit: int) -> list[Candidate]:
        """Jobs of one priority: the same share for each tenant, in rounds until enough are found."""
        lane = {"type": self._type, "version": version, "priority": priority}
        heads = self._heads(lane, limit)
        room = {tenant: self._most(tenant, limit) for tenant in heads}
        if len(heads) >= limit:
            return [Candidate(priority, seq, tenant, self._type) for tenant, seq in heads.items()]
        # The lanes that may hold more, with the last job taken from each.
        last = dict.fromkeys(room, 0)
        found: list[Candidate] = []
        while last and len(found) < limit:
            share = -(-(limit - len(found)) // len(last))
            for tenant, seq in list(last.items()):
                most = min(share, room[tenant])
                rows = self._tx.rows(
                    "lane_jobs", **lane, tenant=tenant, after=seq, limit=most, now=self._tx.now
                )
                found += [Candidate(priority, row["seq"], tenant, self._type) for row in rows]
                room[tenant] -= len(rows)
                if len(rows) < share or not room[tenant]:
                    del last[tenant]
                else:
                    last[tenant] = rows[-1]["seq"]
        return found

    def _heads(self, lane: dict[str, object], limit: int) -> dict[str, int]:
        """The next tenants in turn of whom any more may start, each with its first job."""
        heads: dict[str, int] = {}
        for tenant, seq in self._tenants(lane, limit):
            if self._most(tenant, limit):
                heads[tenant] = seq
            if len(heads) >= limit:
                break
        return heads

    def _most(self, tenant: str, limit: int) -> int:
        spare = None if self._spare is None else self._spare(tenant)
        return limit if spare is None else min(limit, spare)

    def _tenants(self, lane: dict[str, object], limit: int) -> Iterator[tuple[str, int]]:
        """The tenants that have due jobs, beginning after the one served last."""
        yield from self._turn(lane, self._after, limit)
        first = self._tx.row("lane_first_tenant", **lane, now=self._tx.now)
        if first is None or first["tenant"] > self._after:
            return
        yield first["tenant"], first["seq"]
        for tenant, seq in self._turn(lane, first["tenant"], limit):
            if tenant > self._after:
                return
            yield tenant, seq

    def _turn(self, lane: dict[str, object], after: str, limit: int) -> Iterator[tuple[str, int]]:
        """All tenants after one, some in each statement; not who has only what is due later."""
        while True:
            rows = self._tx.rows("lane_turn", **lane, after=after, limit=limit, now=self._tx.now)
            yield from ((row["tenant"], row["seq"]) for row in rows if row["seq"] is not None)
            if len(rows) < limit:
                return
            after = rows[-1]["tenant"]

    def _versions(self) -> Iterator[int]:
        """The schema versions that wait and are known. Each is a lane of its own: newer ones cost nothing."""
        row = self._tx.row("lane_version", type=self._type, below=self._known + 1)
        while row is not None:
            yield row["schema_version"]
            row = self._tx.row("lane_version", type=self._type, below=row["schema_version"])


def next_due(tx: Tx, types: Iterable[str]) -> timedelta | None:
    """How long until the next scheduled job of these types is due."""
    soonest: int | None = None
    for name in types:
        row = tx.row("next_due", type=name)
        if row is not None and (soonest is None or row["run_at"] < soonest):
            soonest = row["run_at"]
    return None if soonest is None else timedelta(microseconds=max(0, soonest - tx.now))


def claimable(tx: Tx, types: Mapping[str, int]) -> bool:
    """Whether a claim for these types, up to these schema versions, would find anything."""
    for name, version in types.items():
        if tx.row("any_due", type=name, version=version) is not None:
            return True
        if tx.row("any_later", type=name, now=tx.now) is not None:
            return True
    return False
