"""Pauses and circuit breakers: what holds a type back, set by operators or by outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from windlass.clock import from_micros, span, to_micros
from windlass.job import Job
from windlass.policy import MOST_JOBS, BreakerTerms, Limit
from windlass.store import access, rows

if TYPE_CHECKING:
    from windlass.store.engine import Row, Tx


# Before a type: a job of it has kept a worker from answering. No type or key has such a name.
HANG = "hang:"
# For so long after that its jobs run in child processes.
ISOLATED = timedelta(minutes=10)


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """A type that nobody claims from."""

    type: str
    by: str
    why: str
    at: datetime


class BreakerState(StrEnum):
    """What an operator may say about a breaker."""

    OPEN = "open"
    CLOSED = "close"
    # Outcomes decide.
    AUTO = "auto"


class Breaker(msgspec.Struct, frozen=True, kw_only=True):
    """What stands between a type, or what shares a key (`key:crm`), and a dependency that is down."""

    name: str
    open: bool
    by_hand: bool
    # Since when, by whom and why.
    at: datetime
    by: str
    why: str
    probe_at: datetime | None = None


class Runs(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker saw of the runs under one name."""

    name: str
    # (number, microseconds since it began, done, failed), each as a whole.
    stretches: tuple[tuple[int, int, int, int], ...] = ()
    # Jobs that failed, and leases that succeeded.
    failed: tuple[str, ...] = ()
    succeeded: tuple[str, ...] = ()


