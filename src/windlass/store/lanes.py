"""The next due jobs of a type: by priority, tenants in turn, then seq."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from itertools import islice
from operator import itemgetter
from typing import NamedTuple, TypeVar

import msgspec

from windlass.job import HIGHEST_PRIORITY
from windlass.store.engine import Tx
from windlass.store.rows import Taken, from_span

# How many more of a tenant's jobs may start.
Spare = Callable[[str], int]


class Candidate(NamedTuple):
    """A due job."""

    priority: int
    seq: int
    tenant: str
    type: str


# A candidate, or what a claim took of it, which begins in the same way.
D = TypeVar("D", bound=Taken)


def in_order(found: list[D], turns: Mapping[str, str]) -> list[D]:
    """The claim order: by priority, then the first job of every tenant, then the second, and so on; then seq.

    Tenants take turns, by type beginning after the one served last.
    """
    if len(found) < _TWO:
        return found
    ordered = sorted(found, key=_urgency)
    if len({tenant for _, _, tenant, *_ in ordered}) <= 1:
        return ordered
    served: defaultdict[tuple[int, str], int] = defaultdict(int)
    ranked = []
    for each in ordered:
        priority, seq, tenant, job_type = each[:4]
        lane = (-priority, tenant)
        wrapped = tenant <= turns.get(job_type, "")
        ranked.append((lane[0], served[lane], wrapped, tenant, seq, each))
        served[lane] += 1
    ranked.sort(key=itemgetter(0, 1, 2, 3, 4))
    return [each for *_, each in ranked]


def _urgency(each: Taken) -> tuple[int, int]:
    return -each[0], each[1]


_TWO = 2


class Lanes(msgspec.Struct):
    """The due jobs of one type, at a cost that does not depend on what is not asked for."""

    tx: Tx
    type: str
    # The newest schema version that is asked for.
    known: int
    # Tenants take turns, beginning after the one served last.
    after: str
    spare: Spare | None = None

    def first(self, limit: int) -> list[Candidate]:
        """At least the next `limit` jobs, in any order."""
        if self.spare is None:
            alone = self.tx.rows("lane_alone", type=self.type, known=self.known, limit=limit, now=self.tx.now)
            if alone:
                found = []
                for row in alone:
                    found.append(Candidate(row["priority"], row["seq"], row["tenant"], self.type))  # noqa: PERF401 - no frame
                return found
        found = []
        for version in versions(self.tx, self.type, self.known):
            enough, below = len(found) + limit, HIGHEST_PRIORITY + 1
            while len(found) < enough:
                top = self.tx.row("lane_priority", type=self.type, version=version, below=below)
                if top is None:
                    break
                below = top["priority"]
                found += self._of_priority(version, below, enough - len(found))
        return self._spared(found)

    def lowest(self, limit: int) -> list[Candidate]:
        """The same of the lowest priority that waits."""
        found: list[Candidate] = []
        for version in versions(self.tx, self.type, self.known):
            row = self.tx.row("lane_lowest", type=self.type, version=version)
            if row is not None:
                found += self._of_priority(version, row["priority"], limit)
        return self._spared(found)

    def _spared(self, found: list[Candidate]) -> list[Candidate]:
        """No more of a tenant than may start, whatever their versions and priorities."""
        if self.spare is None:
            return found
        left = {tenant: self.spare(tenant) for tenant in {each.tenant for each in found}}
        kept: list[Candidate] = []
        for each in sorted(found, key=_urgency):
            if left[each.tenant]:
                kept.append(each)
                left[each.tenant] -= 1
        return kept

    def _of_priority(self, version: int, priority: int, limit: int) -> list[Candidate]:
        """Jobs of one priority: the same share for each tenant, in rounds until enough are found."""
        lane = {"type": self.type, "version": version, "priority": priority}
        # The next tenants in turn of whom any more may start, each with its first job.
        able = (head for head in self._tenants(lane, limit) if self._most(head[0], limit))
        heads = dict(islice(able, limit))
        room = {tenant: self._most(tenant, limit) for tenant in heads}
        if len(heads) >= limit:
            return [Candidate(priority, seq, tenant, self.type) for tenant, seq in heads.items()]
        # The lanes that may hold more, with the last job taken from each.
        last = dict.fromkeys(room, 0)
        found: list[Candidate] = []
        while last and len(found) < limit:
            share = -(-(limit - len(found)) // len(last))
            for tenant, seq in list(last.items()):
                most = min(share, room[tenant])
                rows = self.tx.rows(
                    "lane_jobs", **lane, tenant=tenant, after=seq, limit=most, now=self.tx.now
                )
                found += [Candidate(priority, row["seq"], tenant, self.type) for row in rows]
                room[tenant] -= len(rows)
                if len(rows) < share or not room[tenant]:
                    del last[tenant]
                else:
                    last[tenant] = rows[-1]["seq"]
        return found

    def _most(self, tenant: str, limit: int) -> int:
        return limit if self.spare is None else min(limit, self.spare(tenant))

    def _tenants(self, lane: dict[str, object], limit: int) -> Iterator[tuple[str, int]]:
        yield from self._turn(lane, self.after, limit)
        first = self.tx.row("lane_first_tenant", **lane, now=self.tx.now)
        if first is None or first["tenant"] > self.after:
            return
        yield first["tenant"], first["seq"]
        for tenant, seq in self._turn(lane, first["tenant"], limit):
            if tenant > self.after:
                return
            yield tenant, seq

    def _turn(self, lane: dict[str, object], after: str, limit: int) -> Iterator[tuple[str, int]]:
        """All tenants after one, some in each statement; not who has only what is due later."""
        while True:
            rows = self.tx.rows("lane_turn", **lane, after=after, limit=limit, now=self.tx.now)
            yield from ((row["tenant"], row["seq"]) for row in rows if row["seq"] is not None)
            if len(rows) < limit:
                return
            after = rows[-1]["tenant"]


def versions(tx: Tx, job_type: str, newest: int) -> Iterator[int]:
    """The schema versions that wait and are known. Each is a lane of its own: newer ones cost nothing."""
    row = tx.row("lane_version", type=job_type, below=newest + 1)
    while row is not None:
        yield row["schema_version"]
        row = tx.row("lane_version", type=job_type, below=row["schema_version"])


def next_due(tx: Tx, types: Iterable[str]) -> timedelta | None:
    """How long until the next scheduled job of these types is due."""
    soonest: int | None = None
    for name in types:
        row = tx.row("next_due", type=name)
        if row is not None and (soonest is None or row["run_at"] < soonest):
            soonest = row["run_at"]
    return None if soonest is None else from_span(max(0, soonest - tx.now))


def claimable(tx: Tx, types: Mapping[str, int]) -> bool:
    """Whether a claim for these types, up to these schema versions, would find anything."""
    for name, version in types.items():
        if tx.row("any_due", type=name, version=version) or tx.row("any_later", type=name, now=tx.now):
            return True
    return False
