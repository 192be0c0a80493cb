"""Running jobs: leases, progress, side effects done once, and what an outcome leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime, timedelta
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar, assert_never

import msgspec

from windlass.clock import from_micros, span
from windlass.errors import LeaseLost, Refused
from windlass.job import HUNG, SUSPECT_AFTER, Attempt, Error, Job, Lease, Output, Reason, Request
from windlass.outcome import Again, Cancelled, Dead, Done, Left, Outcome, Released, Snoozed, stopped
from windlass.store import flow, rows
from windlass.store.engine import Claimed, Want

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from windlass.store.engine import Settlement, Tx
    from windlass.store.fleet import WorkerInfo


class Once(StrEnum):
    """What is known of a side effect that shall happen once."""

    NEW = "new"
    DONE = "done"
    # Begun by an attempt that never said how it ended.
    IN_DOUBT = "in doubt"


class Said(NamedTuple):
    """How far a running job says that it has come, and what it does."""

    done: int
    total: int | None = None
    message: str | None = None


class Progress(msgspec.Struct, frozen=True):
    """How far a job said that it had come, and when."""

    done: int
    total: int | None
    noted_at: datetime
    message: str | None = None


class Transacting(Protocol):
    """Where a handler's own writes commit together with its job's completion."""

    def transaction(
        self, completion: Callable[[], Settlement], *, within: timedelta
    ) -> AbstractContextManager[Any]:
        """A connection of the handler's own in a transaction that commits together with the completion.

        That is asked for at the block's end. LeaseLost, and nothing written, if it comes too late.
        """

    def transaction_async(
        self, completion: Callable[[], Settlement], *, within: timedelta
    ) -> AbstractAsyncContextManager[Any]:
        """The same on the running event loop."""

    def close(self) -> None:
        """Let go of the connections."""


_LOST = frozenset({Reason.WORKER_LOST, Reason.LEASE_EXPIRED})

# What is told of an attempt: when it ended, under which lease, how long it ran, by which release.
Told: TypeAlias = "tuple[datetime, Lease, timedelta | None, str]"


def storable_settlement(settlement: Settlement, refused: Exception) -> Settlement:
    """The same without what was refused: no completion without the jobs that belong to it."""
    outcome = storable(settlement.outcome, refused)
    if isinstance(outcome, Done) and (settlement.enqueues or isinstance(refused, Refused)):
        outcome = Dead(_unstorable(refused))
    return msgspec.structs.replace(settlement, outcome=outcome, enqueues=(), check_in=None)


def storable(outcome: Outcome, refused: Exception) -> Outcome:
    """The same outcome without its own words; a completed job stays completed, without its result."""
    error = _unstorable(refused)
    if isinstance(outcome, Done):
        return Done(missing=error.message)
    return (
        outcome
        if isinstance(outcome, (Snoozed, Left))
        else msgspec.structs.replace(outcome, error=error, output=None)
    )


def _unstorable(refused: Exception) -> Error:
    return Error(
        Reason.EXCEPTION, "Unstorable", f"what the attempt left behind could not be stored: {refused}"
    )


def carried_out(outcome: Outcome, request: Request) -> Outcome:
    """A job that would run again although somebody asked to stop it is stopped now."""
    if not isinstance(outcome, (Again, Snoozed, Released, Left)):
        return outcome
    return stopped(request, getattr(outcome, "output", None), getattr(outcome, "error", None))


class Kind(Enum):
    """What a settle does to a job's row."""

    FINISH = "finish"
    PUT_BACK = "put_back"
    LEAVE = "leave"
    BURY = "bury"


class Write(msgspec.Struct, kw_only=True):
    """A row's worth of facts: what an outcome leaves behind."""

    kind: Kind
    history: str | None
    last_token: str | None
    state: str = ""
    result: str | None = None
    reason: str | None = None
    error: str | None = None
    delay: timedelta = timedelta(0)
    given_back: bool = False
    snoozed: bool = False
    interrupted: bool = False
    lost: int = 0
    left: Left | None = None