class Depths(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs wait, by type; counted then, so long ago (None: never)."""

    pending: Mapping[str, int] = {}
    at: datetime | None = None
    age: timedelta | None = None


class Switches(msgspec.Struct, frozen=True, kw_only=True):
    """All that holds jobs back at one moment, besides limits."""

    pauses: Mapping[str, Pause] = {}
    breakers: Mapping[str, Breaker] = {}
    # Names of which some runs failed lately: workers tell what they see of them.
    failing: frozenset[str] = frozenset()
    # Types of which a job has lately kept a worker from answering: their jobs run in child processes.
    hanging: frozenset[str] = frozenset()


class Restriction(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in the way of one type's jobs: limits by name, and the key that it shares with others."""

    limits: Mapping[str, Limit]
    key: str = ""
    # The open breaker, and how long after one probe the next one may start.
    breaker: str | None = None
    probe: timedelta = timedelta(minutes=1)

    @property
    def counted(self) -> tuple[str, ...]:
        """Of what the end of a job lets another one start; of a rate alone only time does."""
        names = (
            name
            for name, limit in self.limits.items()
            if limit.concurrency is not None or limit.per_tenant is not None
        )
        return (*names, *(() if self.breaker is None else (f"breaker {self.breaker}",)))

    @property
    def tokens(self) -> tuple[tuple[str, int], ...]:
        """What one start takes of each rate: the limit's name, and the microseconds of one token."""
        return tuple(
            (name, limit.rate.interval) for name, limit in self.limits.items() if limit.rate is not None
        )


def switches(tx: Tx) -> Switches:
    """What is held back now; of names that are failing every worker tells what it sees."""
    found = tx.rows("switches")
    failing = {row["name"]: row["changed_at"] for row in found if row["what"] == "failing"}
    hangs = {name: at for name, at in failing.items() if name.startswith(HANG)}
    return Switches(
        pauses={
            row["name"]: rows.read(Pause, row, type=row["name"], **_change(row))
            for row in found
            if row["what"] == "pause"
        },
        breakers=_breakers(row for row in found if row["what"] == "breaker"),
        failing=frozenset(failing) - hangs.keys(),
        hanging=frozenset(
            name.removeprefix(HANG) for name, at in hangs.items() if at > tx.now - span(ISOLATED)
        ),
    )


def pause(tx: Tx, job_type: str, *, by: str = "", why: str = "") -> Pause:
    """Claim no jobs of a type until it is resumed; if it is paused already, that pause stays."""
    while True:
        if tx.change("pause", type=job_type, who=by, why=access.said(why), now=tx.now):
            _switched(tx, "pause", job_type, by, why)
        # An earlier pause may have been ended between the two statements: then it is paused again.
        if (paused := switches(tx).pauses.get(job_type)) is not None:
            return paused


def resume(tx: Tx, job_type: str, *, by: str = "", why: str = "") -> bool:
    """Claim jobs of a type again; False if it was not paused."""
    resumed = bool(tx.change("resume", type=job_type))
    if resumed:
        _switched(tx, "resume", job_type, by, why)
    return resumed


def _switched(tx: Tx, verb: str, job_type: str, by: str, why: str) -> None:
    before, after = {"paused": verb != "pause"}, {"paused": verb == "pause"}
    access.note(tx, verb, "type", job_type, by=by, why=why, before=before, after=after)
    tx.change("revise")


def revision(tx: Tx) -> int:
    """Rises with every change of what is set, paused or switched."""
    row = tx.row("revision")
    return 0 if row is None else int(row["value"])


def note_runs(tx: Tx, worker: str, runs: Sequence[Runs], terms: Mapping[str, BreakerTerms]) -> list[Breaker]:
    """Note what a worker saw, and open or close breakers by it; those that changed come back."""
    changed: list[Breaker] = []
    for each in sorted(runs, key=lambda each: each.name):
        _note(tx, worker, each, terms[each.name])
        if _closed_by_probe(tx, each) or _opened(tx, each.name, terms[each.name]):
            changed.append(_known(tx)[each.name])
    if changed:
        tx.change("revise")
    return changed


def note_hang(tx: Tx, job: Job, *, hangs: bool) -> None:
    """A job keeps its worker from answering: others of its type run in child processes, until it answers."""
    name = HANG + job.type
    forgotten = tx.change("forget_failures", name=name, before=tx.now + 1)
    if hangs:
        tx.change("note_failure", name=name, job_id=job.id, now=tx.now)
    if hangs or forgotten:
        tx.change("revise")


def set_breaker(tx: Tx, name: str, state: BreakerState, *, by: str = "", why: str = "") -> Breaker:
    """Open or close a breaker by hand, or let outcomes decide again; what was seen before is forgotten."""
    before = _known(tx).get(name)
    is_open = "open" if state is BreakerState.OPEN else "closed"
    told = {"state": is_open, "by_hand": int(state is not BreakerState.AUTO), "why": access.said(why)}
    tx.change("set_breaker", name=name, who=by, now=tx.now, **told)
    _forget(tx, name)
    tx.change("revise")
    changed = _known(tx)[name]
    # One that nobody knew was closed.
    was, now = (
        {name: each is not None and getattr(each, name) for name in ("open", "by_hand")}
        for each in (before, changed)
    )
    access.note(tx, "breaker", "breaker", name, by=by, why=why, before=was, after=now)
    return changed


def _note(tx: Tx, worker: str, runs: Runs, terms: BreakerTerms) -> None:
    known = _known(tx).get(runs.name)
    # What led to the last change must not lead to the next one.
    changed = 0 if known is None else to_micros(known.at)
    # A change in the future was made before the clock was set back.
    since = max(tx.now - span(terms.window), changed if changed <= tx.now else 0)
    tx.change("forget_tallies", name=runs.name, before=since)
    tx.change("forget_failures", name=runs.name, before=since)
    row = tx.row("failures", name=runs.name)
    noted = 0 if row is None else row["jobs"]
    if runs.failed and not noted:
        # News: the others must tell of their successes, too.
        tx.change("revise")
    for job_id in sorted(runs.failed)[: max(0, MOST_JOBS - noted)]:
        tx.change("note_failure", name=runs.name, job_id=job_id, now=tx.now)
    for stretch, age, done, failed in runs.stretches:
        if tx.now - age >= since:
            counts = {"began_at": tx.now - age, "done": done, "failed": failed}
            tx.change("note_tally", name=runs.name, worker=worker, stretch=stretch, **counts)


def _opened(tx: Tx, name: str, terms: BreakerTerms) -> bool:
    row = tx.row("failures", name=name)
    if row is None or row["first"] is None or row["first"] > tx.now - span(terms.gather):
        return False
    seen = tx.row("tally", name=name)
    if seen is None or not terms.opens(done=seen["done"] or 0, failed=seen["failed"] or 0, jobs=row["jobs"]):
        return False
    why = f"{seen['failed']} of {seen['failed'] + seen['done']} runs failed, of {row['jobs']} jobs"
    return bool(
        tx.change("open_breaker", name=name, why=why, now=tx.now, probe_at=tx.now + span(terms.probe))
    )


def _closed_by_probe(tx: Tx, runs: Runs) -> bool:
    """A probe that succeeded closes the breaker; no other job does, for it may have run before."""
    for token in runs.succeeded:
        if tx.change("close_breaker", name=runs.name, token=token, now=tx.now):
            _forget(tx, runs.name)
            return True
    return False


def _forget(tx: Tx, name: str) -> None:
    tx.change("forget_tallies", name=name, before=tx.now + 1)
    tx.change("forget_failures", name=name, before=tx.now + 1)


def _known(tx: Tx) -> dict[str, Breaker]:
    return _breakers(tx.rows("breakers"))


def _breakers(found: Iterable[Row]) -> dict[str, Breaker]:
    return {
        row["name"]: rows.read(Breaker, row, open=row["state"] == "open", **_change(row)) for row in found
    }


def _change(row: Row) -> dict[str, object]:
    return {"by": row["who"], "at": from_micros(row["changed_at"])}
