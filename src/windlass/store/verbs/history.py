"""How is what happened counted, kept and read? One row for each step of time, type and name."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from windlass.clock import from_micros, span, to_micros
from windlass.store.observing import (
    ATTEMPTS,
    KEPT,
    LENGTH,
    OTHER,
    Past,
    Release,
    Step,
    counted_of_release,
    of_release,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from windlass.store.observing import Flush, Happened
    from windlass.store.transaction import Tx


def add(tx: Tx, happened: Happened) -> None:
    """Count what happened, now."""
    _write(tx, "add_history", happened)


def tell(tx: Tx, happened: Happened, flush: Flush) -> None:
    """Count what happened; a flush counts once, however often it is sent."""
    if not tx.change("note_flush", teller=flush.teller, number=flush.number, now=tx.now):
        return
    for version in sorted(flush.releases):
        tx.change("note_release", version=version, now=tx.now)
    add(tx, happened)


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


def history(
    tx: Tx, step: Step, since: datetime, before: datetime, *, types: Sequence[str] | None = None
) -> list[Past]:
    """What happened in each step, oldest first; of what was measured the sums alone.

    Of all types and of what belongs to none, or of these types only.
    """
    bounds = _bounds(step, since, before)
    found = (
        tx.rows("history", **bounds)
        if types is None
        else tx.rows("history_of_types", types=_text(types), **bounds)
    )
    return [Past(from_micros(row["at"]), row["type"], row["name"], row["value"]) for row in found]


def history_of_others(
    tx: Tx, step: Step, since: datetime, before: datetime, *, types: Sequence[str]
) -> list[Past]:
    """What happened to jobs of all types but these, added up, as of one type `other`."""
    found = tx.rows("history_of_others", types=_text(types), **_bounds(step, since, before))
    return [Past(from_micros(row["at"]), OTHER, row["name"], row["value"]) for row in found]


def _bounds(step: Step, since: datetime, before: datetime) -> dict[str, str | int]:
    return {"step": step.value, "since": _begin(step, to_micros(since)), "before": to_micros(before)}


def _text(types: Sequence[str]) -> str:
    return msgspec.json.encode(types).decode()


def releases(tx: Tx) -> list[Release]:
    """The releases that are counted apart, the newest first."""
    return [Release(row["version"], from_micros(row["first_at"])) for row in tx.rows("releases")]


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


def gauges(tx: Tx, name: str, since: timedelta) -> dict[str, list[int]]:
    """How much waited in each of the last minutes, by type; each value is looked up, no history is read."""
    minute = span(LENGTH[Step.MINUTE])
    first = _begin(Step.MINUTE, tx.now - span(since))
    minutes = list(range(first, tx.now + 1, minute))
    found: dict[str, list[int]] = {}
    for row in tx.rows("gauges", minutes=msgspec.json.encode(minutes).decode(), name=name):
        found.setdefault(row["type"], []).append(row["value"])
    return found


def bounds(now: int) -> dict[str, int]:
    """Before which times steps, and what was told, are kept no longer."""
    steps = {f"{step.value}s": now - span(kept) for step, kept in KEPT.items()}
    return {**steps, "told": now - span(_REPEATED_WITHIN)}


def prune_workers(tx: Tx) -> None:
    """Forget restarts in places where there were none for long: hosts come and go."""
    tx.change("prune_restarts", since=tx.now - span(_RESTARTS_KEPT))


def prune_releases(tx: Tx) -> None:
    """Forget the oldest, if there are more than anybody shows."""
    known = releases(tx)
    if len(known) > _MOST_RELEASES:
        for release in _last_run_first(tx, known)[_MOST_RELEASES:]:
            for name in counted_of_release(release.version):
                tx.change("forget_counted", name=name)
            tx.change("forget_release", version=release.version)


def _last_run_first(tx: Tx, known: Sequence[Release]) -> list[Release]:
    """Those that ran last come first, whenever they came: an old one that runs on is not counted anew."""
    found = tx.rows("last_runs", since=tx.now - span(_RUNS_ON))
    last = {row["name"]: row["at"] for row in found}
    return sorted(known, key=lambda each: -last.get(of_release(each.version, ATTEMPTS), 0))


def _begin(step: Step, micros: int) -> int:
    length = span(LENGTH[step])
    return micros // length * length


_AROUND = 2
_RESTARTS_KEPT = timedelta(days=30)
# Whoever waits longer than this for the answer to a flush may count it twice.
_REPEATED_WITHIN = timedelta(days=1)
# Every release of the last years would make a scrape slow.
_MOST_RELEASES = 10
# A release that ran anything within this time is not forgotten before others.
_RUNS_ON = timedelta(days=1)