def written(lease: Lease, outcome: Outcome, ran: timedelta | None, moment: datetime, app: str = "") -> Write:
    """What is to be written for an outcome at a moment; the same for every store."""
    told = (moment, lease, ran, app)
    match outcome:
        case Done(value):
            return Write(
                kind=Kind.FINISH,
                state="completed",
                history=rows.json_text(completed_attempts(told, outcome)),
                result=None if value is None else value.decode(),
                last_token=lease.token,
            )
        case Cancelled(error, output):
            history = _history(told, "cancelled", error, output)
            return _failed(lease, Kind.FINISH, history, error, state="cancelled")
        case Dead(error, why, output):
            history = _history(told, "dead", error, output)
            return _failed(lease, Kind.BURY, history, error, why=why)
        case Again(delay, error, output):
            history = _history(told, "retry", error, output)
            return _failed(lease, Kind.PUT_BACK, history, error, delay=delay)
        case Snoozed(delay):
            return _returned(lease, delay=delay, snoozed=True)
        case Left(ends_in):
            # What is left without an end waits as long as there is time.
            delay = timedelta.max if ends_in is None else ends_in
            return msgspec.structs.replace(_returned(lease, delay=delay), kind=Kind.LEAVE, left=outcome)
        case Released(error, output):
            if error is None:
                return _returned(lease)
            history = _history(told, "released", error, output)
            return _failed(lease, Kind.PUT_BACK, history, error, given_back=True, interrupted=True)
        case _:
            assert_never(outcome)


def _failed(
    lease: Lease, kind: Kind, history: str, error: Error, *, why: Error | None = None, **facts: Any
) -> Write:
    """An attempt with an error.

    The token tells a repeated settle that it was done before; the holder of a reaped lease came too late.
    """
    lost = error.reason in _LOST
    told = why or error
    return Write(
        kind=kind,
        history=history,
        last_token=None if lost else lease.token,
        reason=told.reason.value,
        error=rows.error_text(told),
        lost=(SUSPECT_AFTER if error.kind == HUNG else 1) if lost else 0,
        **facts,
    )


def _returned(lease: Lease, *, delay: timedelta = timedelta(0), snoozed: bool = False) -> Write:
    """A job that is given back as if it had not been claimed."""
    before = lease.job.history
    return Write(
        kind=Kind.PUT_BACK,
        history=rows.json_text(before) if before else None,
        last_token=lease.token,
        delay=delay,
        given_back=True,
        snoozed=snoozed,
    )


def _history(told: Told, outcome: str, error: Error | None = None, output: Output | None = None) -> str:
    return rows.json_text(attempts(told, outcome, error, output))


def attempts(
    told: Told, outcome: str, error: Error | None = None, output: Output | None = None
) -> tuple[Attempt, ...]:
    """The job's attempts with this one behind them; only a lease's holder can have added any meanwhile."""
    finished, lease, ran, app = told
    job = lease.job
    attempt = Attempt(
        number=job.attempts,
        claim=job.claims,
        worker=lease.worker,
        started_at=job.started_at or finished,
        finished_at=finished,
        seconds=None if ran is None else round(ran.total_seconds(), 6),
        outcome=outcome,
        error=error,
        output=output,
        app=app,
    )
    return rows.newest((*job.history, attempt))


def completed_attempts(told: Told, done: Done) -> tuple[Attempt, ...]:
    """The job's attempts, the last of them completed; it tells why the result is missing, if it is."""
    found = attempts(told, "completed", output=done.output)
    if done.missing is None:
        return found
    return (*found[:-1], msgspec.structs.replace(found[-1], result_missing=done.missing))


def note_hang(tx: Tx, seq: int, token: str, hang: Error | None) -> None:
    """Keep why a running job's worker does not answer, for its reaper; None: it answers again."""
    row = tx.row("running_job", seq=seq, token=token)
    if row is not None:
        job = rows.live_job(row)
        history = job.history
        flow.note_hang(tx, job, hangs=hang is not None)
        before = history[-1].error if history else None
        error = rows.json_text(hang) if hang else rows.error_text(before) if before else None
        tx.change("note_hang", seq=seq, token=token, error=error)


def extend(tx: Tx, leases: Sequence[Lease], by: timedelta) -> tuple[list[Lease], list[Lease]]:
    """Move the leases' end to now + `by`: (kept with their new end, lost)."""
    until = tx.now + span(by)
    end = from_micros(until)
    kept: list[Lease] = []
    lost: list[Lease] = []
    for lease in leases:
        if tx.change("extend", seq=lease.job.seq, token=lease.token, until=until):
            kept.append(msgspec.structs.replace(lease, until=end))
        else:
            lost.append(lease)
    return kept, lost


def held_by(tx: Tx, worker: str) -> list[Lease]:
    """Every lease in a worker's name."""
    return [rows.lease_from(row) for row in tx.rows("held_by", worker=worker)]


def orphans(tx: Tx, *, limit: int) -> list[Lease]:
    """Leases whose worker is declared dead, stopped, or unknown."""
    return [rows.lease_from(row) for row in tx.rows("orphans", limit=limit)]


