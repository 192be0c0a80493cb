"""Which due jobs of one type come next? For who must know before anything is taken."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from windlass.job import HIGHEST_PRIORITY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from windlass.store.transaction import Tx


class Candidate(NamedTuple):
    """A due job in its place: compared field by field, the first is the next."""

    urgency: int
    # The first of every tenant, then the second of every tenant.
    round: int
    # Whether the tenant comes only after the turn has begun again.
    wrapped: bool
    tenant: str
    seq: int
    type: str

    @property
    def priority(self) -> int:
        """The job's priority."""
        return -self.urgency


class Lanes:
    """The due jobs of one type. `spare` tells how many more of a tenant's may start; None: any number."""

    def __init__(self, tx: Tx, job_type: str, known: int, spare: Callable[[str], int | None]) -> None:
        self._tx = tx
        self._type = job_type
        self._known = known
        self._spare = spare

    def first(self, limit: int, *, after: str) -> list[Candidate]:
        """The next jobs in their order; tenants take turns, beginning after the one served last."""
        found: list[tuple[int, int, str]] = []
        for version in self._versions():
            found += self._of_version(version, limit, after)
        return self._ranked(sorted(found), after)[:limit]

    def last(self, limit: int, *, after: str) -> list[Candidate]:
        """The next jobs of the lowest priority that waits."""
        found: list[tuple[int, int, str]] = []
        for version in self._versions():
            lane: dict[str, object] = {"type": self._type, "version": version}
            lowest = self._tx.row("lane_lowest", **lane)
            if lowest is not None:
                found += self._of_priority({**lane, "priority": lowest["priority"]}, limit, after)
        return self._ranked(sorted(found), after)

    def _ranked(self, found: list[tuple[int, int, str]], after: str) -> list[Candidate]:
        served: defaultdict[tuple[int, str], int] = defaultdict(int)
        total: defaultdict[str, int] = defaultdict(int)
        ranked: list[Candidate] = []
        for urgency, seq, tenant in found:
            spare = self._spare(tenant)
            if spare is None or total[tenant] < spare:
                round_ = served[urgency, tenant]
                ranked.append(Candidate(urgency, round_, tenant <= after, tenant, seq, self._type))
                served[urgency, tenant] += 1
                total[tenant] += 1
        return sorted(ranked)

    def _of_version(self, version: int, limit: int, after: str) -> list[tuple[int, int, str]]:
        found: list[tuple[int, int, str]] = []
        lane: dict[str, object] = {"type": self._type, "version": version}
        below = HIGHEST_PRIORITY + 1
        while len(found) < limit:
            top = self._tx.row("lane_priority", **lane, below=below)
            if top is None:
                break
            below = top["priority"]
            found += self._of_priority({**lane, "priority": below}, limit, after)
        return found

    def _of_priority(self, lane: dict[str, object], limit: int, after: str) -> list[tuple[int, int, str]]:
        priority = lane["priority"]
        assert isinstance(priority, int)  # noqa: S101 - it came from the row
        room = self._room(lane, limit, after)
        # The lanes that may hold more, with the last job found in each.
        last = dict.fromkeys(room, 0)
        found: list[tuple[int, int, str]] = []
        while last and len(found) < limit:
            share = -(-(limit - len(found)) // len(last))
            for tenant, seq in list(last.items()):
                most = min(share, room[tenant])
                rows = self._tx.rows(
                    "lane_jobs", **lane, tenant=tenant, after=seq, limit=most, now=self._tx.now
                )
                found += [(-priority, row["seq"], tenant) for row in rows]
                room[tenant] -= len(rows)
                if len(rows) < share or not room[tenant]:
                    del last[tenant]
                else:
                    last[tenant] = rows[-1]["seq"]
        return found

    def _room(self, lane: dict[str, object], limit: int, after: str) -> dict[str, int]:
        """The next tenants in turn of whom any more may start, and how many."""
        room: dict[str, int] = {}
        for tenant in self._tenants(lane, after):
            spare = self._spare(tenant)
            if spare != 0:
                room[tenant] = limit if spare is None else min(limit, spare)
            if len(room) >= limit:
                break
        return room

    def _tenants(self, lane: dict[str, object], after: str) -> Iterator[str]:
        row = self._tx.row("lane_tenant", **lane, after=after)
        while row is not None:
            yield row["tenant"]
            row = self._tx.row("lane_tenant", **lane, after=row["tenant"])
        row = self._tx.row("lane_first_tenant", **lane)
        while row is not None and row["tenant"] <= after:
            yield row["tenant"]
            row = self._tx.row("lane_tenant", **lane, after=row["tenant"])

    def _versions(self) -> Iterator[int]:
        row = self._tx.row("lane_version", type=self._type, below=self._known + 1)
        while row is not None:
            yield row["schema_version"]
            row = self._tx.row("lane_version", type=self._type, below=row["schema_version"])
