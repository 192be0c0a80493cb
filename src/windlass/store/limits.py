"""Claim under limits, breakers and shares: count permits, then choose what starts (decision 009)."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

import msgspec

from windlass.clock import span
from windlass.job import Lease
from windlass.policy import LOOKED_AGO, Limit
from windlass.settings import ALL, KEY
from windlass.store import rows
from windlass.store.engine import Claimed, Tx, Want
from windlass.store.flow import Restriction
from windlass.store.lanes import Candidate, Lanes, Spare, in_order, next_due

# Somebody else counts at this moment, for a few milliseconds: asked again soon, and not all at the same time.
_AGAIN_WITHIN = 0.025
_LEAST_WAIT = timedelta(milliseconds=1)
_BREAKER = "breaker:"


class LimitState(NamedTuple):
    """How limits stood at one look, which locks nothing: whoever finds that nothing can start goes away."""

    # Types that have due jobs, and when the next scheduled one of a type is due.
    due: frozenset[str]
    later: Mapping[str, int]
    # By limit: how many run, and when its rate has a token.
    running: Mapping[str, int]
    next_at: Mapping[str, int]


NOTHING = LimitState(frozenset(), {}, {}, {})


def can_start(want: Want) -> bool:
    """Whether there is any use in a look: limited jobs are never claimed ahead of a free slot."""
    return bool(want.restricted) and want.slots > 0


def look(tx: Tx, want: Want) -> LimitState:
    """How the limits stand, statement by statement."""
    if not can_start(want):
        return NOTHING
    limits = limits_of(want)
    later = {name: tx.row("next_due", type=name) for name in want.restricted}
    stands = {name: tx.row("limit", name=name) for name in limits}
    return LimitState(
        due=frozenset(
            name
            for name in want.restricted
            if tx.row("any_due", type=name, version=want.types[name]) is not None
        ),
        later={name: row["run_at"] for name, row in later.items() if row is not None},
        running={
            name: running(tx, name, limit.concurrency)
            for name, limit in limits.items()
            if limit.concurrency is not None
        },
        next_at={name: row["next_at"] for name, row in stands.items() if row is not None},
    )


def limits_of(want: Want) -> dict[str, Limit]:
    """Every limit that stands in the way of what is wanted, by name."""
    return {name: limit for each in want.restricted.values() for name, limit in each.limits.items()}


def running(tx: Tx, name: str, most: int) -> int:
    """How many jobs run under a limit, counted up to a bound."""
    which, values = under(name)
    row = tx.row(f"count_limited{which}", **values, limit=most)
    return 0 if row is None else int(row["count"])


def under(name: str) -> tuple[str, dict[str, str]]:
    """For the jobs under a limit: how the name of a statement ends, and its values."""
    if name == ALL:
        return "", {}
    return (
        ("_key", {"limit_key": name.removeprefix(KEY)}) if name.startswith(KEY) else ("_type", {"type": name})
    )


class Outlook:
    """What follows from a look: which types are worth locking their limits for, and when the others are."""

    def __init__(self, want: Want, limit_state: LimitState, now: int) -> None:
        self._now = now
        self._state = limit_state
        # When it is worth asking again: the earliest of all that was said.
        self.wait: timedelta | None = None
        self.contended = False
        # Limits under which somebody has counted before.
        self.known = limit_state.next_at.keys()
        self.overdue = [name for name, at in limit_state.later.items() if at <= now]
        for at in limit_state.later.values():
            if at > now:
                self.wait_until(at)
        due = {*limit_state.due, *self.overdue}
        self.ready = [
            name
            for name, restriction in want.restricted.items()
            if name in due and all(self._permits(*each) for each in restriction.limits.items())
        ]
        # Something is due, and has no permit.
        self.held_back = len(self.ready) < len(due)

    def _permits(self, name: str, limit: Limit) -> bool:
        if limit.concurrency is not None and self._state.running[name] >= limit.concurrency:
            return False
        next_at = self._state.next_at.get(name, 0)
        if limit.rate is not None and not limit.rate.tokens(next_at, self._now):
            self.wait_until(next_at)
            return False
        return True

    def wait_until(self, moment: int) -> None:
        """Ask again at that moment, and not at once."""
        self.wait_for(max(rows.from_span(moment - self._now), _LEAST_WAIT))

    def wait_a_moment(self) -> None:
        """Somebody else is counting now."""
        self.contended = True
        self.wait_for(timedelta(seconds=random.uniform(0.2, 1) * _AGAIN_WITHIN))

    def wait_for(self, wait: timedelta | None) -> None:
        """Ask again after that time; None: nothing is known of it."""
        if wait is not None:
            self.wait = wait if self.wait is None else min(self.wait, wait)


class Counter(Outlook):
    """Counts permits, each limit under its lock and at most once a claim."""

    def __init__(self, tx: Tx, want: Want, limit_state: LimitState) -> None:
        super().__init__(want, limit_state, tx.now)
        self._tx = tx
        self._want = want
        # Permits by limit or breaker.
        self._left: dict[str, float] = {}
        self._next_at: dict[str, int] = {}
        self._limits: dict[str, Limit] = {}
        # Limited jobs are never claimed ahead: so many can start at once.
        self.slots = want.slots

    def find(self, types: Iterable[str], lowest: int = 0) -> list[Candidate]:
        """The next jobs of these types, each as far as its own permits go.

        With `lowest`, so many of the lowest priority that waits, of each type.
        """
        found: list[Candidate] = []
        for name in types:
            room = self._room(self._want.restricted[name])
            self.held_back |= room <= 0 < self.slots
            if room > 0:
                after = self._want.turns.get(name, "")
                lanes = Lanes(self._tx, name, self._want.types[name], after, self._spare(name))
                found += lanes.lowest(min(room, lowest)) if lowest else lanes.first(room)
        return found

    def within(self, ordered: Iterable[Candidate]) -> list[Candidate]:
        """Those that may start together: what they share is given out in their order."""
        left, slots = dict(self._left), self.slots
        chosen: list[Candidate] = []
        for candidate in ordered:
            restriction = self._want.restricted.get(candidate.type)
            if restriction is None:
                chosen.append(candidate)
                continue
            names = _names(restriction)
            if slots > 0 and all(left[name] for name in names):
                chosen.append(candidate)
                slots -= 1
                for name in names:
                    left[name] -= 1
        return chosen

    def note(self, taken: Iterable[Lease]) -> None:
        """These start: their permits and tokens are gone, and those behind a breaker are its probes."""
        started: dict[str, int] = {}
        for lease in taken:
            restriction = self._want.restricted.get(lease.job.type)
            if restriction is None:
                continue
            self.slots -= 1
            for name in _names(restriction):
                self._left[name] -= 1
                started[name] = started.get(name, 0) + 1
            if restriction.breaker is not None:
                fence = {"seq": lease.job.seq, "token": lease.token}
                probe_at = self._tx.now + span(restriction.probe)
                self._tx.change("begin_probe", name=restriction.breaker, probe_at=probe_at, **fence)
        for name, count in sorted(started.items()):
            rate = self._limits[name].rate if name in self._limits else None
            if rate is not None:
                after = self._next_at[name] = rate.after(self._next_at[name], self._tx.now, count)
                self._tx.change("spend_rate", name=name, next_at=after)
                # There may be more that wait for the next token.
                self.wait_until(after)

    def _room(self, restriction: Restriction) -> int:
        for name, limit in sorted(restriction.limits.items()):
            if name not in self._left:
                self._limits[name] = limit
                self._left[name] = self._count(name, limit)
        if restriction.breaker is not None and _BREAKER + restriction.breaker not in self._left:
            self._left[_BREAKER + restriction.breaker] = self._probes(restriction.breaker, restriction.probe)
        return int(min((self.slots, *(self._left[name] for name in _names(restriction)))))

    def _probes(self, breaker: str, every: timedelta) -> float:
        """One if a probe may start now, else none; any number if the breaker is closed by now."""
        row = self._tx.row("lock_breaker", name=breaker)
        if row is None:
            self.wait_a_moment()
            return 0
        if row["state"] != "open":
            return math.inf
        if row["by_hand"] or row["probing"]:
            return 0
        # Further ahead is what was set before, or the time of a clock that was set back.
        if self._tx.now < row["probe_at"] <= self._tx.now + span(every) + LOOKED_AGO:
            self.wait_until(row["probe_at"])
            return 0
        return 1

    def _count(self, name: str, limit: Limit) -> float:
        row = self._tx.row("lock_limit", name=name)
        if row is None and name not in self.known:
            self._tx.change("make_limit", name=name)
            row = self._tx.row("lock_limit", name=name)
        if row is None:
            self.wait_a_moment()
            return 0
        next_at = self._next_at[name] = int(row["next_at"])
        permits = math.inf
        if limit.concurrency is not None:
            permits = limit.concurrency - running(self._tx, name, limit.concurrency)
        if limit.rate is not None:
            tokens = limit.rate.tokens(next_at, self._tx.now)
            permits = min(permits, tokens)
            if not tokens:
                self.wait_until(next_at)
        return max(0, permits)

    def _spare(self, job_type: str) -> Spare | None:
        limit = self._want.restricted[job_type].limits.get(job_type)
        most = None if limit is None else limit.per_tenant
        if most is None:
            return None
        counts = {row["tenant"]: row["count"] for row in self._tx.rows("count_tenants", type=job_type)}
        return lambda tenant: max(0, most - counts.get(tenant, 0))


def _names(restriction: Restriction) -> list[str]:
    return [*restriction.limits, *([_BREAKER + restriction.breaker] if restriction.breaker else [])]


def claim(
    tx: Tx,
    want: Want,
    limit_state: LimitState,
    *,
    promote: Callable[[Tx, Sequence[str]], None],
    plain: Callable[[Tx, Want], Claimed],
) -> Claimed:
    """Take due jobs, those of restricted types only as far as there are permits; `plain` takes the others."""
    free = {name: version for name, version in want.types.items() if name not in want.restricted}
    counter = Counter(tx, want, limit_state)
    leases: list[Lease] = []
    if counter.ready or want.lowest:
        with tx.part():
            leases = _take_restricted(tx, want, counter, free, promote)
    rest = want.limit - len(leases)
    due = None
    if free and rest > 0:
        others = plain(tx, msgspec.structs.replace(want, types=free, limit=rest, restricted={}, lowest=0))
        # The higher priority first; else as they came.
        leases = sorted([*leases, *others.leases], key=lambda lease: -lease.job.priority)
        due = others.next_due
    elif free:
        due = next_due(tx, free)
    return Claimed(leases, due, counter.wait, held_back=counter.held_back, contended=counter.contended)


def _take_restricted(
    tx: Tx,
    want: Want,
    counter: Counter,
    free: Mapping[str, int],
    promote: Callable[[Tx, Sequence[str]], None],
) -> list[Lease]:
    come = [*counter.overdue, *(free if want.lowest else ())]
    if come:
        promote(tx, come)
        counter.wait_for(next_due(tx, counter.overdue))
    leases = _take(tx, want, _lowest(tx, want, counter, free) if want.lowest else [], counter)
    candidates = in_order(counter.find(counter.ready), want.turns)
    return leases + _take(tx, want, _chosen(tx, counter.slots, candidates, free), counter)


def adopt(tx: Tx, restricted: Mapping[str, Restriction]) -> None:
    """Let running jobs that were claimed before a limit was known count under it."""
    for name, restriction in sorted(restricted.items()):
        tx.change("adopt", type=name, limit_key=restriction.key)


def return_tokens(tx: Tx, tokens: Iterable[tuple[str, int]]) -> None:
    """Jobs that were claimed under rates never started. In one order, so that no two wait for each other."""
    for name, interval in sorted(tokens):
        tx.change("return_token", name=name, interval=interval)


def let_go(tx: Tx, tokens: Sequence[str]) -> None:
    """Work that went on after it was settled has ended: others may have its permits."""
    for token in sorted(tokens):
        tx.change("let_go", token=token)


def _chosen(
    tx: Tx, slots: int, candidates: Sequence[Candidate], free: Mapping[str, int]
) -> Sequence[Candidate]:
    """Those whose turn it is: jobs of unrestricted types with a higher priority go first, then older ones."""
    if not free or not candidates:
        return candidates
    chosen: list[Candidate] = []
    types = rows.json_text(dict(free))
    for priority in sorted({each.priority for each in candidates}, reverse=True):
        band = [each for each in candidates if each.priority == priority]
        above = tx.row("rivals_above", types=types, priority=priority, limit=slots)
        room = max(0, slots - ((above and above["ahead"]) or 0) - len(chosen))
        if 2 * len(band) <= room:
            # The half that may go before older rivals is room for all of them.
            chosen += band
            continue
        row = tx.row("rivals_first", types=types, priority=priority) if room else None
        head = None if row is None else row["head"]
        older = [each for each in band if head is None or each.seq < head][:room]
        # Of those that came after the first rival about half: neither kind waits for the other's end.
        younger = [each for each in band if each not in older][: (room - len(older)) // 2]
        chosen += [*older, *younger]
    return chosen


def _lowest(tx: Tx, want: Want, counter: Counter, free: Mapping[str, int]) -> list[Candidate]:
    """A few jobs of the lowest priority before the others: they have their share, whatever comes above."""
    found = counter.find(counter.ready, want.lowest)
    for name, known in free.items():
        found += Lanes(tx, name, known, want.turns.get(name, "")).lowest(want.lowest)
    if not found:
        return []
    lowest = min(each.priority for each in found)
    return in_order([each for each in found if each.priority == lowest], want.turns)[: want.lowest]


def _take(tx: Tx, want: Want, chosen: Sequence[Candidate], counter: Counter) -> list[Lease]:
    picked = counter.within(chosen)
    taken: list[Lease] = []
    told = {"worker": want.worker, "mark": want.mark, "lease": span(want.lease), "now": tx.now}
    for job_type in sorted({each.type for each in picked}):
        restriction = want.restricted.get(job_type)
        key = None if restriction is None else restriction.key
        seqs = rows.json_text([each.seq for each in picked if each.type == job_type])
        found = tx.rows("claim_limited", picked=seqs, limit_key=key, **told)
        taken += [rows.lease_from(row) for row in found]
    counter.note(taken)
    place = {each.seq: number for number, each in enumerate(picked)}
    return sorted(taken, key=lambda lease: place[lease.job.seq])