def expired(tx: Tx, *, limit: int) -> list[Lease]:
    """Leases past their end, the longest past first."""
    return [rows.lease_from(row) for row in tx.rows("expired", now=tx.now, limit=limit)]


def note_progress(tx: Tx, said: Sequence[tuple[Lease, Said]]) -> None:
    """Keep how far jobs have come; in a fixed order, so that two workers never wait for each other."""
    for lease, told in sorted(said, key=lambda each: each[0].id):
        fence = {"seq": lease.job.seq, "token": lease.token}
        tx.change(
            "note_progress", done=told.done, total=told.total, message=told.message, now=tx.now, **fence
        )


def progress(tx: Tx, job_id: str) -> Progress | None:
    """How far a job said that it had come."""
    row = tx.row("progress_of", id=job_id)
    if row is None:
        return None
    return Progress(row["done"], row["total"], from_micros(row["noted_at"]), row["message"])


def begin_once(tx: Tx, lease: Lease, key: str) -> Once:
    """Begin a side effect, or say what became of it before. LeaseLost if the job is another's."""
    fence = {"seq": lease.job.seq, "token": lease.token}
    if tx.row("begin_once", key=key, now=tx.now, **fence) is not None:
        return Once.NEW
    known = tx.row("once_of", key=key, **fence)
    if known is None or known["done"] is None:
        raise LeaseLost(lease.id)
    return Once.DONE if known["done"] else Once.IN_DOUBT


def end_once(tx: Tx, lease: Lease, key: str) -> None:
    """The side effect is done."""
    tx.change("end_once", id=lease.id, key=key, now=tx.now)


def undo_once(tx: Tx, lease: Lease, key: str) -> None:
    """The side effect surely did not happen."""
    tx.change("undo_once", id=lease.id, key=key, seq=lease.job.seq, token=lease.token)


T = TypeVar("T")


def once(tx: Tx, verb: Callable[..., T], want: Want, *args: object) -> T | Claimed:
    """Claim by `verb`, unless leases in the worker's name end with the mark of this request."""
    if want.mark is not None:
        held = held_by(tx, want.worker)
        found = [lease for lease in held if lease.token.replace("-", "").endswith(want.mark)]
        if found:
            return Claimed(found, repeated=True)
    return verb(tx, want, *args)


# Jobs are counted up to here, so that a look costs little however many wait.
MOST_COUNTED = 10_000


def any_for(tx: Tx, types: Collection[str], reader: str) -> bool:
    """Whether jobs of these types are aside that a reader has not tried."""
    if not reader:
        return False
    return any(row["type"] in types and reader not in row["readers"] for row in tx.rows("unread_sets"))


def every(tx: Tx) -> list[Unread]:
    """All jobs that are aside, by type, by field and by who has tried them."""
    found = []
    for kind in tx.rows("unread_sets"):
        row = tx.row("count_unread", **kind, limit=MOST_COUNTED)
        if row is not None and row["count"]:
            found.append(
                Unread(
                    type=kind["type"],
                    readers=frozenset(kind["readers"].split()),
                    field=kind["field"],
                    problem=row["problem"],
                    since=from_micros(row["since"]),
                    count=row["count"],
                )
            )
    return found


def of_job(tx: Tx, job: Job) -> Unread | None:
    """Why a job is aside; None if it is not."""
    row = tx.row("unread_job", seq=job.seq)
    if row is None:
        return None
    return Unread(
        type=job.type,
        readers=frozenset(row["readers"].split()),
        field=row["field"],
        problem=row["problem"],
        since=from_micros(row["since"]),
    )


class Unread(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that workers could not read, and have left to workers of another release."""

    type: str
    # The readers that have tried them.
    readers: frozenset[str]
    # What they cannot read, and what one of them said of it.
    field: str
    problem: str
    since: datetime
    # Counted up to a bound.
    count: int = 1

    def is_for(self, worker: WorkerInfo) -> bool:
        """Whether a worker that takes jobs of this type may be able to read them."""
        # Over HTTP nothing is said of versions: such a worker takes whatever it is given. One of an older
        # release of Windlass says no reader, and is never offered what others have left.
        return worker.reader not in self.readers if worker.reader else not worker.versions

    def for_none_of(self, workers: Iterable[WorkerInfo]) -> bool:
        """Whether none of these workers, which are alive, takes the type and may be able to read them."""
        return not any(
            worker.state != "draining" and worker.serves(self.type) and self.is_for(worker)
            for worker in workers
        )
