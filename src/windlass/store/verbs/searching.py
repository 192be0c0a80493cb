"""How are jobs found? Filters become clauses from a fixed list; values are always bound."""

from __future__ import annotations

import base64
import binascii
import math
from typing import TYPE_CHECKING

from windlass.clock import span
from windlass.errors import must_be
from windlass.job import LIVE, View
from windlass.store import rows
from windlass.store.protocol import Counted, Filter, Page

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from windlass.store.transaction import Tx

MOST = 1000
# Before an error's class or reason: this one, and no other that has it in its name.
EXACTLY = "="
_FROM_THE_TOP = 2**62

_LATER = "state = 'pending' and run_at > :now and waits_for = 0 and unread_seq is null"
_VIEWS = {
    View.DUE: "state = 'pending' and run_at <= :now",
    View.SCHEDULED: f"{_LATER} and attempts = 0",
    View.RETRYING: f"{_LATER} and attempts > 0",
    View.WAITING: "state = 'pending' and waits_for > 0",
    View.UNREADABLE: "state = 'pending' and run_at > :now and unread_seq is not null",
    View.STUCK: "state = 'processing' and lease_until < :now",
}


def find(
    tx: Tx, where: Filter, *, limit: int = 50, cursor: str | None = None, window: int | None = None
) -> Page:
    """Jobs newest first, live and archived; with a window, only those among the next `window` numbers.

    There may then be a `next` though nothing was found: more numbers to look through.
    """
    if not 1 <= limit <= MOST:
        raise must_be("limit", limit, f"between 1 and {MOST}")
    values: dict[str, object] = {"before": _decode(cursor), "limit": limit + 1, "now": tx.now}
    floor = None if window is None else _floor(tx, _decode(cursor), window)
    found = tx.search(_parts(where), _clauses(tx, where, values, floor), values)
    jobs = [rows.found_job(row) for row in found[:limit]]
    if len(found) > limit:
        return Page(jobs, _encode(jobs[-1].seq))
    return Page(jobs, None if floor is None else _encode(floor))


def find_after(tx: Tx, where: Filter, *, after: int, upto: int, limit: int) -> tuple[tuple[str, ...], int]:
    """The ids of jobs with numbers above `after`, oldest first, and the number up to which was looked."""
    values: dict[str, object] = {"before": upto + 1, "limit": limit, "now": tx.now}
    found = tx.search(_parts(where), _clauses(tx, where, values, after + 1), values, oldest=True)
    return tuple(row["id"] for row in found), found[-1]["seq"] if len(found) == limit else upto


def _floor(tx: Tx, before: int, window: int) -> int | None:
    """The number down to which a window reaches; None if nothing lies below it."""
    row = tx.row("numbers")
    if row is None or row["lowest"] is None:
        return None
    floor = min(before, row["highest"] + 1) - window
    return floor if floor > row["lowest"] else None


def count(tx: Tx, where: Filter, *, limit: int) -> int:
    """How many jobs match, counted up to `limit`."""
    values: dict[str, object] = {"before": _FROM_THE_TOP, "limit": limit, "now": tx.now}
    return tx.count(_parts(where), _clauses(tx, where, values), values)


def count_next(tx: Tx, where: Filter, *, window: int, cursor: str | None = None) -> Counted:
    """How many of the next `window` numbers match, from the newest down, and where to go on."""
    before = _decode(cursor)
    floor = _floor(tx, before, window)
    values: dict[str, object] = {"before": before, "limit": window, "now": tx.now}
    found = tx.count(_parts(where), _clauses(tx, where, values, floor), values)
    return Counted(found, None if floor is None else _encode(floor))


def _parts(where: Filter) -> list[str]:
    """Which tables can hold a match."""
    if where.view is not None:
        return ["find_live"]
    if not where.states:
        return ["find_live", "find_ended"]
    live = [state in LIVE for state in where.states]
    return ["find_live"] * any(live) + ["find_ended"] * (not all(live))


def _clauses(tx: Tx, where: Filter, values: dict[str, object], floor: int | None = None) -> str:
    clauses = "".join(f" and {clause}" for clause in _each_clause(tx, where, values))
    if floor is None:
        return clauses
    values["floor"] = floor
    return f"{clauses} and seq >= :floor"


def _each_clause(tx: Tx, where: Filter, values: dict[str, object]) -> Iterator[str]:
    if where.ids:
        yield _one_of("id", where.ids, values)
    if where.types:
        yield _one_of("type", where.types, values)
    if where.states:
        # In words rather than bound: only so can the index of the dead be used for them.
        yield "(" + " or ".join(f"state = '{state.value}'" for state in where.states) + ")"
    if where.view is not None:
        yield _view(where.view)
    for column in ("tenant", "caller", "batch", "key"):
        wanted = getattr(where, column)
        if wanted is not None:
            values[column] = wanted
            yield f"{column} = :{column}"
    if where.error is not None:
        yield _error(tx, where.error, values)
    if where.older_than is not None:
        values["older"] = tx.now - span(where.older_than)
        yield "created_at < :older"
    for number, (path, value) in enumerate(where.payload.items()):
        _check_plain(path, value)
        yield tx.payload_equals(f"field_{number}", path, value, values)


def _error(tx: Tx, wanted: str, values: dict[str, object]) -> str:
    if wanted.startswith(EXACTLY):
        values["error"] = wanted.removeprefix(EXACTLY)
        return f"coalesce({tx.field('class')}, reason) = :error"
    values["error"] = "%" + wanted.replace("!", "!!").replace("%", "!%").replace("_", "!_") + "%"
    words = ("reason", *(f"coalesce({tx.field(name)}, '')" for name in ("class", "message")))
    told = " || ' ' || ".join(words)
    return f"lower({told}) like lower(:error) escape '!'"


def _check_plain(path: Sequence[str], value: object) -> None:
    """Only a single value can be compared with a payload's field."""
    match value:
        case None | bool() | str():
            return
        case int() if abs(value) < 2**63:
            return
        case float() if math.isfinite(value):
            return
        case _:
            allowed = "a text, a number, true, false or null"
            raise must_be("payload." + ".".join(path), value, allowed)


def _view(view: str) -> str:
    try:
        return _VIEWS[View(view)]
    except ValueError:
        raise must_be("view", view, "one of " + ", ".join(View)) from None


def _one_of(column: str, wanted: tuple[str, ...], values: dict[str, object]) -> str:
    names = [f"{column}_{number}" for number in range(len(wanted))]
    values.update(zip(names, wanted, strict=True))
    return f"{column} in ({', '.join(f':{name}' for name in names)})"


def _encode(seq: int) -> str:
    return base64.urlsafe_b64encode(str(seq).encode()).decode().rstrip("=")


def _decode(cursor: str | None) -> int:
    if cursor is None:
        return _FROM_THE_TOP
    try:
        seq = int(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error):
        raise must_be("cursor", cursor, "the `next` of an earlier page") from None
    return min(max(seq, 0), _FROM_THE_TOP)
