"""How are ticks kept and checks handed out?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from windlass.clock import from_micros, span
from windlass.store import rows
from windlass.store.signalling import Check, Sighting, Stalled, Verdict, Verdicts
from windlass.store.verbs import history, unread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from windlass.store.transaction import Row, Tx

_MOST_STALLED = 10_000


# --- one look -----------------------------------------------------------------------------------


def sight(tx: Tx, stalled_for: timedelta) -> Sighting:
    """Ticks, what stands still, and what came of checks."""
    stalled = tx.rows("count_unpromoted", before=tx.now - span(stalled_for), limit=_MOST_STALLED)
    return Sighting(
        now=from_micros(tx.now),
        ticks={row["name"]: from_micros(row["at"]) for row in tx.rows("ticks")},
        stalled=tuple(
            Stalled(type=row["type"], count=row["count"], since=from_micros(row["since"])) for row in stalled
        ),
        verdicts=_verdicts(tx),
        unread=tuple(unread.every(tx)),
    )


def _verdicts(tx: Tx) -> tuple[Verdicts, ...]:
    found = {row["type"]: _verdict(row) for row in tx.rows("verdicts")}
    for row in tx.rows("waiting_checks"):
        known = found.get(row["type"], Verdicts(type=row["type"]))
        since = from_micros(row["since"])
        found[row["type"]] = msgspec.structs.replace(known, waiting=row["count"], since=since)
    return tuple(found[name] for name in sorted(found))


def _verdict(row: Row) -> Verdicts:
    return Verdicts(
        type=row["type"],
        matched=row["matched"],
        mismatched=row["mismatched"],
        unknown=row["unknown"],
        mismatch_at=None if row["mismatch_at"] is None else from_micros(row["mismatch_at"]),
        mismatch_job=row["mismatch_job"],
    )


# --- ticks --------------------------------------------------------------------------------------


def note_ticks(tx: Tx, ages: Mapping[str, timedelta], who: str) -> None:
    """Keep when things last succeeded."""
    note_ticks_at(tx, tx.now, ages, who)


def note_ticks_at(tx: Tx, now: int | None, ages: Mapping[str, timedelta], who: str) -> None:
    """The same, seen from that moment; None: the server's own time, where there is a server."""
    spans = {name: span(age) for name, age in ages.items()}
    tx.change("note_ticks", ages=rows.json_text(spans), now=now, who=who)


# --- checks -------------------------------------------------------------------------------------


def add_check(tx: Tx, job_id: str, job_type: str, after: timedelta) -> None:
    """The outcome of a job that ends in this transaction is to be checked later."""
    tx.change("add_check", job_id=job_id, type=job_type, now=tx.now, due_at=tx.now + span(after))


def with_checks(tx: Tx, types: Sequence[str]) -> list[str]:
    """The types of which something is to be checked now."""
    return [name for name in types if tx.row("any_check", type=name, now=tx.now) is not None]


def take_checks(tx: Tx, types: Sequence[str], limit: int, again: timedelta) -> list[Check]:
    """Take checks that are due."""
    taken: list[Check] = []
    for name in types:
        found = tx.rows(
            "take_checks", type=name, now=tx.now, again=tx.now + span(again), limit=limit - len(taken)
        )
        taken += [Check(row["job_id"], row["type"], row["takes"]) for row in found]
        if len(taken) >= limit:
            break
    return taken


def put_off_check(tx: Tx, check: Check, by: timedelta) -> None:
    """Try again later."""
    tx.change("put_off_check", job_id=check.job_id, takes=check.takes, again=tx.now + span(by))


def end_check(tx: Tx, check: Check, verdict: Verdict) -> bool:
    """Count a verdict, in the transaction that ends the check: never twice, never not at all."""
    if not tx.change("end_check", job_id=check.job_id, takes=check.takes):
        return False
    wrong = verdict is Verdict.MISMATCHED
    tx.change(
        "note_verdict",
        type=check.type,
        matched=int(verdict is Verdict.MATCHED),
        mismatched=int(wrong),
        unknown=int(verdict is Verdict.UNKNOWN),
        mismatch_at=tx.now if wrong else None,
        mismatch_job=check.job_id if wrong else None,
    )
    history.add(tx, {(check.type, verdict.value): 1})
    return True
