"""How are outcomes written, hundreds at a time? The same rules as store/running.py, a statement a kind."""

from __future__ import annotations

import contextlib
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.clock import END_OF_TIME, from_micros, span
from windlass.errors import Refused, StoreBusy
from windlass.job import JobState, Request
from windlass.store import chains, limits, oncall, running
from windlass.store.engine import Unstorable
from windlass.store.postgres.arrays import numbers, sparse, texts, words
from windlass.store.running import Kind, Write

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from windlass.job import Lease
    from windlass.outcome import Outcome
    from windlass.store.engine import Settlement
    from windlass.store.postgres.session import PostgresTx

_UNSTORABLE = (Unstorable, UnicodeError, msgspec.MsgspecError)
# Stands in a history where the server puts its own time; known by the name before it, as messages may say it.
_NOW = datetime(1, 1, 1, tzinfo=UTC)
_TRIES = 200
_PAUSE_SECONDS = 0.01


class _Open(msgspec.Struct):
    """A settlement that is not written yet, with the outcome that it has come to."""

    lease: Lease
    outcome: Outcome
    ran: timedelta | None
    app: str = ""
    # Somebody waits for the job, or it belongs to a batch: it ends in one transaction with what follows.
    marked: bool = False
    # What comes back of the rates that it was claimed under.
    tokens: tuple[tuple[str, int], ...] = ()


def settle(tx: PostgresTx, settlements: Sequence[Settlement]) -> list[Lease]:
    """Record outcomes; the leases that were lost come back."""
    gone: set[str] = set()
    limits.hold(tx, (each.lease for each in settlements if each.held))
    for each in settlements:
        if not each.plain:
            _settle_with_more(tx, each, gone)
    pending = [
        _Open(each.lease, each.outcome, each.ran, each.app, tokens=each.tokens)
        for each in settlements
        if each.plain
    ]
    pause = threading.Event()
    for tried in range(_TRIES):
        marked = [each for each in pending if each.marked]
        pending = _round(tx, [each for each in pending if not each.marked], gone)
        pending += _settle_marked(tx, marked, gone)
        if not pending:
            return [each.lease for each in settlements if each.lease.token in gone]
        if tried:
            pause.wait(_PAUSE_SECONDS)
    raise StoreBusy(f"{len(pending)} running jobs are locked by somebody else's transaction; try again")


def complete(tx: PostgresTx, settlement: Settlement) -> bool:
    """Record a completion and what is enqueued with it, within a transaction; False without the lease."""
    opened = _Open(settlement.lease, settlement.outcome, settlement.ran, settlement.app, marked=True)
    if settlement.lease.token not in _write(tx, [opened]):
        return False
    if settlement.enqueues:
        tx.enqueue(settlement.enqueues)
    if settlement.check_in is not None:
        lease = settlement.lease
        oncall.add_check(tx, lease.id, lease.job.type, settlement.check_in)
    return True


def _settle_with_more(tx: PostgresTx, settlement: Settlement, gone: set[str]) -> None:
    """A completion with jobs or a check of its own, in one transaction: never one without the other."""
    pause = threading.Event()
    for _ in range(_TRIES):
        try:
            with tx.part():
                if complete(tx, settlement):
                    return
        except (*_UNSTORABLE, Refused) as refused:
            gone |= {lease.token for lease in settle(tx, [running.storable_settlement(settlement, refused)])}
            return
        if not _told_apart(tx, [_Open(settlement.lease, settlement.outcome, settlement.ran)], gone):
            return
        pause.wait(_PAUSE_SECONDS)
    raise StoreBusy(f"job {settlement.lease.id} is locked by somebody else's transaction; try again")


def _settle_marked(tx: PostgresTx, marked: list[_Open], gone: set[str]) -> list[_Open]:
    """Jobs that others wait for end together with what follows from that; what is left is tried again."""
    if not marked:
        return []
    try:
        with tx.part():
            found = _write(tx, marked)
    except _UNSTORABLE as refused:
        if len(marked) > 1:
            return [left for each in marked for left in _settle_marked(tx, [each], gone)]
        [alone] = marked
        alone.outcome = running.storable(alone.outcome, refused)
        return marked
    return _left(tx, marked, found, gone)


def _round(tx: PostgresTx, pending: Sequence[_Open], gone: set[str]) -> list[_Open]:
    """Write what can be written; what is left stands against a request, or is locked at this moment."""
    if not pending:
        return []
    try:
        # A token comes back with its job or not at all: an answer that is lost between the two is repeated.
        with tx.part() if any(each.tokens for each in pending) else contextlib.nullcontext():
            answered = _write(tx, pending)
    except _UNSTORABLE:
        answered = {}
        for each in pending:
            answered |= _write_alone(tx, each)
    return _left(tx, pending, answered, gone)


def _left(
    tx: PostgresTx, pending: Sequence[_Open], answered: dict[str, str | None], gone: set[str]
) -> list[_Open]:
    """What is not written yet."""
    left: list[_Open] = []
    unknown: list[_Open] = []
    for each in pending:
        token = each.lease.token
        if token not in answered:
            unknown.append(each)
        elif (request := answered[token]) is not None:
            each.outcome = running.carried_out(each.outcome, Request(request))
            left.append(each)
    return left + _told_apart(tx, unknown, gone) if unknown else left


