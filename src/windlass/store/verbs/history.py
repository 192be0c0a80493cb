"""How is what happened counted, kept and read? One row for each step of time, type and name."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from windlass.clock import from_micros, span, to_micros
from windlass.store.observing import KEPT, LENGTH, Past, Step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from windlass.store.observing import Happened
    from windlass.store.transaction import Tx


def add(tx: Tx, happened: Happened) -> None:
    """Count what happened, now."""
    _write(tx, "add_history", happened)


def put(tx: Tx, amounts: Happened) -> None:
    """Keep how much of something there is."""
    _write(tx, "note_history", amounts)


def _write(tx: Tx, statement: str, amounts: Mapping[tuple[str, str], int]) -> None:
    rows = [(*of, value) for of, value in sorted(amounts.items())]
    if rows:
        told = msgspec.json.encode(rows).decode()
        tx.change(statement, rows=told, **{step.value: _begin(step, tx.now) for step in Step})


def totals(tx: Tx) -> dict[tuple[str, str], int]:
    """Everything that was ever counted."""
    return {(row["type"], row["name"]): row["value"] for row in tx.rows("totals")}


def history(tx: Tx, step: Step, since: datetime, before: datetime, job_type: str | None) -> list[Past]:
    """What happened in each step."""
    bounds = {"step": step.value, "since": _begin(step, to_micros(since)), "before": to_micros(before)}
    if job_type is None:
        found = tx.rows("history", **bounds)
    else:
        found = tx.rows("history_of_type", type=job_type, **bounds)
    return [Past(from_micros(row["at"]), row["type"], row["name"], row["value"]) for row in found]


def increases(tx: Tx, since: Sequence[timedelta]) -> dict[timedelta, dict[tuple[str, str], int]]:
    """What happened in the last so many minutes, the present one included."""
    return {ago: _increase(tx, _begin(Step.MINUTE, tx.now - span(ago))) for ago in since}


def _increase(tx: Tx, since: int) -> dict[tuple[str, str], int]:
    whole = -_begin(Step.HOUR, -since)
    found = tx.rows("increase", since=since, hour=whole)
    return {(row["type"], row["name"]): row["value"] for row in found}


def gauge_at(tx: Tx, name: str, ago: timedelta) -> dict[str, int]:
    """How much waited so long ago, by type: of the minutes around then the first in which somebody looked."""
    since = _begin(Step.MINUTE, tx.now - span(ago))
    before = since + _AROUND * span(LENGTH[Step.MINUTE])
    found = tx.rows("gauges_at", since=since, before=before, name=name)
    first = found[0]["at"] if found else None
    return {row["type"]: row["value"] for row in found if row["at"] == first}


def prune(tx: Tx) -> None:
    """Forget steps that nobody keeps any longer."""
    for step, kept in KEPT.items():
        tx.change("prune_history", step=step.value, before=tx.now - span(kept))


def _begin(step: Step, micros: int) -> int:
    length = span(LENGTH[step])
    return micros // length * length


_AROUND = 2
