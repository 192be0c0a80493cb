"""How many jobs of a limited type may start, and which? Permits are counted from leases (decision 009)."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from windlass.clock import span
from windlass.policy.limit import LOOKED_AGO
from windlass.settings import ALL, KEY
from windlass.store import rows
from windlass.store.protocol import Claimed, Want
from windlass.store.verbs.fleet import next_due
from windlass.store.verbs.lanes import Candidate, Lanes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from windlass.job import Lease
    from windlass.policy.limit import Limit
    from windlass.store.flow import Restriction
    from windlass.store.transaction import Tx

# Somebody else counts at this moment, for a few milliseconds: asked again soon, and not all at the same time.
_AGAIN_WITHIN = 0.025
_LEAST_WAIT = timedelta(milliseconds=1)
_BREAKER = "breaker:"


def claim(
    tx: Tx,
    want: Want,
    *,
    promote: Callable[[Tx, Sequence[str]], None],
    plain: Callable[[Tx, Want], Claimed],
) -> Claimed:
    """Take due jobs, those of restricted types only as far as there are permits; `plain` takes the others."""
    free = {name: version for name, version in want.types.items() if name not in want.restricted}
    held = {name: version for name, version in want.types.items() if name in want.restricted}
    with tx.part():
        promote(tx, list(want.types if want.lowest else held))
        counter = _Counter(tx, want)
        leases = _take(tx, want, _chosen(tx, want, counter.candidates(held), free), counter)
        waits = [counter.wait, next_due(tx, held)]
        leases += _take_lowest(tx, want, free)
    rest = want.limit - len(leases)
    if free and rest > 0:
        others = plain(tx, msgspec.structs.replace(want, types=free, limit=rest, restricted={}, lowest=0))
        leases = _in_order([*leases, *others.leases])
        waits.append(others.next_due)
    elif free:
        waits.append(next_due(tx, free))
    return Claimed(leases, min((wait for wait in waits if wait is not None), default=None))


def adopt(tx: Tx, restricted: Mapping[str, Restriction]) -> None:
    """Let running jobs that were claimed before a limit was known count under it."""
    for name, restriction in sorted(restricted.items()):
        tx.change("adopt", type=name, limit_key=restriction.key)


class _Counter:
    """Counts permits, each limit under its lock and at most once a claim."""

    def __init__(self, tx: Tx, want: Want) -> None:
        self._tx = tx
        self._want = want
        self._left: dict[str, int | None] = {}
        self._next_at: dict[str, int] = {}
        self._limits: dict[str, Limit] = {}
        self.wait: timedelta | None = None

    def candidates(self, types: Mapping[str, int]) -> list[Candidate]:
        """Jobs that may start, each type as far as its own permits go, the next one first."""
        found: list[Candidate] = []
        for name, known in types.items():
            if self._tx.row("any_due", type=name, version=known) is None:
                continue
            room = self._room(self._want.restricted[name])
            if room > 0:
                lanes = Lanes(self._tx, name, known, self._spare(name))
                found += lanes.first(room, after=self._want.turns.get(name, ""))
        return sorted(found)

    def within(self, ordered: Iterable[Candidate]) -> list[Candidate]:
        """Those that may start together: what they share is given out in their order."""
        left = dict(self._left)
        chosen: list[Candidate] = []
        for candidate in ordered:
            names = _names(self._want.restricted[candidate.type])
            if all(left[name] != 0 for name in names):
                chosen.append(candidate)
                for name in names:
                    permits = left[name]
                    left[name] = None if permits is None else permits - 1
        return chosen

    def spend(self, taken: Iterable[Lease]) -> None:
        """Note the starts under their rates."""
        started: dict[str, int] = {}
        for lease in taken:
            for name in self._want.restricted[lease.job.type].limits:
                started[name] = started.get(name, 0) + 1
        for name, count in sorted(started.items()):
            rate = self._limits[name].rate
            if rate is not None:
                after = rate.after(self._next_at[name], self._tx.now, count)
                self._tx.change("spend_rate", name=name, next_at=after)
                # There may be more that wait for the next token.
                self._ask_at(after)

    def probe(self, taken: Iterable[Lease]) -> None:
        """Note which jobs were let through an open breaker."""
        for lease in taken:
            restriction = self._want.restricted[lease.job.type]
            if restriction.breaker is not None:
                self._tx.change(
                    "begin_probe",
                    name=restriction.breaker,
                    seq=lease.job.seq,
                    token=lease.token,
                    probe_at=self._tx.now + span(restriction.probe),
                )

    def _room(self, restriction: Restriction) -> int:
        for name, limit in sorted(restriction.limits.items()):
            if name not in self._left:
                self._limits[name] = limit
                self._left[name] = self._count(name, limit)
        if restriction.breaker is not None and _BREAKER + restriction.breaker not in self._left:
            self._left[_BREAKER + restriction.breaker] = self._probes(restriction.breaker, restriction.probe)
        permits = [self._left[name] for name in _names(restriction)]
        return min(self._want.slots, *(each for each in permits if each is not None), self._want.slots)

    def _probes(self, breaker: str, every: timedelta) -> int | None:
        """One if a probe may start now, else none; any number if the breaker is closed by now."""
        row = self._tx.row("lock_breaker", name=breaker)
        if row is None:
            self._ask_soon()
            return 0
        if row["state"] != "open":
            return None
        if row["by_hand"] or row["probing"]:
            return 0
        # Further ahead is what was set before, or the time of a clock that was set back.
        if self._tx.now < row["probe_at"] <= self._tx.now + span(every) + LOOKED_AGO:
            self._ask_at(row["probe_at"])
            return 0
        return 1

    def _count(self, name: str, limit: Limit) -> int | None:
        """How many more may start under a limit now; None: any number."""
        next_at = self._lock(name)
        if next_at is None:
            self._ask_soon()
            return 0
        self._next_at[name] = next_at
        permits = []
        if limit.concurrency is not None:
            permits.append(limit.concurrency - self._running(name, limit.concurrency))
        if limit.rate is not None:
            tokens = limit.rate.tokens(next_at, self._tx.now)
            permits.append(tokens)
            if not tokens:
                self._ask_at(next_at)
        return max(0, min(permits)) if permits else None

    def _lock(self, name: str) -> int | None:
        """When the limit's rate has a token; None if somebody else is counting under it."""
        row = self._tx.row("lock_limit", name=name)
        if row is None:
            self._tx.change("make_limit", name=name)
            row = self._tx.row("lock_limit", name=name)
        return None if row is None else int(row["next_at"])

    def _running(self, name: str, most: int) -> int:
        if name == ALL:
            row = self._tx.row("count_limited", limit=most)
        elif name.startswith(KEY):
            row = self._tx.row("count_limited_key", limit_key=name.removeprefix(KEY), limit=most)
        else:
            row = self._tx.row("count_limited_type", type=name, limit=most)
        return 0 if row is None else int(row["count"])

    def _spare(self, job_type: str) -> Callable[[str], int | None]:
        """How many more of a tenant's jobs of a type may start."""
        limit = self._want.restricted[job_type].limits.get(job_type)
        most = None if limit is None else limit.per_tenant
        if most is None:
            return lambda _: None
        running = {row["tenant"]: row["count"] for row in self._tx.rows("count_tenants", type=job_type)}
        return lambda tenant: max(0, most - running.get(tenant, 0))

    def _ask_soon(self) -> None:
        self._ask_again(timedelta(seconds=random.uniform(0.2, 1) * _AGAIN_WITHIN))

    def _ask_at(self, moment: int) -> None:
        self._ask_again(timedelta(microseconds=moment - self._tx.now))

    def _ask_again(self, wait: timedelta) -> None:
        wait = max(wait, _LEAST_WAIT)
        self.wait = wait if self.wait is None else min(self.wait, wait)


