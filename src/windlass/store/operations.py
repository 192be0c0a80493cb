"""Keep operations: one action for every job that a filter chooses, carried in chunks by any process.

An operation outlives its caller and its carrier. The carrier writes down the next jobs (the chunk) before it
acts on them, with the operation's id as the request id of each action. If it dies, the next carrier acts on
the same chunk again: what was done already answers as done, so each job is acted on once and counted once.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import uuid4

import msgspec

from windlass.clock import from_micros, span
from windlass.errors import Conflict, JobNotFound, must_be
from windlass.store import access, jobs, rows
from windlass.store.engine import Row, Tx
from windlass.store.jobs import Filter

# So many operations are listed at most.
MOST = 1000
# So many refusals are quoted.
QUOTED = 5
# So many numbers of jobs one statement looks through.
WINDOW = 20_000


class State(StrEnum):
    """What an operation is doing."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    DONE = "done"
    FAILED = "failed"

    @property
    def ended(self) -> bool:
        """Whether it never goes on."""
        return self not in (State.RUNNING, State.PAUSED)


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the jobs so far."""

    matched: int = 0
    # The action took effect.
    done: int = 0
    # The jobs were running: the action waits for their workers.
    asked: int = 0
    # The jobs had left the action's states before it reached them, such as by completing.
    moved_on: int = 0
    # The rules said no; `refusals` quotes the first few.
    refused: int = 0
    refusals: tuple[str, ...] = ()


class NewOperation(msgspec.Struct, frozen=True, kw_only=True):
    """What to do to which jobs: the oldest `limit` of those that match, at most `rate` per second."""

    id: str
    action: str
    where: Filter
    # What the action takes besides a job and a reason.
    arguments: Mapping[str, Any] = {}
    rate: float | None = None
    limit: int | None = None
    # How many jobs matched at the start, as far as they were counted.
    expected: int = 0
    at_least: bool = False
    why: str = ""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """An operation and how far it has come."""

    id: str
    action: str
    filter: dict[str, Any]
    arguments: dict[str, Any]
    rate: float | None
    limit: int | None
    expected: int
    at_least: bool
    by: str
    why: str
    state: State
    reached: Reached
    # Why it failed.
    error: str
    # Which process carries it, or did last.
    owner: str
    created_at: datetime
    # When it last came on.
    updated_at: datetime
    ended_at: datetime | None


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """An operation in the hands of one process: the token is the fence."""

    operation: Operation
    where: Filter
    token: str
    # The number of the last job that was looked at, and of the last one to look at.
    place: int
    last: int
    # The jobs that are acted on just now.
    chunk: tuple[str, ...]


def start(tx: Tx, new: NewOperation, *, by: str) -> Operation:
    """Store a new operation; one that has the id already is answered as it is.

    Only jobs that are there now are meant: it ends at the newest one.
    """
    numbers = tx.row("live_numbers")
    lowest, highest = (numbers["lowest"], numbers["highest"]) if numbers else (None, None)
    told = rows.columns(
        new,
        where=None,
        filter=_filter_text(new.where),
        rate=None if new.rate is None else str(new.rate),
        at_least=int(new.at_least),
        why=access.said(new.why),
        place=(lowest or 1) - 1,
        last=highest or 0,
        reached=rows.json_text(Reached()),
    )
    created = tx.change("start_operation", verb=new.action, most=new.limit, who=by, now=tx.now, **told)
    found = get(tx, new.id)
    if created:
        asked = {"action": new.action, "filter": found.filter, "limit": new.limit, "rate": new.rate}
        access.note(tx, "start", "operation", new.id, by=by, why=new.why, after=asked)
    return found


def newest(tx: Tx, *, limit: int = 50) -> list[Operation]:
    """The newest operations."""
    if not 1 <= limit <= MOST:
        raise must_be("limit", limit, f"between 1 and {MOST}")
    return [_operation(row) for row in tx.rows("operations", limit=limit)]


def waits(tx: Tx) -> bool:
    """Whether an operation waits for a process that carries it."""
    row = tx.row("operation_waits", now=tx.now)
    return row is not None and bool(row["waits"])


def take(tx: Tx, owner: str, lease: timedelta, only: str = "") -> Carried | None:
    """Become the one who carries an operation that nobody carries, or only this one."""
    token, until = str(uuid4()), tx.now + span(lease)
    row = tx.row("take_operation", token=token, owner=owner, until=until, now=tx.now, only=only)
    return None if row is None else _carried(row)


def find_next(tx: Tx, carried: Carried, limit: int) -> tuple[tuple[str, ...], int]:
    """The next jobs of an operation, oldest first, and the number up to which was looked."""
    where = carried.where
    if where.older_than is not None:
        # As old as that when the operation began.
        age = where.older_than + (from_micros(tx.now) - carried.operation.created_at)
        where = msgspec.structs.replace(where, older_than=age)
    upto = min(carried.place + WINDOW, carried.last)
    return jobs.find_after(tx, where, after=carried.place, upto=upto, limit=limit)


def advance(
    tx: Tx,
    carried: Carried,
    reached: Reached,
    lease: timedelta,
    *,
    ends: State | None = None,
    error: str = "",
) -> Carried | None:
    """Note how far an operation has come, and keep it for so long; None if another process has it.

    An operation that was paused or stopped keeps its place, without the chunk that comes next.
    """
    row = tx.row("lock_operation", id=carried.operation.id)
    if row is None or row["token"] != carried.token:
        return None
    state, ended_at = State(row["state"]), row["ended_at"]
    goes_on = state is State.RUNNING
    if ends is not None and not state.ended:
        state, ended_at = ends, tx.now
        told = {"state": state, **msgspec.structs.asdict(reached)}
        access.note(tx, "end", "operation", carried.operation.id, by=row["who"], after=told)
    tx.change(
        "advance_operation",
        id=carried.operation.id,
        token=carried.token,
        state=state.value,
        place=carried.place if goes_on else row["place"],
        chunk=rows.json_text(carried.chunk if goes_on else ()),
        reached=rows.json_text(reached),
        error=error,
        until=tx.now + (span(lease) if state is State.RUNNING else 0),
        now=tx.now,
        ended_at=ended_at,
    )
    found = tx.row("operation", id=carried.operation.id)
    return None if found is None else _carried(found)


def steer(tx: Tx, operation_id: str, state: State, *, by: str, why: str = "") -> Operation:
    """Pause an operation, let it run again, or stop it for good; one that is so already stays so."""
    row = tx.row("lock_operation", id=operation_id)
    before = get(tx, operation_id) if row is None else _operation(row)
    if before.state is state:
        return before
    verb = _STEERED[state]
    if before.state.ended:
        raise Conflict(f"cannot {verb} operation {operation_id}: it is {before.state}")
    ended_at = tx.now if state.ended else None
    tx.change("steer_operation", id=operation_id, state=state.value, now=tx.now, ended_at=ended_at)
    # Its carrier may be acting on more jobs just now: it counts them when the chunk is done.
    told = {"state": state, "at_least": msgspec.structs.asdict(before.reached)}
    access.note(
        tx, verb, "operation", operation_id, by=by, why=why, before={"state": before.state}, after=told
    )
    return get(tx, operation_id)


_STEERED = {State.PAUSED: "pause", State.RUNNING: "resume", State.STOPPED: "stop"}


def get(tx: Tx, operation_id: str) -> Operation:
    """One operation. JobNotFound if there is none."""
    row = tx.row("operation", id=operation_id.replace("\0", ""))
    if row is None:
        raise JobNotFound(operation_id, "operation")
    return _operation(row)


def _carried(row: Row) -> Carried:
    return rows.read(Carried, row, operation=_operation(row), where=_filter(row["filter"]))


def _operation(row: Row) -> Operation:
    chosen = msgspec.json.decode(row["filter"], type=dict[str, Any])
    if "payload" in chosen:
        chosen["payload"] = {".".join(path): value for path, value in chosen["payload"]}
    told = {"action": row["verb"], "filter": chosen, "limit": row["most"], "by": row["who"]}
    return rows.read(Operation, row, **told)


def _filter_text(where: Filter) -> str:
    """What is given of a filter. A path into the payload is a list: it cannot be a name in JSON."""
    given = msgspec.structs.asdict(where)
    given["payload"] = list(where.payload.items())
    return rows.json_text({name: value for name, value in given.items() if value not in (None, (), [])})


def _filter(text: str) -> Filter:
    given = msgspec.json.decode(text, type=dict[str, Any])
    payload = {tuple(path): value for path, value in given.pop("payload", [])}
    return msgspec.structs.replace(msgspec.convert(given, Filter), payload=payload)