def _write(tx: PostgresTx, pending: Sequence[_Open]) -> dict[str, str | None]:
    """One statement a kind; the tokens that were found, each with the request that stood in its way."""
    kinds: dict[Kind, list[tuple[Lease, Write]]] = {}
    moment = _NOW if tx.given is None else from_micros(tx.given)
    # All of them or none.
    marked = any(each.marked for each in pending)
    ended: list[chains.Ended] = []
    for each in pending:
        write = running.written(each.lease, each.outcome, each.ran, moment, each.app)
        kinds.setdefault(write.kind, []).append((each.lease, write))
    found: dict[str, str | None] = {}
    for kind, writes in kinds.items():
        restricted = {} if kind in _GOES_ON else {"marked": marked}
        rows = tx.rows(f"settle_{kind.value}", now=tx.given, **_COLUMNS[kind](writes), **restricted)
        found |= {row["token"]: row["request"] for row in rows}
        if marked and kind not in _GOES_ON:
            of = {lease.token: (lease.id, write.state or JobState.DEAD) for lease, write in writes}
            ended += (chains.Ended(of[row["token"]][0], JobState(of[row["token"]][1]), row) for row in rows)
    if ended:
        chains.all_ended(tx, ended, tx.enqueue)
    back = [each for each in pending if each.tokens and found.get(each.lease.token, "") is None]
    limits.return_tokens(tx, (token for each in back for token in each.tokens))
    return found


def _write_alone(tx: PostgresTx, each: _Open) -> dict[str, str | None]:
    """One of a batch in which something cannot be stored: it must not hold up the others."""
    try:
        return _write(tx, [each])
    except _UNSTORABLE as refused:
        each.outcome = running.storable(each.outcome, refused)
        return _write(tx, [each])


def _told_apart(tx: PostgresTx, unknown: Sequence[_Open], gone: set[str]) -> list[_Open]:
    """Not found: settled before (a repeat after a lost answer), lost, or only locked, then tried again."""
    leases = [each.lease for each in unknown]
    rows = tx.rows("settled_already", **_fence(leases))
    told = {row["token"]: row["held"] for row in rows}
    gone |= {lease.token for lease in leases if lease.token not in told}
    marked = {row["token"] for row in rows if row["marked"]}
    for each in unknown:
        each.marked = each.marked or each.lease.token in marked
    return [each for each in unknown if told.get(each.lease.token)]


def _fence(leases: Sequence[Lease]) -> dict[str, str]:
    return {
        "seqs": numbers(lease.job.seq for lease in leases),
        "tokens": words(lease.token for lease in leases),
    }


def _finish(writes: Sequence[tuple[Lease, Write]]) -> dict[str, Any]:
    return _fence([lease for lease, _ in writes]) | {
        "states": words(write.state for _, write in writes),
        "last_tokens": words(write.last_token for _, write in writes),
        "reasons": sparse(texts, (write.reason for _, write in writes)),
        "errors": sparse(texts, (write.error for _, write in writes)),
        "results": sparse(texts, (write.result for _, write in writes)),
        "histories": texts(write.history for _, write in writes),
    }


def _put_back(writes: Sequence[tuple[Lease, Write]]) -> dict[str, Any]:
    return _fence([lease for lease, _ in writes]) | {
        "waits": numbers(min(span(write.delay), END_OF_TIME) for _, write in writes),
        "latest": END_OF_TIME,
        "given_backs": numbers(write.given_back for _, write in writes),
        "snoozes": numbers(write.snoozed for _, write in writes),
        "interruptions": numbers(write.interrupted for _, write in writes),
        "losses": numbers(write.lost for _, write in writes),
        "last_tokens": words(write.last_token for _, write in writes),
        "reasons": sparse(texts, (write.reason for _, write in writes)),
        "errors": sparse(texts, (write.error for _, write in writes)),
        "histories": texts(write.history for _, write in writes),
    }


def _bury(writes: Sequence[tuple[Lease, Write]]) -> dict[str, Any]:
    return _fence([lease for lease, _ in writes]) | {
        "losses": numbers(write.lost for _, write in writes),
        "last_tokens": words(write.last_token for _, write in writes),
        "reasons": sparse(texts, (write.reason for _, write in writes)),
        "errors": sparse(texts, (write.error for _, write in writes)),
        "histories": texts(write.history for _, write in writes),
    }


def _leave(writes: Sequence[tuple[Lease, Write]]) -> dict[str, Any]:
    left = [write.left for _, write in writes if write.left is not None]
    return _fence([lease for lease, _ in writes]) | {
        "waits": numbers(min(span(write.delay), END_OF_TIME) for _, write in writes),
        "latest": END_OF_TIME,
        "last_tokens": words(write.last_token for _, write in writes),
        "readers": texts(each.reader for each in left),
        "fields": texts(each.field for each in left),
        "problems": texts(each.problem for each in left),
    }


_COLUMNS = {Kind.FINISH: _finish, Kind.PUT_BACK: _put_back, Kind.LEAVE: _leave, Kind.BURY: _bury}
_GOES_ON = (Kind.PUT_BACK, Kind.LEAVE)