def _chosen(tx: Tx, want: Want, candidates: Sequence[Candidate], free: Mapping[str, int]) -> list[Candidate]:
    """Those whose turn it is: jobs of unrestricted types with a higher priority go first, then older ones."""
    if not free or not candidates:
        return list(candidates)
    chosen: list[Candidate] = []
    types = rows.json_text(dict(free))
    for priority in sorted({each.priority for each in candidates}, reverse=True):
        row = tx.row("rivals", types=types, priority=priority, limit=want.slots)
        ahead, head = (row["ahead"] or 0, row["head"]) if row is not None else (0, None)
        room = want.slots - ahead - len(chosen)
        band = [each for each in candidates if each.priority == priority]
        older = [each for each in band if head is None or each.seq < head][: max(0, room)]
        # Of those that came after the first rival about half: neither kind waits for the other's end.
        younger = [each for each in band if each not in older][: max(0, room - len(older)) // 2]
        chosen += [*older, *younger]
    return chosen


def _take(tx: Tx, want: Want, chosen: Sequence[Candidate], counter: _Counter) -> list[Lease]:
    picked = counter.within(chosen)
    taken: list[Lease] = []
    for job_type in sorted({each.type for each in picked}):
        found = tx.rows(
            "claim_limited",
            picked=rows.json_text([each.seq for each in picked if each.type == job_type]),
            limit_key=want.restricted[job_type].key,
            worker=want.worker,
            mark=want.mark,
            until=tx.now + span(want.lease),
            now=tx.now,
        )
        taken += [rows.lease_from(row) for row in found]
    counter.spend(taken)
    counter.probe(taken)
    place = {each.seq: number for number, each in enumerate(picked)}
    return sorted(taken, key=lambda lease: place[lease.job.seq])


def _names(restriction: Restriction) -> list[str]:
    """All that a job needs a permit of."""
    return [*restriction.limits, *([_BREAKER + restriction.breaker] if restriction.breaker else [])]


def _take_lowest(tx: Tx, want: Want, types: Mapping[str, int]) -> list[Lease]:
    """A few jobs of the lowest priority before the others: they have their share, whatever comes above."""
    found: list[Candidate] = []
    for name, known in types.items() if want.lowest else ():
        lanes = Lanes(tx, name, known, lambda _: None)
        found += lanes.last(want.lowest, after=want.turns.get(name, ""))
    picked = sorted(found, key=lambda each: (each.priority, *each[1:]))[: want.lowest]
    if not picked:
        return []
    taken = tx.rows(
        "claim_limited",
        picked=rows.json_text([each.seq for each in picked]),
        limit_key=None,
        worker=want.worker,
        mark=want.mark,
        until=tx.now + span(want.lease),
        now=tx.now,
    )
    return [rows.lease_from(row) for row in taken]


def _in_order(leases: list[Lease]) -> list[Lease]:
    """The higher priority first; else as they came."""
    return sorted(leases, key=lambda lease: -lease.job.priority)
