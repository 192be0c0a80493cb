"""How does a fleet agree that a dependency is down, and that it is back?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.clock import from_micros, span, to_micros
from windlass.policy.breaker import MOST_JOBS
from windlass.store.flow import HANG, Breaker, BreakerState, Runs
from windlass.store.verbs import access

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from windlass.job import Job
    from windlass.policy.breaker import BreakerTerms
    from windlass.store.transaction import Row, Tx


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
    tx.change(
        "set_breaker",
        name=name,
        state="open" if state is BreakerState.OPEN else "closed",
        by_hand=int(state is not BreakerState.AUTO),
        who=by,
        why=access.said(why),
        now=tx.now,
    )
    _forget(tx, name)
    tx.change("revise")
    changed = _known(tx)[name]
    access.note(
        tx, "breaker", "breaker", name, by=by, why=why, before=_standing(before), after=_standing(changed)
    )
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
    closed = any(
        tx.change("close_breaker", name=runs.name, token=token, now=tx.now) for token in runs.succeeded
    )
    if closed:
        _forget(tx, runs.name)
    return closed


def _forget(tx: Tx, name: str) -> None:
    tx.change("forget_tallies", name=name, before=tx.now + 1)
    tx.change("forget_failures", name=name, before=tx.now + 1)


def _standing(breaker: Breaker | None) -> dict[str, object]:
    """How a breaker stands, for the audit log; one that nobody knows is closed."""
    if breaker is None:
        return {"open": False, "by_hand": False}
    return {"open": breaker.open, "by_hand": breaker.by_hand}


def _known(tx: Tx) -> dict[str, Breaker]:
    return {row["name"]: breaker_from(row) for row in tx.rows("breakers")}


def breaker_from(row: Row) -> Breaker:
    """As its row says."""
    return Breaker(
        name=row["name"],
        open=row["state"] == "open",
        by_hand=bool(row["by_hand"]),
        at=from_micros(row["changed_at"]),
        by=row["who"],
        why=row["why"],
        probe_at=None if row["probe_at"] is None else from_micros(row["probe_at"]),
    )
