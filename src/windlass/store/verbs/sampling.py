"""Where do live jobs stand, and how many have come in? Looked at by one process every few seconds."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from windlass.clock import END_OF_TIME, from_micros, span
from windlass.job import JobState, View
from windlass.store.observing import DEPTH, ENQUEUED, OLDEST, Sample, Standing
from windlass.store.verbs import history

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from windlass.store.transaction import Row, Tx

# A look takes no more than this share of the time of whoever looks.
_SHARE = 20
# So many numbers are counted again and again while a transaction stays open; then it is not waited for.
_MOST_AHEAD = 2_000_000

_Row = tuple[str, int, str, int, int | None]


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What one look found: (type, priority, view, count, since), and how many jobs came in by type."""

    # When the look before it was taken: it must still be the last one when this is written.
    after: int
    rows: tuple[_Row, ...]
    settled_seq: int
    counted_seq: int
    horizon: int
    enqueued: Mapping[str, int]
    uncommitted: Mapping[str, int]


def sample(tx: Tx) -> Sample:
    """The last look."""
    last = tx.row("last_sampling")
    if last is None or not last["sampled_at"]:
        return Sample()
    return _sample(tx.rows("samples"), last["sampled_at"], last["took"], tx.now)


def look(tx: Tx, older_than: timedelta) -> Seen | None:
    """Look anew; None if somebody has looked lately. A read: nobody who writes waits for it."""
    last = tx.row("last_sampling")
    # Whoever wants one of this very moment gets it, whatever it takes.
    if last is not None and older_than:
        age = abs(tx.now - last["sampled_at"])
        if age <= max(span(older_than), last["took"] * _SHARE):
            return None
    return _came_in(tx, last, tuple(_rows(tx)))


def note(tx: Tx, seen: Seen, took: timedelta) -> Sample:
    """Keep what was seen, unless somebody else was faster."""
    written = tx.change(
        "note_sampling",
        now=tx.now,
        took=span(took),
        settled=seen.settled_seq,
        counted=seen.counted_seq,
        horizon=seen.horizon,
        seen=seen.after,
    )
    if not written:
        return sample(tx)
    known = {row["type"]: row["count"] for row in tx.rows("uncommitted")}
    came = {name: count - known.get(name, 0) for name, count in seen.enqueued.items()}
    history.add(tx, {(name, ENQUEUED): count for name, count in came.items() if count > 0})
    tx.change("forget_uncommitted")
    for name, count in sorted(seen.uncommitted.items()):
        tx.change("note_uncommitted", type=name, count=count)
    tx.change("forget_samples")
    if seen.rows:
        tx.change("note_samples", rows=msgspec.json.encode(seen.rows).decode())
    _keep_depths(tx, seen)
    found = [dict(zip(_COLUMNS, row, strict=True)) for row in seen.rows]
    return _sample(found, tx.now, span(took), tx.now)


# --- where they stand ---------------------------------------------------------------------------


def _rows(tx: Tx) -> Iterator[_Row]:
    """Each view of each type and priority once."""
    found: Counter[tuple[str, int, str]] = Counter()
    first: dict[tuple[str, int, str], int] = {}
    for view, row in _views(tx):
        of = (row["type"], row["priority"], view)
        found[of] += row["count"]
        if row["since"] is not None:
            first[of] = min(row["since"], first.get(of, row["since"]))
    for of, count in found.items():
        yield *of, count, first.get(of)


def _views(tx: Tx) -> Iterator[tuple[str, Row]]:
    for row in tx.rows("sample_due"):
        yield View.DUE.value, row
    for row in tx.rows("sample_later", now=tx.now, never=END_OF_TIME):
        view = View.DUE if row["due"] else View.RETRYING if row["tried"] else View.SCHEDULED
        yield (View.WAITING if row["waits"] else view).value, row
    for row in tx.rows("sample_running", now=tx.now):
        yield View.STUCK.value if row["stuck"] else JobState.PROCESSING.value, row
    for row in tx.rows("sample_dead"):
        yield JobState.DEAD.value, row


def _sample(rows: Iterable[Row], at: int, took: int, now: int) -> Sample:
    return Sample(
        at=from_micros(at),
        # A look of the future was taken before the clock was set back.
        age=timedelta(microseconds=abs(now - at)),
        took=timedelta(microseconds=took),
        standing=tuple(
            Standing(
                type=row["type"],
                priority=row["priority"],
                view=row["view"],
                count=row["count"],
                # As of the look: the first may have gone by now.
                oldest=None if row["since"] is None else timedelta(microseconds=max(0, at - row["since"])),
            )
            for row in rows
        ),
    )


def _keep_depths(tx: Tx, seen: Seen) -> None:
    """How much waited, and how long the first had, for charts; of types of which nothing waits, that."""
    amounts: Counter[tuple[str, str]] = Counter()
    for name, _, view, count, since in seen.rows:
        if view in _PENDING:
            amounts[name, DEPTH] += count
        if view == View.DUE and since is not None:
            amounts[name, OLDEST] = max(amounts[name, OLDEST], tx.now - since)
    for row in tx.rows("types"):
        amounts[row["name"], DEPTH] += 0
        amounts[row["name"], OLDEST] += 0
    history.put(tx, amounts)


# --- who came in --------------------------------------------------------------------------------


def _came_in(tx: Tx, last: Row | None, rows: tuple[_Row, ...]) -> Seen:
    """Count the jobs that have come in by their numbers, wherever they are by now: producers pay nothing.

    On PostgreSQL a job with a lower number may be committed after one with a higher: numbers are counted
    again until every transaction that may hold one is over.
    """
    after = last["sampled_at"] if last is not None else 0
    settled = last["settled_seq"] if last is not None else 0
    counted = last["counted_seq"] if last is not None else 0
    highest = tx.row("highest_seq")
    until = max(counted, (highest["seq"] if highest is not None else None) or 0)
    under_way = tx.rows("horizon")[0]
    over = under_way["oldest"] >= (last["horizon"] if last is not None else 0)
    certain = counted if over or until - settled > _MOST_AHEAD else settled
    enqueued: Counter[str] = Counter()
    ahead: dict[str, int] = {}
    for row in tx.rows("count_enqueued", since=settled, until=until, settled=certain):
        enqueued[row["type"]] += row["count"]
        if not row["settled"]:
            ahead[row["type"]] = row["count"]
    return Seen(
        after=after,
        rows=rows,
        settled_seq=certain,
        counted_seq=until,
        horizon=under_way["following"],
        enqueued=enqueued,
        uncommitted=ahead,
    )


_COLUMNS = ("type", "priority", "view", "count", "since")
_PENDING = frozenset({View.DUE, View.SCHEDULED, View.RETRYING, View.WAITING})
