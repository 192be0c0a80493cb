"""Count live jobs by type, priority, view and tenant. One process does so every few seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta

import msgspec

from windlass import settings
from windlass.clock import END_OF_TIME, from_micros, span
from windlass.job import View
from windlass.store import history, rows
from windlass.store.engine import Row, Tx
from windlass.store.flow import Depths
from windlass.store.history import DEPTH, DUE, ENQUEUED, OLDEST, OTHER

# Views of jobs that wait.
PENDING = frozenset({View.DUE, View.SCHEDULED, View.RETRYING, View.WAITING, View.UNREADABLE})


# A dead job that was replayed so often and died again is poison; such jobs are also counted by themselves.
POISON = "poison"
POISON_REPLAYS = 3


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of one type and priority stood in one view, and how long the first of them has."""

    type: str
    priority: int
    view: str
    count: int
    oldest: timedelta | None = None


class TenantStanding(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of one tenant stood in one view, and how long the first of them has."""

    tenant: str
    view: str
    count: int
    oldest: timedelta | None = None


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """Where all live jobs stood at one moment; None: never looked."""

    at: datetime | None = None
    age: timedelta | None = None
    # How long the look took.
    took: timedelta = timedelta(0)
    standing: tuple[Standing, ...] = ()
    # The same by tenant, of those that operators name and of all others together.
    tenants: tuple[TenantStanding, ...] = ()

    def with_poison(self, counted: Sample) -> Sample:
        """The same with poison as it was counted then."""
        found = counted.standing + tuple(each for each in self.standing if each.view != POISON)
        return msgspec.structs.replace(self, standing=found)

    def depths(self) -> Depths:
        """How many waited, by type."""
        pending: Counter[str] = Counter()
        for each in self.standing:
            if each.view in PENDING:
                pending[each.type] += each.count
        return Depths(pending=pending, at=self.at, age=self.age)


# A look takes no more than this share of the time of whoever looks.
_SHARE = 20
# So many numbers are counted again and again while a transaction stays open; then it is not waited for.
_MOST_AHEAD = 2_000_000

_Row = tuple[str, int, str, str, int, int | None]


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What one look found: (type, priority, view, tenant, count, since), and how many jobs came in by type.

    A row has either a type or a tenant: live jobs are counted by both, if operators ask for that.
    """

    now: int
    # When the look before it was taken: it must still be the last one when this is written.
    after: int
    # Whether that one found anything.
    held: bool
    rows: tuple[_Row, ...]
    settled_seq: int
    counted_seq: int
    horizon: int
    enqueued: Mapping[str, int]
    uncommitted: Mapping[str, int]

    @property
    def quiet(self) -> bool:
        """Whether nothing is to be written that belongs together: no job has come, none is or was there."""
        return not (self.rows or self.held or self.enqueued)

    @property
    def begins_minute(self) -> bool:
        """Whether it is the first look of its minute."""
        return self.now // _MINUTE != self.after // _MINUTE


def sample(tx: Tx) -> Sample:
    """The last look."""
    last = tx.row("last_sampling")
    if last is None or not last["sampled_at"]:
        return Sample()
    return _sample(tx.rows("samples"), last["sampled_at"], last["took"], tx.now)


def poison(tx: Tx) -> Sample:
    """The poison of now, and nothing else: where no worker or server stays, no process takes samples."""
    return _sample(tx.rows("count_poison", replays=POISON_REPLAYS), tx.now, 0, tx.now)


def depths(tx: Tx) -> Depths:
    """How many jobs waited at the last look."""
    found = tx.rows("depths")
    if not found:
        return Depths()
    at = found[0]["sampled_at"]
    return Depths(
        pending={row["type"]: row["pending"] for row in found if row["type"] is not None},
        at=from_micros(at),
        age=_age(at, tx.now),
    )


def look(tx: Tx, older_than: timedelta) -> Seen | Sample:
    """Count live jobs, or give the last count if it is recent enough. A read: no writer waits for it.

    Needs no snapshot: what has come in is counted up to a number, and what a transaction commits below it
    meanwhile is counted the next time.
    """
    [last] = tx.rows("before_sample", now=tx.given)
    tx.learn(last["now"])
    # Whoever wants one of this very moment gets it, whatever it takes.
    if older_than:
        age = abs(tx.now - last["sampled_at"])
        if age <= max(span(older_than), last["took"] * _SHARE):
            return _sample(tx.rows("samples"), last["sampled_at"], last["took"], tx.now)
    # At rest there is nothing to count, and each statement is one too many.
    found = (*_rows(tx), *_tenants(tx, last["tenants"])) if last["live"] else ()
    return _came_in(tx, last, found)


def note(tx: Tx, seen: Seen, took: timedelta) -> Sample | None:
    """Keep what was seen; None if somebody else was faster. Mostly one statement if it is quiet."""
    tx.learn(seen.now)
    told = {"settled_seq": seen.settled_seq, "counted_seq": seen.counted_seq, "horizon": seen.horizon}
    written = tx.change("note_sampling", now=seen.now, took=span(took), after=seen.after, **told)
    if not written:
        return None
    if seen.enqueued:
        _keep_arrivals(tx, seen)
    if seen.held:
        tx.change("forget_samples")
    if seen.rows:
        tx.change("note_samples", rows=rows.json_text(seen.rows))
    if seen.rows or seen.begins_minute:
        _keep_depths(tx, seen)
    found = [dict(zip(_COLUMNS, row, strict=True)) for row in seen.rows]
    return _sample(found, seen.now, span(took), seen.now)


def _rows(tx: Tx) -> Iterator[_Row]:
    """Each view of each type and priority once: due jobs are found in two places."""
    found: Counter[tuple[str, int, str]] = Counter()
    first: dict[tuple[str, int, str], int] = {}
    for row in tx.rows("sample_standing", now=tx.now, never=END_OF_TIME, replays=POISON_REPLAYS):
        of = (row["type"], row["priority"], row["view"])
        found[of] += row["count"]
        if row["since"] is not None:
            first[of] = min(row["since"], first.get(of, row["since"]))
    for of, count in (+found).items():
        yield *of, "", count, first.get(of)


def _tenants(tx: Tx, named: str | None) -> Iterator[_Row]:
    """The same of the tenants that operators name, if any: whoever names none pays nothing."""
    tenants = settings.read({} if named is None else {settings.TENANTS: named}).value(settings.TENANTS)
    if tenants:
        told = rows.json_text(tenants)
        for row in tx.rows("sample_tenants", tenants=told, other=OTHER, now=tx.now, never=END_OF_TIME):
            yield "", 0, row["view"], row["tenant"], row["count"], row["since"]


def _sample(found: Iterable[Row], at: int, took: int, now: int) -> Sample:
    standing: list[Standing] = []
    tenants: list[TenantStanding] = []
    for row in found:
        # As of the look: the first may have gone by now.
        oldest = None if row["since"] is None else rows.from_span(max(0, at - row["since"]))
        if row["type"]:
            standing.append(rows.read(Standing, row, oldest=oldest))
        else:
            tenants.append(rows.read(TenantStanding, row, oldest=oldest))
    return Sample(
        at=from_micros(at),
        age=_age(at, now),
        took=rows.from_span(took),
        standing=tuple(standing),
        tenants=tuple(tenants),
    )


def _age(at: int, now: int) -> timedelta:
    # A look of the future was taken before the clock was set back.
    return rows.from_span(abs(now - at))


def _keep_depths(tx: Tx, seen: Seen) -> None:
    """How much waited, and how long the first had, for charts; once a minute also that nothing does."""
    amounts: Counter[tuple[str, str]] = Counter()
    for name, _, view, _, count, since in seen.rows:
        if name and view in PENDING:
            amounts[name, DEPTH] += count
        if name and view == View.DUE:
            amounts[name, DUE] += count
        if name and view == View.DUE and since is not None:
            amounts[name, OLDEST] = max(amounts[name, OLDEST], seen.now - since)
    if seen.begins_minute:
        for row in tx.rows("types"):
            for name in (DEPTH, DUE, OLDEST):
                amounts[row["name"], name] += 0
    history.add(tx, amounts, "note_history")


def _came_in(tx: Tx, last: Row, found: tuple[_Row, ...]) -> Seen:
    """Count the jobs that have come in by their numbers, wherever they are by now: producers pay nothing.

    On PostgreSQL a job with a lower number may be committed after one with a higher: numbers are counted
    again until every transaction that may hold one is over.
    """
    settled, counted = last["settled_seq"], last["counted_seq"]
    until = max(counted, last["highest"])
    over = last["oldest"] >= last["horizon"]
    certain = counted if over or until - settled > _MOST_AHEAD else settled
    enqueued: Counter[str] = Counter()
    ahead: dict[str, int] = {}
    if until > settled:
        for row in tx.rows("count_enqueued", since=settled, until=until, settled=certain):
            enqueued[row["type"]] += row["count"]
            if not row["settled"]:
                ahead[row["type"]] = row["count"]
    return Seen(
        now=tx.now,
        after=last["sampled_at"],
        held=bool(last["held"]),
        rows=found,
        settled_seq=certain,
        counted_seq=until,
        horizon=last["following"],
        enqueued=enqueued,
        uncommitted=ahead,
    )


def _keep_arrivals(tx: Tx, seen: Seen) -> None:
    """Add those that were not counted before; those that will be counted again are remembered."""
    known = {row["type"]: row["count"] for row in tx.rows("uncommitted")}
    came = {name: count - known.get(name, 0) for name, count in seen.enqueued.items()}
    history.add(tx, {(name, ENQUEUED): count for name, count in came.items() if count > 0})
    tx.change("forget_uncommitted")
    for name, count in sorted(seen.uncommitted.items()):
        tx.change("note_uncommitted", type=name, count=count)


_MINUTE = 60_000_000
_COLUMNS = ("type", "priority", "view", "tenant", "count", "since")
